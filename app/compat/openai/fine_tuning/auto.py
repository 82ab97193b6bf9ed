"""Hyperparameters that a client leaves to us (`auto`), from the number of records. Pure.

They are resolved at submission, so that the job document and every answer have numbers.
"""

from collections.abc import Mapping
from typing import NamedTuple

AUTO = "auto"
MULTIPLIER = 1.0
MOST_PER_DEVICE = 8  # records of one forward pass; larger batches are accumulated
# From this many records on → epochs.
_EPOCHS = {30_000: 1, 10_000: 2, 100: 3}
_FEW_RECORDS_SEEN = 300  # below 100 records: epochs until the model has seen this many
_MOST_EPOCHS = 25
_BATCH_SHARE = 0.002  # of the records
_LARGEST_BATCH = 32


class BatchSplit(NamedTuple):
    """The batch of one optimizer step: records per device and forward pass, and forward passes."""

    per_device: int
    accumulation: int


def epochs_of(records: int) -> int:
    """3; 2 from 10,000 records on, 1 from 30,000; below 100 records as many as show it 300, at most 25."""
    for least, epochs in _EPOCHS.items():
        if records >= least:
            return epochs
    return min(_MOST_EPOCHS, -(-_FEW_RECORDS_SEEN // max(1, records)))


def batch_of(records: int, devices: int = 1) -> int:
    """0.2 % of the records, rounded down to a power of two from 1 to 32, for each device at least 1."""
    wanted = min(_LARGEST_BATCH, max(1, int(records * _BATCH_SHARE)))
    batch = 1 << (wanted.bit_length() - 1)
    return max(devices, batch - batch % devices)


def split_of(batch: int, devices: int = 1) -> BatchSplit:
    """``batch`` is a multiple of ``devices``; the largest divisor that fits is loaded at once, the rest accumulated."""
    share = batch // devices
    per_device = max(each for each in range(1, min(share, MOST_PER_DEVICE) + 1) if share % each == 0)
    return BatchSplit(per_device, share // per_device)


def is_left(hyperparameters: Mapping[str, object], name: str) -> bool:
    """Whether the client leaves this hyperparameter to us."""
    return hyperparameters.get(name, AUTO) in (AUTO, None)
