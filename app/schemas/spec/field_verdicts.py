"""How each request field is handled: acted on, refused, or ignored with a warning. One table per dialect.

The tables are authoritative: `refuse` and `warnings_of` apply them to every submission,
`docs/reference/compatibility.md` is generated from them, and a test fails for a schema field without an entry.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from marshmallow import Schema, fields

from app.domain.errors import BadSpec


class Verdict(StrEnum):
    ACTED_ON = "acted on"
    REFUSED = "refused"
    WARNED = "ignored, with a warning"


@dataclass(frozen=True)
class FieldRule:
    """``note``: the field's effect, the reason for its refusal and the alternative, or why it has no effect."""

    verdict: Verdict
    note: str


# Dotted path of a field, without the indices of lists → its rule.
Table = Mapping[str, FieldRule]


def acted_on(note: str) -> FieldRule:
    return FieldRule(Verdict.ACTED_ON, note)


def refused(note: str) -> FieldRule:
    return FieldRule(Verdict.REFUSED, note)


def warned(note: str) -> FieldRule:
    return FieldRule(Verdict.WARNED, note)


def field_paths(schema: Schema, above: str = "") -> Iterator[str]:
    """Dotted paths of all leaf fields of the schema; a list has the path of its items, a free object is a leaf."""
    for attribute, field in schema.fields.items():
        inner = field.inner if isinstance(field, fields.List) else field
        path = f"{above}.{field.data_key or attribute}".lstrip(".")
        if isinstance(inner, fields.Nested):
            yield from field_paths(inner.schema, path)
        else:
            yield path


def refuse(document: Mapping[str, Any], table: Table) -> None:
    """Raises BadSpec for the first refused field that the document sets."""
    for path, where in _set_fields(document, table, Verdict.REFUSED):
        raise BadSpec(f"is refused: {table[path].note}", field=where)


def warnings_of(document: Mapping[str, Any], table: Table) -> list[str]:
    """A warning ``field: reason`` for each ignored field that the document sets, in document order."""
    found = [warning(path, table[path].note) for path, _ in _set_fields(document, table, Verdict.WARNED)]
    return list(dict.fromkeys(found))


def warning(field: str, reason: str) -> str:
    return f"{field}: {reason}"


def _set_fields(document: Mapping[str, Any], table: Table, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """(path in the table, path with indices) of every set value with this verdict, outer ones first.

    ``null``, ``false`` and empty values count as unset.
    """
    paths = tuple(path for path, rule in table.items() if rule.verdict is verdict)
    if not paths:
        return
    parts = _with_outer(paths)
    yield from ((path, where) for path, where in _walk(document, parts) if path in paths)


@lru_cache(maxsize=128)
def _with_outer(paths: tuple[str, ...]) -> frozenset[str]:
    """The paths and those of the objects that they are in: nothing else of a document needs to be looked at."""
    words = (path.split(".") for path in paths)
    return frozenset(".".join(each[:length]) for each in words for length in range(1, len(each) + 1))


def _walk(node: object, parts: frozenset[str], path: str = "", where: str = "") -> Iterator[tuple[str, str]]:
    if node is None or node is False or (isinstance(node, str | list | Mapping) and not node):
        return
    if path:
        yield path, where
    if isinstance(node, Mapping):
        for name, value in node.items():
            inner = f"{path}.{name}".lstrip(".")
            if inner in parts:
                yield from _walk(value, parts, inner, f"{where}.{name}".lstrip("."))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            if isinstance(value, Mapping):
                yield from _walk(value, parts, path, f"{where}.{number}")
