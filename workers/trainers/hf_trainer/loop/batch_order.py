"""Record orders that differ from transformers' own: length grouping, and halved batches on many ranks."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import cast

import pyarrow.compute as pc
import torch
from datasets import Dataset
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices

_ROWS_AT_ONCE = 10_000


class LengthGrouped(Sampler[int]):
    """Indices grouped so that every `batch_size` consecutive records have similar lengths; reshuffled each epoch.

    transformers' own sampler uses the global random state, so a resumed run and other ranks would see another order.
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


class Shuffled(Sampler[int]):
    """The order of transformers' own sampler in an epoch."""

    def __init__(self, dataset: Dataset, seed: int, epoch: Callable[[], int]) -> None:
        self._size = len(dataset)
        self._seed = seed
        self._epoch = epoch

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch())
        return iter(torch.randperm(self._size, generator=generator).tolist())


class PaddedOrder(Sampler[int]):
    """An order padded with its own beginning to a multiple of `multiple`.

    Ranks that share an epoch's last batches pad them the same way, but only as far as necessary: with halved batches
    that would be fewer records than before.
    """

    def __init__(self, order: Sampler[int], multiple: int) -> None:
        self._order = order
        self._multiple = multiple

    def __len__(self) -> int:
        return math.ceil(len(self._order) / self._multiple) * self._multiple  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(itertools.cycle(list(self._order)), len(self))


def _lengths(dataset: Dataset) -> list[int]:
    """Lengths of the records; for a preference pair that of the longer sequence."""
    if "input_ids" in dataset.column_names:
        return _lengths_of(dataset, "input_ids")
    prompts, *answers = (_lengths_of(dataset, name) for name in ("prompt_ids", "chosen_ids", "rejected_ids"))
    return [prompt + max(both) for prompt, *both in zip(prompts, *answers, strict=True)]


def _lengths_of(dataset: Dataset, column: str) -> list[int]:
    tables = dataset.select_columns(column).with_format("arrow").iter(batch_size=_ROWS_AT_ONCE)
    return [length for table in tables for length in cast("list[int]", pc.list_value_length(table[column]).to_pylist())]
