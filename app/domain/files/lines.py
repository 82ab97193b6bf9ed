"""Lines of a file of JSON Lines: read in bounded memory, and parsed, with an error that says what is wrong."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_WHITESPACE = b" \t\r"
_NOT_EMPTY = re.compile(rb"[^\n]+")


class BadLine(ValueError):
    """What a line must be."""


class Line(NamedTuple):
    number: int
    content: bytes  # only its beginning, if it is too long
    is_too_long: bool


def lines(chunks: Iterable[bytes], most_bytes: int) -> Iterator[Line]:
    """The lines that are not empty, without their ends; never holds more than a chunk and ``most_bytes``."""
    number, rest, is_too_long = 1, b"", False
    for chunk in chunks:
        done = 0  # up to here, `number` counts the ends of lines in the chunk
        for found in _NOT_EMPTY.finditer(chunk):
            start = found.start()
            if ends := chunk.count(b"\n", done, start):
                yield from _line(number, rest, is_too_long=is_too_long)
                number, rest, is_too_long, done = number + ends, b"", False, start
            piece = found[0]
            is_too_long = is_too_long or len(rest) + len(piece) > most_bytes
            rest = rest + piece[: most_bytes + 1 - len(rest)] if rest else piece[: most_bytes + 1]
        if ends := chunk.count(b"\n", done):
            yield from _line(number, rest, is_too_long=is_too_long)
            number, rest, is_too_long = number + ends, b"", False
    yield from _line(number, rest, is_too_long=is_too_long)


def record_of(content: bytes) -> dict[str, Any]:
    """The record of a line. Raises BadLine."""
    try:
        record = _DECODER.decode(content.decode())
    except UnicodeDecodeError as error:
        raise BadLine(_undecodable(content, error)) from error
    except BadLine:
        raise
    except RecursionError:
        raise BadLine("is nested too deeply") from None
    except ValueError as error:
        raise BadLine(_unparsable(content, error)) from error
    if type(record) is not dict:
        raise BadLine("must be a JSON object")
    if b"\\u" in content and (b"\\ud" in content or b"\\uD" in content):
        _check_characters(record)
    return record


def _line(number: int, content: bytes, *, is_too_long: bool) -> Iterator[Line]:
    if content.strip(_WHITESPACE):
        yield Line(number, content, is_too_long)


def _undecodable(content: bytes, error: UnicodeDecodeError) -> str:
    if content.startswith(_UTF_16):
        return "is UTF-16; save the file as UTF-8"
    return f"is not UTF-8: byte {error.start + 1} is 0x{content[error.start]:02x}"


def _unparsable(content: bytes, error: ValueError) -> str:
    if b"\x00" in content:
        return "contains NUL"
    if b"\r" in content.rstrip(_WHITESPACE):
        return "contains CR: end lines with LF or CRLF, not with CR alone"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: {error.msg} at character {error.pos + 1}"
    return f"has a number of more than {sys.get_int_max_str_digits():,} digits"  # no other error of values is left


def _check_characters(record: dict[str, Any]) -> None:
    """A surrogate without its pair is JSON, but no text can contain it."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadLine("contains an escape of half a character (\\ud800 to \\udfff)") from None


def _refuse_constant(name: str) -> None:
    raise BadLine(f"is not JSON: {name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
