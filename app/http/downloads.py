"""Responses with the content of a stored file, or with a range of it."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from flask import Response, request

from app.http.errors import RangeNotSatisfiable, respond

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_PIECE = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class Content:
    """``what`` names it in errors; ``opened`` opens it at an offset, and the response closes it."""

    what: str
    size_bytes: int
    sha256: str
    opened: Callable[[int], BinaryIO]


def download(content: Content) -> Response:
    """The content, or the range of it that the request asks for."""
    try:
        wanted = _wanted_range(content)
    except RangeNotSatisfiable as error:
        refused = respond(error)
        refused.headers["Content-Range"] = f"bytes */{content.size_bytes}"
        return refused
    start, end = wanted or (0, content.size_bytes)
    # Opened before the response starts, so that a missing file is an error; closed even if the body is not read (HEAD).
    file = content.opened(start)
    body = _pieces(file, end - start)
    response = Response(body, status=206 if wanted else 200, mimetype="application/octet-stream")
    response.call_on_close(file.close)
    response.headers["Content-Length"] = str(end - start)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Content-Disposition"] = "attachment"
    response.set_etag(content.sha256)
    if wanted:
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{content.size_bytes}"
    return response


def _pieces(stream: BinaryIO, length: int) -> Iterator[bytes]:
    """Yield the next ``length`` bytes in pieces, then close the file."""
    with stream:
        while length > 0 and (piece := stream.read(min(_PIECE, length))):
            length -= len(piece)
            yield piece


def _wanted_range(content: Content) -> tuple[int, int] | None:
    """(start, end) of a single byte range, end exclusive; None means the whole file, as for unsupported forms."""
    if request.method != "GET":
        return None  # RFC 9110: ranges are defined for GET alone
    match = _RANGE.fullmatch(request.headers.get("Range", "").replace(" ", ""))
    unchanged = request.headers.get("If-Range", f'"{content.sha256}"') == f'"{content.sha256}"'
    if match is None or not unchanged or not (match[1] or match[2]):
        return None
    size = content.size_bytes
    if not match[1]:
        start, end = max(0, size - int(match[2])), size
    else:
        start, end = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    if match[1] and match[2] and int(match[2]) < int(match[1]):
        return None  # RFC 9110: an invalid range is ignored
    if start >= size or (not match[1] and int(match[2]) == 0):
        raise RangeNotSatisfiable(f"{content.what} has {size} bytes; ask for a range within them")
    return start, end
