"""Concatenates texts and cuts them into fixed-length blocks for continued pre-training."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from datasets import Dataset

from workers.trainers.data.stored import opened, writing

_DOCUMENTS_AT_ONCE = 1000


def blocks(documents: Iterable[npt.NDArray[np.int32] | list[int]], length: int) -> Iterator[list[int]]:
    """The tokens of all documents in a row, `length` at a time; a last incomplete block only if it is the only one."""
    rest = np.empty(0, dtype=np.int32)
    first = True
    for document in documents:
        rest = np.concatenate([rest, np.asarray(document, dtype=np.int32)])
        whole = len(rest) // length * length
        for start in range(0, whole, length):
            yield rest[start : start + length].tolist()
            first = False
        rest = rest[whole:]
    if first and len(rest):
        yield rest.tolist()


def packed(documents: Dataset, path: Path, length: int) -> Dataset:
    """The blocks of a dataset of tokenized texts, in a file at `path` that is written if it does not exist."""
    if not path.exists():
        with writing(path, ("input_ids", "labels")) as writer:
            for block in blocks(_tokens(documents), length):
                writer.add({"input_ids": block, "labels": block})
    return opened(path)


def _tokens(documents: Dataset) -> Iterator[npt.NDArray[np.int32]]:
    """Documents in batches, in order."""
    for table in documents.select_columns("input_ids").with_format("arrow").iter(batch_size=_DOCUMENTS_AT_ONCE):
        yield np.concatenate([chunk.flatten().to_numpy() for chunk in table["input_ids"].chunks])
