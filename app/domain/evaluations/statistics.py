"""From scores of samples to the value of a metric with its standard error."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev

from app.domain.evaluations.bleu import bleu
from app.domain.evaluations.catalog import Aggregate, Metric
from app.domain.evaluations.samples import Score

RESAMPLES = 1000
# More samples than this are added up in so many groups, which are resampled instead: the spread of the metric is the
# same, in bounded time.
MOST_GROUPS = 1000
Sums = tuple[float, ...]


@dataclass(frozen=True)
class Estimate:
    """``stderr`` is None for fewer than two samples, and where a score is not finite."""

    value: float
    stderr: float | None

    def to_json(self) -> dict[str, float | None]:
        return {"value": self.value, "stderr": self.stderr}


def estimate(metric: Metric, scores: Sequence[Score], seed: int = 0) -> Estimate:
    """The metric of at least one sample."""
    rows = sums_of(metric, scores)
    value = value_of(metric, added(rows))
    if len(rows) < 2 or not math.isfinite(value):
        return Estimate(value, None)
    if metric.aggregate == "bleu":
        resampled = [value_of(metric, added(chosen)) for chosen in resamples(grouped(rows), seed)]
        return Estimate(value, stdev(resampled))
    spread = stdev([row[0] for row in rows]) / math.sqrt(len(rows))
    # The derivative of e to the mean is the value itself.
    return Estimate(value, spread * (value if metric.aggregate == "exp_mean" else 1.0))


def sums_of(metric: Metric, scores: Sequence[Score]) -> list[Sums]:
    """For each sample what is added over samples before the metric is computed."""
    if metric.aggregate == "bleu":
        return [tuple(score) if isinstance(score, tuple) else (score,) for score in scores]
    return [(score, 1.0) for score in scores if not isinstance(score, tuple)]


def value_of(metric: Metric, summed: Sums) -> float:
    """The metric by the added scores of samples."""
    return _VALUES[metric.aggregate](summed)


def added(rows: Sequence[Sums]) -> Sums:
    """The sums of each column, rounded once."""
    return tuple(math.fsum(column) for column in zip(*rows, strict=True))


def grouped(rows: Sequence[Sums]) -> list[Sums]:
    """The rows, or at most `MOST_GROUPS` sums of them."""
    if len(rows) <= MOST_GROUPS:
        return list(rows)
    return [added(rows[first::MOST_GROUPS]) for first in range(MOST_GROUPS)]


def resamples(rows: Sequence[Sums], seed: int) -> Iterator[list[Sums]]:
    """As many rows, drawn with replacement, `RESAMPLES` times."""
    draws = random.Random(seed)  # noqa: S311  a bootstrap, repeatable by its seed
    for _ in range(RESAMPLES):
        yield draws.choices(rows, k=len(rows))


def _mean(summed: Sums) -> float:
    return summed[0] / summed[1]


def _exp_mean(summed: Sums) -> float:
    try:
        return math.exp(_mean(summed))
    except OverflowError:
        return math.inf


_VALUES: Mapping[Aggregate, Callable[[Sums], float]] = {"mean": _mean, "exp_mean": _exp_mean, "bleu": bleu}
