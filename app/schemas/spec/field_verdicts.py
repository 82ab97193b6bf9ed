"""How each request field is handled: acted on, refused, or ignored with a warning. One table per dialect.

The tables are authoritative: `refuse` and `warnings_of` apply them to every submission,
`docs/reference/compatibility.md` is generated from them, and a test fails for a schema field without an entry.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
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
    for path, where in _set_fields(document):
        rule = table.get(path)
        if rule is not None and rule.verdict is Verdict.REFUSED:
            raise BadSpec(f"is refused: {rule.note}", field=where)


def warnings_of(document: Mapping[str, Any], table: Table) -> list[str]:
    """A warning ``field: reason`` for each ignored field that the document sets, in document order."""
    rules = ((path, table.get(path)) for path, _ in _set_fields(document))
    found = [warning(path, rule.note) for path, rule in rules if rule is not None and rule.verdict is Verdict.WARNED]
    return list(dict.fromkeys(found))


def warning(field: str, reason: str) -> str:
    return f"{field}: {reason}"


def _set_fields(node: object, path: str = "", where: str = "") -> Iterator[tuple[str, str]]:
    """(path in a table, path with indices) of every set value, outer ones first.

    ``null``, ``false`` and empty values count as unset.
    """
    if node is None or node is False or (isinstance(node, str | list | Mapping) and not node):
        return
    if path:
        yield path, where
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _set_fields(value, f"{path}.{name}".lstrip("."), f"{where}.{name}".lstrip("."))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            if isinstance(value, Mapping):
                yield from _set_fields(value, path, f"{where}.{number}")
