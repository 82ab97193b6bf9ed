"""Takes a body in chunks apart (RFC 9112, section 7.1), as many chunks at once as have come."""

import re

_LONGEST_LINE = 64
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_END = b"\r\n"


class BadChunk(ValueError):
    """What came is no body in chunks, or has extensions or trailers, which no engine sends.

    ``content``: what the same piece has of the body before that.
    """

    content = b""


class Chunks:
    """One body; `is_complete` once its last chunk has come."""

    def __init__(self) -> None:
        self._rest = b""  # of a line that has not come whole
        self._left = 0  # bytes of the current chunk that are still to come
        self._is_after_data = False
        self._is_after_last = False
        self.is_complete = False

    def feed(self, piece: bytes) -> bytes:
        """The content of what has come. Raises BadChunk, also for anything behind the body."""
        if self._rest:
            piece, self._rest = self._rest + piece, b""
        found: list[bytes] = []
        try:
            self._divide(piece, found)
        except BadChunk as error:
            error.content = b"".join(found)
            raise
        return found[0] if len(found) == 1 else b"".join(found)

    def _divide(self, piece: bytes, found: list[bytes]) -> None:
        at = 0
        while at < len(piece):
            if self._left:
                found.append(piece[at : at + self._left])
                at += len(found[-1])
                self._left -= len(found[-1])
                self._is_after_data = not self._left
                continue
            end = piece.find(_END, at, at + _LONGEST_LINE)
            if end < 0:
                self._keep(piece[at:])
                break
            self._take(piece[at:end])
            at = end + len(_END)

    def _keep(self, rest: bytes) -> None:
        if len(rest) >= _LONGEST_LINE or self.is_complete:
            raise BadChunk("a line is too long, or follows the body")
        self._rest = rest

    def _take(self, line: bytes) -> None:
        """A line between the contents of two chunks, or behind the last."""
        if self.is_complete:
            raise BadChunk("a line follows the body")
        if self._is_after_data or self._is_after_last:
            if line:
                raise BadChunk("a chunk does not end with its size, or trailers follow")
            self._is_after_data, self.is_complete = False, self._is_after_last
            return
        if _SIZE.fullmatch(line) is None:
            raise BadChunk("the size of a chunk is no hexadecimal number")
        self._left = int(line, 16)
        self._is_after_last = not self._left
