"""The order of records when batches hold records of about one length."""

from collections.abc import Callable, Iterator
from typing import cast

import pyarrow.compute as pc
import torch
from datasets import Dataset
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices

_ROWS_AT_ONCE = 10_000


class LengthGrouped(Sampler[int]):
    """Indices so that every `batch_size` in a row are of about one length; each epoch in another order.

    transformers' own sampler draws from the global random numbers: a resumed run and the other
    ranks would see another order.
    """

    def __init__(self, dataset: Dataset, batch_size: int, seed: int, epoch: Callable[[], int]) -> None:
        self._lengths = _lengths(dataset)
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch())
        indices: list[int] = get_length_grouped_indices(  # type: ignore[no-untyped-call]
            self._lengths, self._batch_size, generator=generator
        )
        return iter(indices)


def _lengths(dataset: Dataset) -> list[int]:
    rows = dataset.select_columns("input_ids").with_format("arrow")
    tables = rows.iter(batch_size=_ROWS_AT_ONCE)
    return [
        length for table in tables for length in cast("list[int]", pc.list_value_length(table["input_ids"]).to_pylist())
    ]
