"""Inspection of an uploaded file's content: its shape, its number of records, and what is wrong with them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app.domain.files import shapes
from app.domain.files.lines import BOM, BadLine, Line, lines, record_of
from app.domain.files.shapes import BATCH, MESSAGES, PROMPTS, Record

MOST_PROBLEMS = 100
MOST_BATCH_LINES = 50_000
LONGEST_PROBLEM = 300
TOO_MANY_REQUESTS = f"a batch has at most {MOST_BATCH_LINES:,} requests"
EMPTY = "the file has no records"
_UNSTORABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class BadContent(Exception):
    """The content can't be read to its end; what was found before counts, too."""


@dataclass
class Inspected:
    """What is known of a file; it is valid if there are no ``problems``."""

    records: int = 0
    shape: str | None = None
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"records": self.records, "shape": self.shape, "problems": self.problems}


def inspect(chunks: Iterable[bytes], purpose: str, line_max_bytes: int) -> Inspected:
    """Inspect the content, which arrives in ``chunks``; ends early at MOST_PROBLEMS."""
    inspector = _Inspector(purpose, line_max_bytes)
    try:
        for line in lines(chunks, line_max_bytes):
            inspector.add(line)
            if inspector.is_full:
                break
    except BadContent as error:
        inspector.note(str(error))
    return inspector.result()


def shown(problem: str) -> str:
    """A problem as it can be stored and shown: it may quote the file."""
    text = _UNSTORABLE.sub("\ufffd", problem)
    return text if len(text) <= LONGEST_PROBLEM else f"{text[: LONGEST_PROBLEM - 1]}…"


def first_of(problems: str) -> str:
    """The first of the problems, one a line, and how many more there are: for an error of one line."""
    first, *others = problems.split("\n")
    return f"{first} (and {len(others)} more)" if others else first


class _Inspector:
    def __init__(self, purpose: str, line_max_bytes: int) -> None:
        self._purpose = purpose
        self._line_max_bytes = line_max_bytes
        self._found = Inspected()
        self._shape_line = 0  # the first line that says the file's shape for certain
        self._ids: dict[str, int] = {}  # custom_id → line
        self._url: object = None

    @property
    def is_full(self) -> bool:
        return len(self._found.problems) >= MOST_PROBLEMS

    def note(self, problem: str) -> None:
        if not self.is_full:
            self._found.problems.append(shown(problem))

    def add(self, line: Line) -> None:
        content = line.content
        if line.number == 1 and content.startswith(BOM):
            self.note("line 1: begins with a byte order mark; save the file as UTF-8 without one")
            content = content[len(BOM) :]
        if line.is_too_long:
            self._note_too_long(line)
            return
        try:
            record = record_of(content)
        except BadLine as error:
            self.note(f"line {line.number}: {error}")
            return
        self._found.records += 1
        self._judge(record, line.number)

    def result(self) -> Inspected:
        if not self._found.records and not self._found.problems:
            self.note(EMPTY)
        return self._found

    def _note_too_long(self, line: Line) -> None:
        if b"\r" in line.content.rstrip(b"\r"):
            self.note(f"line {line.number}: contains CR: end lines with LF or CRLF, not with CR alone")
        else:
            self.note(f"line {line.number}: is longer than {self._line_max_bytes:,} bytes")

    def _judge(self, record: Record, number: int) -> None:
        shape = shapes.shape_of(record, self._purpose)
        for where, problem in shapes.problems(record, shape):
            self.note(f"line {number}: {where}: {problem}" if where else f"line {number}: {problem}")
        if shape == BATCH:
            self._judge_batch(record, number)
        if shape is not None:
            self._judge_shape(record, shape, number)

    def _judge_shape(self, record: Record, shape: str, number: int) -> None:
        """One file has one shape. Conversations that end with a question suit examples and prompts."""
        expected = self._found.shape
        is_certain = shape != MESSAGES or not shapes.is_either(record)
        if expected is None or (is_certain and not self._shape_line and {expected, shape} <= {MESSAGES, PROMPTS}):
            self._found.shape = shape
            self._shape_line = number if is_certain else 0
        elif shape == PROMPTS and expected == MESSAGES:
            self.note(
                f"line {number}: messages: has no turn of the assistant to learn; line {self._shape_line} has one"
            )
        elif shape == MESSAGES and expected == PROMPTS:
            if is_certain:
                self.note(
                    f"line {number}: messages: ends with a turn of the assistant; line {self._shape_line} has none"
                )
        elif shape != expected:
            self.note(f"line {number}: has the shape {shape}; the records before have the shape {expected}")

    def _judge_batch(self, record: Record, number: int) -> None:
        if self._found.records == MOST_BATCH_LINES + 1:
            self.note(f"line {number}: {TOO_MANY_REQUESTS}")
        custom_id, url = record.get("custom_id"), record.get("url")
        if isinstance(custom_id, str):
            first = self._ids.setdefault(custom_id[: shapes.LONGEST_CUSTOM_ID + 1], number)
            if first != number:
                self.note(f"line {number}: custom_id: {custom_id[:64]!r} is the one of line {first}, too")
        if self._url is None:
            self._url = url
        elif url != self._url and url in shapes.BATCH_URLS:
            self.note(f"line {number}: url: must be the one of the lines before, {self._url}")
