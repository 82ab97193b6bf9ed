"""Rows of tables from the fields of the server's answers."""

from collections.abc import Iterable, Mapping
from typing import Any


def picked(items: Iterable[Mapping[str, Any]], names: tuple[str, ...]) -> list[list[Any]]:
    """The values of the named fields, one row per item."""
    return [[item.get(name) for name in names] for item in items]
