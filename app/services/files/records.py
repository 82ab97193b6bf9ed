"""Counting the records of a file while it arrives: lines that are not empty."""

from io import BytesIO

from app.domain.files.content import GZIP, ZSTD

_BLANKS = b" \t\r\x0b\x0c"  # whitespace other than the end of a line
_SHORT_LINE = 64


class RecordCounter:
    """Given the content in pieces of any size. Fast enough not to slow down what stores it."""

    def __init__(self) -> None:
        self._head = b""
        self._count = 0
        self._is_in_line = False  # the last line has content, and no end yet
        self._are_short = False  # lines of the piece before: each costs more than its bytes

    def add(self, chunk: bytes | memoryview) -> None:
        if len(self._head) < 4:
            self._head = (self._head + bytes(chunk[:4]))[:4]
        if self._is_compressed():
            return
        if self._are_short:
            self._add_by_bytes(bytes(chunk))
        else:
            self._add_by_lines(chunk)

    def count(self) -> int | None:
        """Records so far; None for compressed content."""
        return None if self._is_compressed() else self._count

    def _add_by_lines(self, chunk: bytes | memoryview) -> None:
        lines = BytesIO(chunk).readlines()
        self._are_short = len(lines) * _SHORT_LINE > len(chunk)
        if not lines:
            return
        self._count += sum(map(bool, map(bytes.strip, lines)))
        if self._is_in_line and lines[0].strip():
            self._count -= 1
        has_content = bool(lines[-1].strip()) or (self._is_in_line and len(lines) == 1)
        self._is_in_line = has_content and not lines[-1].endswith(b"\n")

    def _add_by_bytes(self, chunk: bytes) -> None:
        content = chunk.translate(None, _BLANKS)
        self._are_short = content.count(b"\n") * _SHORT_LINE > len(chunk)
        if not content:
            return
        self._count += len(content.split())
        if self._is_in_line and not content.startswith(b"\n"):
            self._count -= 1
        self._is_in_line = not content.endswith(b"\n")

    def _is_compressed(self) -> bool:
        return self._head.startswith((GZIP, ZSTD))
