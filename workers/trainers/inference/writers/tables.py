"""Formats parquet and arrow: typed columns, one table for each part, all parts of one schema."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.rows import OutputRow
from workers.trainers.inference.writers.kept_columns import KeptColumn
from workers.trainers.inference.writers.vectors import vector_column
from workers.trainers.inference.writers.writer import VectorForm, dimension_of, part_name

_COUNT = pa.int64()
_LOGPROBS = pa.list_(pa.float64())
_ONE_OUTPUT = [("output", pa.string()), ("finish_reason", pa.string()), ("completion_tokens", _COUNT)]
_TYPES: dict[str, pa.DataType] = {
    "output": pa.string(),
    "finish_reason": pa.string(),
    "logprobs": _LOGPROBS,
    "outputs": pa.list_(pa.struct([*_ONE_OUTPUT, ("logprobs", _LOGPROBS)])),
    "logprob": pa.float64(),
    "tokens": _COUNT,
    "perplexity": pa.float64(),
    "is_greedy": pa.bool_(),
    "score": pa.float64(),
    "label": pa.string(),
    "probabilities": pa.map_(pa.string(), pa.float64()),
}
_ERROR = pa.struct([("code", pa.string()), ("message", pa.string()), ("where", pa.string())])


class Tables:
    """Column ``error`` is null for a row with an answer, the task's ``columns`` for one without."""

    def __init__(self, suffix: str, columns: tuple[str, ...], kept: Sequence[KeptColumn], vectors: VectorForm) -> None:
        self._suffix = suffix
        self._columns = columns
        self._kept = kept
        self._vectors = vectors

    def write(self, directory: Path, shard: Shard, rows: Sequence[OutputRow]) -> tuple[str, ...]:
        name = part_name(shard, self._suffix)
        _SAVE[self._suffix](self._table(rows), directory / name)
        return (name,)

    def join(self, directory: Path, shards: Sequence[Shard]) -> None:
        """The parts stay as they are: readers take a directory of them as one table."""

    def _table(self, rows: Sequence[OutputRow]) -> pa.Table:
        answers = [row.answer for row in rows]
        found: dict[str, pa.Array] = {"index": pa.array([row.index for row in rows], _COUNT)}
        for column in self._kept:
            found[column.name] = column.array([row.kept.get(column.name) for row in rows])
        for name in self._columns:
            found[name] = self._column(name, rows)
        found["prompt_tokens"] = pa.array([each.prompt_tokens if each else 0 for each in answers], _COUNT)
        found["completion_tokens"] = pa.array([each.completion_tokens if each else 0 for each in answers], _COUNT)
        found["error"] = pa.array([row.error.to_json() if row.error else None for row in rows], _ERROR)
        return pa.table(found)

    def _column(self, name: str, rows: Sequence[OutputRow]) -> pa.Array:
        if name == "embedding":
            form = self._vectors
            return vector_column(rows, dimension_of(rows, form), np.dtype(form.dtype), each_token=form.each_token)
        return pa.array([_value(row, name) for row in rows], _TYPES[name])


def _value(row: OutputRow, name: str) -> object:
    value = row.answer.values.get(name) if row.answer is not None else None
    return list(value.items()) if isinstance(value, dict) else value


def _save_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd")


def _save_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


_SAVE: dict[str, Callable[[pa.Table, Path], None]] = {"parquet": _save_parquet, "arrow": _save_arrow}
