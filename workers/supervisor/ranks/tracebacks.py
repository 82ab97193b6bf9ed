"""Finds, in a script's last lines, the exception that ended it and the line of the script that raised it; pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath

MAX_SHOWN = 500  # characters of the exception's own line
_START = re.compile(r"\s*Traceback \(most recent call last\):\s*")
_FRAME = re.compile(r'\s*File "([^"]{1,4096})", line (\d{1,9})(?:, in .*)?')
_CLASS = r"(?:[A-Za-z_]\w*\.){0,20}"
_EXCEPTION = re.compile(
    _CLASS + r"(?:\w*(?:Error|Exception|Warning|Interrupt|Exit|Group|Iteration|Timeout)|[a-z]*error|timeout)(?::.*)?"
)
# A class of another name only directly after the frames: other processes may print between them and the exception.
_OTHER = re.compile(rf"(?:{_CLASS}[A-Z]\w*|(?:[A-Za-z_]\w*\.){{1,20}}\w+)(?::.*)?")
_RANK = re.compile(r"(?:\[(?:rank|default)\d{1,9}\]: ?){1,2}")  # torch's, before each line
_GROUP = re.compile(r" {2}[+|] (.*)")
_IN_GROUP = re.compile(r" {4,}[+|]| {2}\+-")  # exceptions of a group
_LOGGED = re.compile(r"(?:\[rank\d{1,9}\]:)?\[[IWE]\d{3,4} ")  # what torch says at the end of a process
_CONTROL = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|\x1b\][^\x07]{0,200}\x07|[\x00-\x1f\x7f-\x9f]")
_MOST_READ = 10_000  # characters of a line
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|/trainyard/_\w+\.py$|^<frozen ")


@dataclass(frozen=True)
class Raised:
    """``line`` is the last of the traceback; ``place`` is that of the last frame outside of libraries: train.py:12.

    ``is_end``: the script printed nothing else afterwards, or torch's hook for uncaught exceptions wrote it.
    """

    line: str
    place: str
    is_end: bool = True

    def __str__(self) -> str:
        line = self.line if len(self.line) <= MAX_SHOWN else f"{self.line[: MAX_SHOWN - 1]}…"
        return f"{line} ({self.place})"


def last_raised(lines: Iterable[str]) -> Raised | None:
    """The exception of the last traceback; of chained exceptions that is the last one. None without a traceback."""
    reader = _Reader()
    for line in lines:
        reader.take(line[:_MOST_READ])
    return reader.found()


class _Reader:
    def __init__(self) -> None:
        self._found: Raised | None = None
        self._other: Raised | None = None  # unless one follows that is an exception by its name
        self._frames: list[tuple[str, str]] = []
        self._is_directly_after = self._is_uncaught = False

    def take(self, line: str) -> None:
        if _LOGGED.match(line) or _IN_GROUP.match(line):
            return
        rank = _RANK.match(line)
        text = line[rank.end() :] if rank is not None else line
        text = inner[1] if (inner := _GROUP.fullmatch(text)) else text
        if _START.fullmatch(text.removeprefix("Exception Group ")):
            self._end()
            self._follows()
            # Only its hook for uncaught exceptions writes "rank".
            self._is_uncaught = rank is not None and "rank" in rank[0]
        elif frame := _FRAME.fullmatch(text):
            self._frames.append((frame[1], frame[2]))
            self._is_directly_after = True
        elif self._frames and _EXCEPTION.fullmatch(text):
            self._found, self._other, self._frames = self._raised(text), None, []
        elif self._frames and self._is_directly_after and _OTHER.fullmatch(text):
            self._other, self._is_directly_after = self._raised(text), False
        elif text.strip() and not (self._frames and text.startswith(" ")):
            self._is_directly_after = False
            self._follows()

    def found(self) -> Raised | None:
        self._end()
        return self._found

    def _raised(self, text: str) -> Raised:
        return Raised(_CONTROL.sub("", text).rstrip(), _place(self._frames))

    def _follows(self) -> None:
        if self._is_uncaught:
            return
        if self._other is not None:
            self._other = replace(self._other, is_end=False)
        elif self._found is not None and not self._frames:
            self._found = replace(self._found, is_end=False)

    def _end(self) -> None:
        self._found, self._other, self._frames = self._other or self._found, None, []


def with_place(message: str, stack: str) -> str:
    """The message of an exception, with the place that its stack names at the end of its first line."""
    raised = last_raised(stack.splitlines())
    if raised is None or not message:
        return message
    first, newline, rest = message.partition("\n")
    return f"{first} ({raised.place}){newline}{rest}"


def _place(frames: list[tuple[str, str]]) -> str:
    own = [frame for frame in frames if not _LIBRARIES.search(frame[0])]
    file, number = (own or frames)[-1]
    return f"{PurePath(file).name}:{number}"
