"""A file of a job saved here: what breaks goes on where it broke, and only what is whole gets its name."""

import hashlib
import http.client
import time
from pathlib import Path
from typing import IO

from trainyard._calls import Calls, Tries
from trainyard._errors import ApiError, BrokenContent, Unreachable

_PIECE = 1024 * 1024


def download(calls: Calls, url: str, to: Path) -> Path:
    """Save what lies at ``url`` as the file ``to``; beside it ``….part`` grows, from which a later call goes on.

    Raises Unreachable when it breaks again and again, BrokenContent when what came is not what was recorded.
    """
    unfinished = to.with_name(to.name + ".part")
    tag_file = to.with_name(to.name + ".part.etag")
    tries = Tries(calls.patience)
    while True:
        before = _size(unfinished)
        try:
            tag = _fetch(calls, url, unfinished, tag_file)
            break
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status == 416:
                _forget(unfinished, tag_file)  # longer than the file there is now: it is another one
                continue
            if _size(unfinished) > before:
                tries = Tries(calls.patience)  # it gets on
            time.sleep(tries.pause(error))
    _check(unfinished, tag_file, tag)
    tag_file.unlink(missing_ok=True)
    return unfinished.rename(to)


def _fetch(calls: Calls, url: str, unfinished: Path, tag_file: Path) -> str:
    """Get what is missing; returns the entity tag of the whole."""
    have = _size(unfinished)
    known = tag_file.read_text() if have and tag_file.exists() else ""
    headers = {"Range": f"bytes={have}-", "If-Range": known} if known else {}
    with calls.http.open("GET", url, headers=headers) as response:
        tag = response.headers.get("ETag") or ""
        goes_on = response.status == 206
        tag_file.write_text(tag)
        with unfinished.open("ab" if goes_on else "wb") as file:
            _copy(response, file, url)
    return tag


def _copy(response: http.client.HTTPResponse, file: IO[bytes], url: str) -> None:
    announced, taken = response.headers.get("Content-Length"), 0
    try:
        while piece := response.read(_PIECE):
            taken += file.write(piece)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the download of {url} broke: {error}") from error
    if announced is not None and taken != int(announced):
        raise Unreachable(f"the download of {url} broke after {taken} of {announced} bytes")


def _check(unfinished: Path, tag_file: Path, tag: str) -> None:
    """A Trainyard server's entity tag is the SHA-256 of the file."""
    expected = tag.strip('"')
    if len(expected) != 64:
        return
    with unfinished.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        _forget(unfinished, tag_file)
        raise BrokenContent(f"{unfinished.name.removesuffix('.part')} came with the SHA-256 {found}, not {expected}")


def _forget(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
