"""A metric of a benchmark: how the scores of samples become its value, and which values are better."""

from dataclasses import dataclass
from typing import Literal

# How samples become the value of a metric: the mean of their scores; the sum of their losses by that of their tokens,
# or e to it; or BLEU of their added counts.
Aggregate = Literal["mean", "ratio", "exp_ratio", "bleu"]


@dataclass(frozen=True)
class MetricDefinition:
    """``is_binary``: each sample is right or wrong, 1 or 0. ``larger_is_better``: None where that is unknown."""

    name: str
    aggregate: Aggregate = "mean"
    is_binary: bool = False
    larger_is_better: bool | None = True
