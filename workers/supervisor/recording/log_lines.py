"""Splits the raw output of a rank into lines: ordinary ones all at once, those that need care one by one."""

MAX_LINE_BYTES = 16 * 1024
CUT_MARK = " … [trainyard: line cut at 16 KiB]"


class LineSplitter:
    """Cuts a rank's bytes into lines of bounded length; an incomplete line waits for the rest."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._cut = False  # the rest of the current line is dropped
        self._returned = False  # the last byte was a carriage return

    def feed_ordinary(self, data: bytes) -> str | None:
        """The complete lines, each with its newline; None if one needs care: then nothing was taken, and ``feed`` is
        to be called.
        """
        if self._cut or self._returned or b"\r" in data:
            return None
        end = data.rfind(b"\n") + 1
        lines, rest = self._rest + data[:end] if end else b"", data[end:]
        if not end or len(rest) > MAX_LINE_BYTES or _has_long_line(lines):
            return None
        self._rest = bytearray(rest)
        return _text(lines)

    def feed(self, data: bytes) -> list[str]:
        """The complete lines, without their newlines."""
        *lines, rest = data.split(b"\n")
        done = []
        for line in lines:
            self._add(line)
            done.append(self._complete())
        self._add(rest)
        return done

    def flush(self) -> list[str]:
        """The last line when it had no end."""
        return [self._complete()] if self._rest else []

    def _add(self, piece: bytes) -> None:
        """A progress bar redraws its line; keep what a terminal would show at the end."""
        drawn = piece.rstrip(b"\r")
        if drawn:
            _, redrawn, last = drawn.rpartition(b"\r")
            if redrawn or self._returned:
                self._rest.clear()
                self._cut = False
            room = MAX_LINE_BYTES - len(self._rest)
            self._rest += last[:room]
            self._cut = self._cut or len(last) > room
        if piece:
            self._returned = drawn != piece

    def _complete(self) -> str:
        text = _text(self._rest)
        mark = CUT_MARK if self._cut else ""
        self._rest.clear()
        self._cut = self._returned = False
        return text + mark


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace").replace("\0", "�")


def _has_long_line(lines: bytes | bytearray) -> bool:
    """Whether a line is longer than the limit; searches only where one could end."""
    start = 0
    while len(lines) - start > MAX_LINE_BYTES + 1:
        newline = lines.rfind(b"\n", start, start + MAX_LINE_BYTES + 1)
        if newline < 0:
            return True
        start = newline + 1
    return False
