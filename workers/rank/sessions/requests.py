"""What the first line of a connection to the session server may ask. Standard library only."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_WORDS = 4096
MOST_CELLS = 4096  # rows or columns of a terminal
DEFAULT_TERM = "xterm-256color"
NOTEBOOK = 0  # the port that stands for the job's notebook server, wherever it listens
_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


class BadSessionRequest(ValueError):
    """The first line is no request; the message says why."""


@dataclass(frozen=True)
class Exec:
    """``command`` empty: a shell."""

    rank: int
    command: tuple[str, ...]
    tty: bool
    rows: int
    columns: int
    term: str


@dataclass(frozen=True)
class Connect:
    port: int


def parse(line: bytes) -> Exec | Connect:
    """Raises BadSessionRequest."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadSessionRequest("the first line is no JSON") from error
    if not isinstance(document, dict):
        raise BadSessionRequest("the first line is no JSON object")
    if document.get("type") == "exec":
        return _exec(document)
    if document.get("type") == "connect":
        port = document.get("port")
        if not isinstance(port, int) or not _is_number(port, NOTEBOOK, 65535):
            raise BadSessionRequest("port: a number from 1 to 65535, or 0 for the notebook")
        return Connect(port)
    raise BadSessionRequest("type: exec or connect")


def _exec(document: Mapping[str, Any]) -> Exec:
    command, rank = document.get("command", []), document.get("rank", 0)
    if not isinstance(command, list) or not all(map(_is_word, command)):
        raise BadSessionRequest("command: a list of words")
    if len(command) > MOST_WORDS or (command and not command[0]):
        raise BadSessionRequest(f"command: at most {MOST_WORDS} words, of which the first is not empty")
    if not _is_number(rank, 0, 1 << 30):
        raise BadSessionRequest("rank: a number")
    tty, term = document.get("tty", False), document.get("term") or DEFAULT_TERM
    if not isinstance(tty, bool):
        raise BadSessionRequest("tty: true or false")
    if not isinstance(term, str) or not _TERM.fullmatch(term):
        raise BadSessionRequest("term: the name of a terminal, such as xterm-256color")
    rows, columns = size_of(document)
    return Exec(rank=rank, command=tuple(command), tty=tty, rows=rows, columns=columns, term=term)


def size_of(document: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns of a terminal. Raises BadSessionRequest."""
    rows, columns = document.get("rows", 24), document.get("columns", 80)
    if not _is_number(rows, 1, MOST_CELLS) or not _is_number(columns, 1, MOST_CELLS):
        raise BadSessionRequest(f"rows and columns: numbers from 1 to {MOST_CELLS}")
    return rows, columns


def _is_word(value: object) -> bool:
    """Whether a program can be given it."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        return False
    return True


def _is_number(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
