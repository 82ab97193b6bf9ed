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
from app.domain.spec.section import Section


class FieldVerdict(StrEnum):
    ACTED_ON = "acted on"
    REFUSED = "refused"
    WARNED = "ignored, with a warning"


@dataclass(frozen=True)
class FieldRule:
    """``note``: the field's effect, the reason for its refusal and the alternative, or why it has no effect."""

    verdict: FieldVerdict
    note: str


# Dotted path of a field, without the indices of lists → its rule.
Table = Mapping[str, FieldRule]


def acted_on(note: str) -> FieldRule:
    return FieldRule(FieldVerdict.ACTED_ON, note)


def refused(note: str) -> FieldRule:
    return FieldRule(FieldVerdict.REFUSED, note)


def warned(note: str) -> FieldRule:
    return FieldRule(FieldVerdict.WARNED, note)


def field_paths(schema: Schema, above: str = "") -> Iterator[str]:
    """Dotted paths of all leaf fields of the schema; a list has the path of its items, a free object is a leaf."""
    for attribute, field in schema.fields.items():
        inner = field.inner if isinstance(field, fields.List) else field
        path = f"{above}.{field.data_key or attribute}".lstrip(".")
        if isinstance(inner, fields.Nested):
            yield from field_paths(inner.schema, path)
        else:
            yield path


def refuse(document: Mapping[str, Any] | Section, table: Table) -> None:
    """Raises BadSpec for the first refused field that the document sets."""
    for path, where in _set_fields(document, table, FieldVerdict.REFUSED):
        raise BadSpec(f"is refused: {table[path].note}", field=where)


def warnings_of(document: Mapping[str, Any] | Section, table: Table) -> list[str]:
    """A warning ``field: reason`` for each ignored field that the document sets, in document order."""
    found = [warning(path, table[path].note) for path, _ in _set_fields(document, table, FieldVerdict.WARNED)]
    return list(dict.fromkeys(found))


def warning(field: str, reason: str) -> str:
    return f"{field}: {reason}"


def _set_fields(
    document: Mapping[str, Any] | Section, table: Table, verdict: FieldVerdict
) -> Iterator[tuple[str, str]]:
    """(path in the table, path with indices) of every set value with this verdict, outer ones first.

    ``null``, ``false`` and empty values count as unset.
    """
    paths, parts = _paths(_Same(table), verdict)
    if paths:
        yield from ((path, where) for path, where in _walk(document, parts) if path in paths)


@dataclass(frozen=True, eq=False)
class _Same:
    """A table as a key of a cache: it equals only itself."""

    table: Table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.table is self.table


@lru_cache(maxsize=128)
def _paths(given: _Same, verdict: FieldVerdict) -> tuple[frozenset[str], frozenset[str]]:
    """The paths with this verdict, and with them those of the objects that they are in: nothing else of a document
    needs to be looked at.
    """
    paths = frozenset(path for path, rule in given.table.items() if rule.verdict is verdict)
    words = (path.split(".") for path in paths)
    return paths, frozenset(".".join(each[:length]) for each in words for length in range(1, len(each) + 1))


def _walk(node: object, parts: frozenset[str], path: str = "", where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, Section):
        node = {name: getattr(node, name) for name in node.given}
    if node is None or node is False or (isinstance(node, str | list | tuple | Mapping) and not node):
        return
    if path:
        yield path, where
    if isinstance(node, Mapping):
        for name, value in node.items():
            inner = f"{path}.{name}" if path else name
            if inner in parts:
                yield from _walk(value, parts, inner, f"{where}.{name}" if where else name)
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            if isinstance(value, Mapping | Section):
                yield from _walk(value, parts, path, f"{where}.{number}")
