"""Types of the columns that go from the records to tables: one for all parts, whatever the values of each."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from workers.trainers.inference.inputs import Inputs
from workers.trainers.inference.rows import kept_of
from workers.trainers.inference.writers.json_lines import plain

_ROWS = 1024  # examined at once
_MIXED = (pa.ArrowException, OverflowError, UnicodeEncodeError)


@dataclass(frozen=True)
class KeptColumn:
    """``as_json``: its values have no type in common, or none that files can hold, so each is JSON in a text."""

    name: str
    type: pa.DataType
    as_json: bool = False

    def array(self, values: list[Any]) -> pa.Array:
        if not self.as_json:
            return pa.array(values, self.type)
        texts = [None if each is None else json.dumps(plain(each), default=str) for each in values]
        return pa.array(texts, pa.string())


def kept_columns(inputs: Inputs, names: tuple[str, ...]) -> list[KeptColumn]:
    """The columns and their types after one pass over all records."""
    types: dict[str, pa.DataType | None] = {}
    for kept in _chunks(inputs, names):
        columns = dict.fromkeys(name for row in kept for name in row)
        for name in columns:
            found = _inferred([row.get(name) for row in kept])
            types[name] = _common(types[name], found) if name in types else found
    order = dict.fromkeys([*kept_of(dict.fromkeys(types), names)])
    return [_column(name, types[name]) for name in order if name in types]


def _chunks(inputs: Inputs, names: tuple[str, ...]) -> Iterator[list[dict[str, Any]]]:
    rows = inputs.rows()
    while chunk := [kept_of(row.values, names) for row in itertools.islice(rows, _ROWS)]:
        yield chunk


def _inferred(values: list[Any]) -> pa.DataType | None:
    """None: they have no type in common."""
    try:
        return pa.array(values).type
    except _MIXED:
        return None


def _common(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    if one is None or other is None:
        return None
    try:
        schemas = [pa.schema([("value", each)]) for each in (one, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("value").type
    except pa.ArrowException:
        return None


def _column(name: str, found: pa.DataType | None) -> KeptColumn:
    if found is None or _has_no_fields(found):
        return KeptColumn(name, pa.string(), as_json=True)
    return KeptColumn(name, pa.string() if pa.types.is_null(found) else found)


def _has_no_fields(type_: pa.DataType) -> bool:
    """Whether it contains a struct without fields, which Parquet can't hold."""
    if pa.types.is_struct(type_) and not type_.num_fields:
        return True
    return any(_has_no_fields(type_.field(i).type) for i in range(type_.num_fields))
