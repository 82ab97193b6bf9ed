"""Formats npy and safetensors: vectors as matrices, without other columns; the index says which record each belongs to.

Pooling none gives a row for each token. Records without an answer have no row; each part that has such ones has a file
that lists them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from workers.trainers.inference.inputs import Shard
from workers.trainers.inference.rows import OutputRow
from workers.trainers.inference.writers.json_lines import encoded
from workers.trainers.inference.writers.vectors import matrix_of
from workers.trainers.inference.writers.writer import VectorForm, dimension_of, part_name

MATRIX, INDEX = "embeddings.npy", "index.npy"  # the joined ones
_NPY = "npy"
_INDEX_STEM = "index"


class NumpyMatrix:
    """Parts until the end, when they become one matrix, which can be mapped into memory."""

    def __init__(self, vectors: VectorForm) -> None:
        self._vectors = vectors

    def write(self, directory: Path, shard: Shard, rows: Sequence[OutputRow]) -> tuple[str, ...]:
        matrix, index = matrix_of(rows, dimension_of(rows, self._vectors), np.dtype(self._vectors.dtype))
        names = (part_name(shard, _NPY), part_name(shard, _NPY, _INDEX_STEM))
        for name, values in zip(names, (matrix, index), strict=True):
            np.save(directory / name, values, allow_pickle=False)
        return names + _errors(directory, shard, rows)

    def join(self, directory: Path, shards: Sequence[Shard]) -> None:
        """Part by part, so that no more than one is in memory."""
        _join(directory, [part_name(shard, _NPY) for shard in shards], MATRIX)
        _join(directory, [part_name(shard, _NPY, _INDEX_STEM) for shard in shards], INDEX)


class SafetensorsMatrices:
    """In each part tensors ``embedding`` and ``index``."""

    def __init__(self, vectors: VectorForm) -> None:
        self._vectors = vectors

    def write(self, directory: Path, shard: Shard, rows: Sequence[OutputRow]) -> tuple[str, ...]:
        held = np.dtype("float16" if self._vectors.dtype == "float16" else "float32")
        matrix, index = matrix_of(rows, dimension_of(rows, self._vectors), held)
        name = part_name(shard, "safetensors")
        embedding = torch.from_numpy(matrix).to(getattr(torch, self._vectors.dtype))
        save_file({"embedding": embedding, "index": torch.from_numpy(index)}, directory / name)
        return (name, *_errors(directory, shard, rows))

    def join(self, directory: Path, shards: Sequence[Shard]) -> None:
        """The parts stay as they are."""


def _errors(directory: Path, shard: Shard, rows: Sequence[OutputRow]) -> tuple[str, ...]:
    failed = [(row.index, row.error) for row in rows if row.error is not None]
    if not failed:
        return ()
    name = part_name(shard, "jsonl", "errors")
    lines = (encoded({"index": index, "error": error.to_json()}) for index, error in failed)
    (directory / name).write_bytes(b"".join(lines))
    return (name,)


def _join(directory: Path, names: Sequence[str], joined: str) -> None:
    """Opens one part at a time: a process may hold fewer open files than there are parts."""
    parts = [_header(directory / name) for name in names]
    # A part whose records all failed may only guess how long the others' vectors are.
    longest, dtype = max((shape for shape, _ in parts), key=lambda shape: shape[0]), parts[0][1]
    shape = (sum(each[0] for each, _ in parts), *longest[1:])
    whole = np.lib.format.open_memmap(directory / joined, mode="w+", dtype=dtype, shape=shape)
    at = 0
    for name, ((rows, *_), _) in zip(names, parts, strict=True):
        if rows:
            whole[at : at + rows] = np.load(directory / name, mmap_mode="r")
        at += rows
        (directory / name).unlink()
    whole.flush()


def _header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    part = np.load(path, mmap_mode="r")
    return part.shape, part.dtype
