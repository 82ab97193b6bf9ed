"""Tokenized records in memory-mapped files: written once and reused by later processes."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset

from workers.trainers.data.encoded import RECORD, AnyEncoded, Columns
from workers.trainers.data.statistics import LengthStatistics

_IDS = pa.list_(pa.int32())
_TYPES = {RECORD: pa.large_string()}  # of columns that are not ids
# Records per write: bounds both memory and the 32-bit offsets of a batch.
_BATCH_RECORDS = 1000
_BATCH_TOKENS = 1 << 20


@dataclass(frozen=True)
class StoredRecords:
    """The dataset of one source, and the statistics of its records."""

    dataset: Dataset
    lengths: LengthStatistics
    conversational: bool


class ArrowWriter:
    """Collects records into the batches of an Arrow file."""

    def __init__(self, writer: "pa.RecordBatchWriter", schema: "pa.Schema") -> None:
        self._writer = writer
        self._schema = schema
        self._records: list[Columns] = []
        self._tokens = 0

    def add(self, record: Columns) -> None:
        """The values of a record by column name."""
        self._records.append(record)
        self._tokens += max(map(len, record.values()))
        if len(self._records) >= _BATCH_RECORDS or self._tokens >= _BATCH_TOKENS:
            self.flush()

    def flush(self) -> None:
        if self._records:
            columns = [pa.array([record[each.name] for record in self._records], each.type) for each in self._schema]
            self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        self._records, self._tokens = [], 0


@contextmanager
def writing(path: Path, columns: Iterable[str]) -> Iterator[ArrowWriter]:
    """A file of token ids that appears under its name only when it is complete."""
    schema = pa.schema([(name, _TYPES.get(name, _IDS)) for name in columns])
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
            writer = ArrowWriter(stream, schema)
            yield writer
            writer.flush()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def opened(path: Path) -> Dataset:
    """The dataset of a finished file."""
    return Dataset.from_file(str(path))


def stored(path: Path, columns: Iterable[str], encoded: Iterable[tuple[AnyEncoded, bool]]) -> StoredRecords:
    """The records of one source, each with whether it is conversational; `encoded` is consumed only if the file is
    missing.

    Records without labels after truncation are counted and skipped.
    """
    notes = path.with_suffix(".json")
    if not notes.exists():
        with writing(path, columns) as writer:
            found = _write(writer, encoded)
        partial = notes.with_name(f"{notes.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(found), encoding="utf-8")
        partial.replace(notes)
    known = json.loads(notes.read_text(encoding="utf-8"))
    return StoredRecords(opened(path), LengthStatistics.restored(known["lengths"]), known["conversational"])


def _write(writer: ArrowWriter, encoded: Iterable[tuple[AnyEncoded, bool]]) -> dict[str, Any]:
    lengths, conversational = LengthStatistics(), False
    for each, is_conversation in encoded:
        dropped = not each.learns
        lengths.add(each.full_length, truncated=each.truncated, dropped=dropped)
        conversational = conversational or is_conversation
        if not dropped:
            writer.add(each.columns)
    return {"lengths": lengths.state(), "conversational": conversational}
