"""Reads rows of text formats: JSON Lines, JSON, CSV, and plain text with a record per line."""

import csv
import json
from collections.abc import Iterator
from typing import Any

from workers.trainers.data.opening import damaged, opened_text
from workers.trainers.data.sources import DataFile
from workers.trainers.failures import DataInvalid

# Larger records indicate a damaged file: a missing line break, or an unclosed quote.
MAX_RECORD_BYTES = 1 << 26
MAX_JSON_BYTES = 1 << 30
_BOM = b"\xef\xbb\xbf"

NumberedValues = Iterator[tuple[int, dict[str, Any]]]


def jsonl_rows(file: DataFile) -> NumberedValues:
    """One JSON object per line; blank lines are skipped."""
    for number, line in _lines(file, "jsonl"):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            hint = "; if the file is one JSON document, use format json" if number == 1 else ""
            raise DataInvalid(f"{file.name} line {number} is not JSON: {error}{hint}") from error
        if not isinstance(values, dict):
            raise DataInvalid(f"{file.name} line {number} is not a JSON object")
        yield number, values


def text_rows(file: DataFile) -> NumberedValues:
    """Each non-blank line is a text."""
    for number, line in _lines(file, "text"):
        yield number, {"text": line.rstrip("\r\n")}


def json_rows(file: DataFile) -> NumberedValues:
    """The objects of an array, or of the only list in an object; loaded as a whole."""
    for number, values in enumerate(_json_list(file), start=1):
        if not isinstance(values, dict):
            raise DataInvalid(f"{file.name} record {number} is not a JSON object")
        yield number, values


def csv_rows(file: DataFile) -> NumberedValues:
    """Comma-separated with a header line. `number` is the line on which a record begins."""
    csv.field_size_limit(MAX_RECORD_BYTES)
    reader = csv.reader(_unnumbered(file), strict=True)
    header: list[str] | None = None
    number = 1
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataInvalid(f"{file.name} line {number} is not CSV: {error}") from error
        if header is None:
            header = _header(file, fields)
        elif fields:
            yield number, _named(file, number, header, fields)
        number = reader.line_num + 1


def count_lines(file: DataFile, format_: str) -> int:
    """Number of non-blank lines."""
    return sum(1 for _ in _lines(file, format_))


def _header(file: DataFile, fields: list[str]) -> list[str]:
    names = [field.strip() for field in fields]
    if len(set(names)) < len(names) or not names:
        raise DataInvalid(f"{file.name} line 1 must name the columns, without duplicates; it has {names}")
    return names


def _named(file: DataFile, number: int, header: list[str], fields: list[str]) -> dict[str, Any]:
    if len(fields) != len(header):
        raise DataInvalid(f"{file.name} line {number} has {len(fields)} fields; line 1 names {len(header)} columns")
    return dict(zip(header, fields, strict=True))


def _json_list(file: DataFile) -> list[Any]:
    with opened_text(file, "json") as stream:
        try:
            data = stream.read(MAX_JSON_BYTES + 1)
        except OSError as error:
            raise damaged(file, error, "") from error
    if len(data) > MAX_JSON_BYTES:
        raise DataInvalid(f"{file.name} is larger than {MAX_JSON_BYTES >> 20} MiB, too large for json; use jsonl")
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataInvalid(f"{file.name} is not UTF-8 in line {line}: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise DataInvalid(f"{file.name} is not JSON: {error}") from error
    found = document if isinstance(document, list) else _only_list(document)
    if found is None:
        raise DataInvalid(f"{file.name} is neither an array of objects nor an object with one list of them")
    return found


def _only_list(document: object) -> list[Any] | None:
    if not isinstance(document, dict):
        return None
    lists = {key: value for key, value in document.items() if isinstance(value, list)}
    if len(lists) == 1:
        return next(iter(lists.values()))
    return lists.get("data")


def _unnumbered(file: DataFile) -> Iterator[str]:
    # The csv module counts lines itself, and a quoted line break belongs to its field: nothing is skipped here.
    return (line for _, line in _lines(file, "csv", blank=True))


def _lines(file: DataFile, format_: str, *, blank: bool = False) -> Iterator[tuple[int, str]]:
    """The lines with their numbers; without `blank`, lines of only white space are skipped."""
    with opened_text(file, format_) as stream:
        number = 0
        while True:
            try:
                line = stream.readline(MAX_RECORD_BYTES + 1)
            except OSError as error:
                raise damaged(file, error, f" after line {number}") from error
            if not line:
                return
            number += 1
            text = _decoded(file, number, line)
            if blank or not text.isspace():
                yield number, text


def _decoded(file: DataFile, number: int, line: bytes) -> str:
    if len(line) > MAX_RECORD_BYTES:
        raise DataInvalid(f"{file.name} line {number} is longer than {MAX_RECORD_BYTES >> 20} MiB")
    if number == 1:
        line = line.removeprefix(_BOM) or b"\n"
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise DataInvalid(
            f"{file.name} line {number} is not UTF-8: {error.reason} at byte {error.start + 1}"
        ) from error
    if "\0" in text:
        raise DataInvalid(f"{file.name} line {number} holds a NUL: the file is binary or damaged")
    return text
