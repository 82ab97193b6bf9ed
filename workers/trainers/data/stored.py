"""Tokenized records in files that are mapped into memory: written once, found again by whoever comes later."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from datasets import Dataset

from workers.trainers.data.statistics import Lengths
from workers.trainers.data.tokenizing import Encoded

_IDS = pa.list_(pa.int32())
_SCHEMA = pa.schema({"input_ids": _IDS, "labels": _IDS})
# What is collected before it is written: bounds both memory and the 32-bit offsets of a batch.
_BATCH_RECORDS = 1000
_BATCH_TOKENS = 1 << 20


@dataclass(frozen=True)
class Stored:
    """The dataset of one source, and what is known of its records."""

    dataset: Dataset
    lengths: Lengths
    conversational: bool


class Writer:
    """Collects records into the batches of an Arrow file."""

    def __init__(self, writer: "pa.RecordBatchWriter") -> None:
        self._writer = writer
        self._ids: list[list[int]] = []
        self._labels: list[list[int]] = []
        self._tokens = 0

    def add(self, input_ids: list[int], labels: list[int]) -> None:
        self._ids.append(input_ids)
        self._labels.append(labels)
        self._tokens += len(input_ids)
        if len(self._ids) >= _BATCH_RECORDS or self._tokens >= _BATCH_TOKENS:
            self.flush()

    def flush(self) -> None:
        if self._ids:
            columns = [pa.array(self._ids, _IDS), pa.array(self._labels, _IDS)]
            self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._ids, self._labels, self._tokens = [], [], 0


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """A file that appears under its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_stream(sink, _SCHEMA) as stream:
            writer = Writer(stream)
            yield writer
            writer.flush()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def opened(path: Path) -> Dataset:
    """The dataset of a finished file: columns input_ids and labels."""
    return Dataset.from_file(str(path))


def stored(path: Path, encoded: Iterable[tuple[Encoded, bool]]) -> Stored:
    """The records of one source, each with whether it is made of messages; `encoded` is used only if need be.

    Records that truncation left nothing to learn of are counted and left out.
    """
    notes = path.with_suffix(".json")
    if not notes.exists():
        _write(path, notes, encoded)
    known = json.loads(notes.read_text(encoding="utf-8"))
    return Stored(opened(path), Lengths.restored(known["lengths"]), known["conversational"])


def _write(path: Path, notes: Path, encoded: Iterable[tuple[Encoded, bool]]) -> None:
    lengths, conversational = Lengths(), False
    with writing(path) as writer:
        for each, is_conversation in encoded:
            dropped = not each.learns
            lengths.add(each.full_length, truncated=each.truncated, dropped=dropped)
            conversational = conversational or is_conversation
            if not dropped:
                writer.add(each.input_ids, each.labels)
    partial = notes.with_name(f"{notes.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps({"lengths": lengths.state(), "conversational": conversational}), encoding="utf-8")
    partial.replace(notes)
