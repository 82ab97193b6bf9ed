"""Tables of objects, which kubectl requests and prints. Pure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

Object = Mapping[str, Any]


class Tabulate(Protocol):
    def __call__(self, kind: str, objects: Sequence[Object], metadata: Object, *, now: datetime) -> dict[str, Any]: ...


def table_format(accept: str, include: str) -> Tabulate | None:
    """The function that makes the Table of an Accept header, None where it asks for plain objects.

    ``include``: the part of each object in its row: `None`, `Metadata` or `Object`.
    """
    return partial(_table_of, include=include) if "as=Table" in accept.partition(",")[0] else None


def _table_of(kind: str, objects: Sequence[Object], metadata: Object, *, now: datetime, include: str) -> dict[str, Any]:
    columns, cells = _COLUMNS.get(kind, _PLAIN)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": 0,
            }
            for name in (*columns, "Age")
        ],
        "rows": [
            {"cells": [*cells(each), _age(each["metadata"].get("creationTimestamp"), now)], **_INCLUDED[include](each)}
            for each in objects
        ],
    }


def condition_of(found: Object) -> str:
    """The type of the newest condition that is true."""
    holding = [each["type"] for each in found["status"]["conditions"] if each["status"] == "True"]
    return holding[-1] if holding else "Pending"


def _metadata(found: Object) -> Object:
    part = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": found["metadata"]}
    return {"object": part}


_INCLUDED: dict[str, Callable[[Object], Object]] = {
    "None": lambda _: {},
    "Metadata": _metadata,
    "Object": lambda found: {"object": found},
}


def _of_job(found: Object) -> list[str]:
    return [found["metadata"]["name"], condition_of(found), found["spec"]["runtimeRef"]["name"]]


def _of_pod(found: Object) -> list[str]:
    status = found["status"]
    container = status["containerStatuses"][0]
    return [found["metadata"]["name"], f"{int(container['ready'])}/1", status["phase"], str(container["restartCount"])]


def _name(found: Object) -> list[str]:
    return [found["metadata"]["name"]]


_PLAIN: tuple[tuple[str, ...], Callable[[Object], list[str]]] = (("Name",), _name)
_COLUMNS: dict[str, tuple[tuple[str, ...], Callable[[Object], list[str]]]] = {
    "TrainingJob": (("Name", "Status", "Runtime"), _of_job),
    "Pod": (("Name", "Ready", "Status", "Restarts"), _of_pod),
}


def _age(created: str | None, now: datetime) -> str:
    if created is None:
        return "<unknown>"
    seconds = int((now - datetime.fromisoformat(created).astimezone(UTC)).total_seconds())
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(0, seconds)}s"
