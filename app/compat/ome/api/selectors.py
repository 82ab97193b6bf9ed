"""labelSelector and fieldSelector of Kubernetes. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.errors import InvalidRequest

Object = Mapping[str, Any]
_SET = re.compile(r"([^\s,!=()]+)\s+(in|notin)\s+\(([^()]*)\)")
_EQUAL = re.compile(r"([^\s,!=()]+)\s*(==|=|!=)\s*([^\s,()]*)")
_EXISTS = re.compile(r"(!?)([^\s,!=()]+)")
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "status.phase",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "involvedObject.kind",
    "spec.nodeName",
    "reason",
    "type",
)


@dataclass(frozen=True, kw_only=True)
class ObjectSelection:
    """Whether an object is selected. ``labels`` and ``fields`` are the values that `=` requires, by key."""

    conditions: Sequence[Callable[[Object], bool]]
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    def __call__(self, found: Object) -> bool:
        return all(condition(found) for condition in self.conditions)


def selected(label_selector: str, field_selector: str) -> ObjectSelection:
    """Raises InvalidRequest for an invalid selector."""
    labels, fields = _parts(label_selector), _parts(field_selector)
    return ObjectSelection(
        conditions=[*map(_of_labels, labels), *map(_of_fields, fields)],
        labels=_equalities(labels),
        fields=_equalities(fields),
    )


def _equalities(parts: Sequence[str]) -> dict[str, str]:
    found = (_EQUAL.fullmatch(part) for part in parts)
    return {each[1]: each[3] for each in found if each is not None and each[2] != "!="}


def _parts(selector: str) -> list[str]:
    """Split at commas outside of parentheses."""
    parts = re.split(r",(?![^()]*\))", selector)
    return [part.strip() for part in parts if part.strip()]


def _of_labels(part: str) -> Callable[[Object], bool]:
    if found := _SET.fullmatch(part):
        key, word, values = found[1], found[2], {each.strip() for each in found[3].split(",")}
        return lambda each: (_label(each, key) in values) == (word == "in")
    if found := _EQUAL.fullmatch(part):
        key, word, value = found.groups()
        return lambda each: (_label(each, key) == value) == (word != "!=")
    if found := _EXISTS.fullmatch(part):
        no, key = found.groups()
        return lambda each: (_label(each, key) is not None) == (not no)
    message = f"{part[:64]!r} is not a requirement such as team=a, team!=a or team in (a,b)"
    raise InvalidRequest(message, field="labelSelector")


def _of_fields(part: str) -> Callable[[Object], bool]:
    found = _EQUAL.fullmatch(part)
    if found is None or found[1] not in _FIELDS:
        message = f"{part[:64]!r} is not a requirement such as metadata.name=x; fields: {', '.join(_FIELDS)}"
        raise InvalidRequest(message, field="fieldSelector")
    path, word, value = found[1].split("."), found[2], found[3]
    return lambda each: (_at(each, path) == value) == (word != "!=")


def _label(found: Object, key: str) -> str | None:
    labels: Mapping[str, str] = found["metadata"].get("labels") or {}
    return labels.get(key)


def _at(found: object, path: list[str]) -> str:
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return "" if found is None else str(found)
