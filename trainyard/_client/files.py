"""The client's calls about files: uploads whole or in parts, downloads, lists."""

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from trainyard import records
from trainyard._client.calls import Calls, query_of
from trainyard._client.downloads import download, pieces
from trainyard._client.errors import ClientError
from trainyard._client.http import Content, quote
from trainyard._client.plain_calls import PlainCalls
from trainyard._client.waiting import poll

PART_BYTES = 64 * 1024 * 1024  # a larger file is sent in parts: a broken connection repeats one of them
INSPECTED = ("processed", "error")
_PIECE = 1024 * 1024
_PAGE = 1000


class Files:
    """Files of a project: data for trainings and batches. Answers are OpenAI's file objects."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._plain = PlainCalls(calls)

    def put(
        self, path: Path | str, purpose: str = "fine-tune", *, expires_seconds: int | None = None
    ) -> records.StoredFile:
        """Upload a file, in parts if it is large. It is usable once it is ``processed``: see ``wait``.

        ``expires_seconds`` (one hour to 30 days) deletes it by itself.
        """
        path = Path(path)
        size = path.stat().st_size
        expires = {"anchor": "created_at", "seconds": expires_seconds} if expires_seconds else None
        if size > PART_BYTES:
            return self._put_in_parts(path, size, purpose, expires)
        fields = {"purpose": purpose}
        if expires:
            fields |= {f"expires_after[{name}]": str(value) for name, value in expires.items()}
        return cast("records.StoredFile", self._send_part("/v1/files", "file", path, fields, (0, size)))

    def get(self, file_id: str) -> records.StoredFile:
        return cast("records.StoredFile", self._plain.send("GET", _file(file_id)))

    def list(self, *, purpose: str = "", sha256: str = "") -> Iterator[records.StoredFile]:
        """Newest first, page after page; with ``sha256`` those that have this content."""
        pages = self._plain.items("/v1/files", page_size=_PAGE, query=query_of(purpose=purpose, sha256=sha256))
        return cast("Iterator[records.StoredFile]", pages)

    def download(self, file_id: str, to: Path) -> Path:
        """Save the content as the file ``to``, which appears when it is complete. A broken download is resumed."""
        return download(self._calls, f"{_file(file_id)}/content", to)

    def content(self, file_id: str) -> Iterator[bytes]:
        """The content in pieces, as it arrives. Raises Unreachable where it breaks off."""
        url = f"{_file(file_id)}/content"
        with self._calls.http.open("GET", url) as response:
            yield from pieces(response, url)

    def delete(self, file_id: str) -> None:
        """Raises Conflict while a job that has not ended needs it."""
        self._plain.send("DELETE", _file(file_id))

    def wait(
        self, file_id: str, *, timeout_seconds: float = float("inf"), poll_seconds: float = 0.5
    ) -> records.StoredFile:
        """The file once it is inspected: ``status`` is ``processed``, or ``error`` with ``status_details``."""
        return poll(
            lambda _most_seconds: self.get(file_id),
            lambda file: file["status"] in INSPECTED,
            f"file {file_id} has not been inspected",
            timeout_seconds=timeout_seconds,
            poll_seconds=poll_seconds,
        )

    def _put_in_parts(
        self, path: Path, size: int, purpose: str, expires: Mapping[str, Any] | None
    ) -> records.StoredFile:
        body = {"filename": path.name, "purpose": purpose, "bytes": size, "mime_type": "application/jsonl"}
        upload = self._plain.send("POST", "/v1/uploads", body=body | ({"expires_after": expires} if expires else {}))
        place = f"/v1/uploads/{quote(upload['id'])}"
        try:
            parts = [
                self._send_part(f"{place}/parts", "data", path, {}, (start, min(PART_BYTES, size - start)))["id"]
                for start in range(0, size, PART_BYTES)
            ]
            with path.open("rb") as file:
                md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
            done = self._plain.send("POST", f"{place}/complete", body={"part_ids": parts, "md5": md5})
        except BaseException:
            self._give_up(place)
            raise
        return cast("records.StoredFile", done["file"])

    def _give_up(self, place: str) -> None:
        """Parts of an upload that is not completed are deleted after an hour, those of a cancelled one at once."""
        try:
            self._calls.http.open("POST", f"{place}/cancel", timeout_seconds=5).close()
        except ClientError:
            return

    def _send_part(
        self, place: str, name: str, path: Path, fields: Mapping[str, str], span: tuple[int, int]
    ) -> dict[str, Any]:
        """Send the bytes of ``span`` (start, count) as the multipart field ``name``, after ``fields``."""
        boundary, (start, count) = uuid.uuid4().hex, span
        filename = path.name.replace("\\", "%5C").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        texts = [_field(boundary, f'name="{each}"', value) for each, value in fields.items()]
        head = "".join(texts) + _field(boundary, f'name="{name}"; filename="{filename}"', None)
        before, after = head.encode(errors="surrogateescape"), f"\r\n--{boundary}--\r\n".encode()

        def body() -> Content:
            kind = f"multipart/form-data; boundary={boundary}"
            return Content(kind, len(before) + count + len(after), _around(before, path, start, count, after))

        return dict(self._plain.retried(lambda: ("POST", place, body())))


def _file(file_id: str) -> str:
    return f"/v1/files/{quote(file_id)}"


def _field(boundary: str, names: str, value: str | None) -> str:
    """The beginning of a field of a form, or all of it; None: a file, whose content follows."""
    kind = "\r\nContent-Type: application/octet-stream" if value is None else ""
    text = "" if value is None else f"{value}\r\n"
    return f"--{boundary}\r\nContent-Disposition: form-data; {names}{kind}\r\n\r\n{text}"


def _around(before: bytes, path: Path, start: int, count: int, after: bytes) -> Iterator[bytes]:
    """Raises ClientError for a file that has become shorter: the server must not wait for what does not come."""
    yield before
    with path.open("rb") as file:
        file.seek(start)
        while count:
            piece = file.read(min(_PIECE, count))
            if not piece:
                raise ClientError(f"{path} became shorter while it was sent")
            count -= len(piece)
            yield piece
    yield after
