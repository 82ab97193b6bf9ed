"""Downloads a file of a job: resumes after a broken connection, and renames the file when it is complete."""

import hashlib
import http.client
import time
from collections.abc import Iterator
from pathlib import Path

from trainyard._client.calls import Calls, RetryState
from trainyard._client.errors import ApiError, BrokenContent, Unreachable

UNFINISHED, TAG = ".trainyard-part", ".trainyard-etag"  # ends of names that no file of a job has
_PIECE = 1024 * 1024


def download(calls: Calls, url: str, to: Path, *, sha256: str = "") -> Path:
    """Save ``url`` as the file ``to``; a partial file beside it is resumed by a later call.

    ``sha256`` is the recorded hash of the whole file, where the caller knows it.

    Raises Unreachable when it breaks repeatedly, BrokenContent when the content differs from what the server recorded.
    """
    unfinished, tag_file = to.with_name(f".{to.name}{UNFINISHED}"), to.with_name(f".{to.name}{TAG}")
    tries = RetryState(calls.patience)
    while True:
        before = _size(unfinished)
        try:
            tag = _fetch(calls, url, unfinished, tag_file)
            break
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status == 416:
                _forget(unfinished, tag_file)  # longer than the current file: it belongs to another version
                continue
            if _size(unfinished) > before:
                tries = RetryState(calls.patience)  # progress resets the retries
            time.sleep(tries.pause(error))
    _check(unfinished, tag_file, sha256 or tag.strip('"'))
    tag_file.unlink(missing_ok=True)
    return unfinished.rename(to)


def pieces(response: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """The content as it arrives. Raises Unreachable where it breaks off: a short body looks like its end."""
    announced, taken = response.headers.get("Content-Length"), 0
    try:
        while piece := response.read(_PIECE):
            taken += len(piece)
            yield piece
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"the download of {url} broke: {error}") from error
    if announced is not None and taken != int(announced):
        raise Unreachable(f"the download of {url} broke after {taken} of {announced} bytes")


def _fetch(calls: Calls, url: str, unfinished: Path, tag_file: Path) -> str:
    """Fetch the missing part; returns the entity tag of the whole file."""
    have = _size(unfinished)
    known = tag_file.read_text() if have and tag_file.exists() else ""
    headers = {"Range": f"bytes={have}-", "If-Range": known} if known else {}
    with calls.http.open("GET", url, headers=headers) as response:
        tag = response.headers.get("ETag") or ""
        goes_on = response.status == 206
        tag_file.write_text(tag)
        with unfinished.open("ab" if goes_on else "wb") as file:
            for piece in pieces(response, url):
                file.write(piece)
    return tag


def _check(unfinished: Path, tag_file: Path, expected: str) -> None:
    """A Trainyard server's entity tag is the SHA-256 of the file."""
    if len(expected) != 64:
        return
    with unfinished.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        _forget(unfinished, tag_file)
        raise BrokenContent(f"{unfinished.name[1 : -len(UNFINISHED)]} arrived with the SHA-256 {found}, not {expected}")


def _forget(*files: Path) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
