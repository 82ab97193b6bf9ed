"""From scores of samples to the value of a metric with its standard error."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev

from app.domain.evaluations.metric import Aggregate, MetricDefinition
from app.domain.evaluations.samples import Score
from app.domain.text_metrics.bleu import SIZE, bleu

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


def estimate(metric: MetricDefinition, scores: Sequence[Score], seed: int = 0) -> Estimate:
    """The metric of at least one sample."""
    rows = sums_of(scores)
    value = value_of(metric, added(rows))
    if len(rows) < 2 or not math.isfinite(value):
        return Estimate(value, None)
    try:
        spread = _spread(metric, rows, value, seed)
    except OverflowError:
        return Estimate(value, None)
    return Estimate(value, spread if math.isfinite(spread) else None)


def fits(metric: MetricDefinition, score: Score | None) -> bool:
    """Whether the metric can be computed from scores of this form."""
    if isinstance(score, tuple):
        return len(score) == _WIDTHS.get(metric.aggregate)
    if metric.is_binary:
        return score in (0.0, 1.0)
    return isinstance(score, float) and metric.aggregate == "mean"


def sums_of(scores: Sequence[Score]) -> list[Sums]:
    """For each sample what is added over samples before the metric is computed."""
    return [score if isinstance(score, tuple) else (score, 1.0) for score in scores]


def value_of(metric: MetricDefinition, summed: Sums) -> float:
    """The metric by the added scores of samples."""
    return _VALUES[metric.aggregate](summed)


def added(rows: Sequence[Sums]) -> Sums:
    """The sums of each column, rounded once; NaN where there is none."""
    return tuple(map(_sum, zip(*rows, strict=True)))


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


def _spread(metric: MetricDefinition, rows: Sequence[Sums], value: float, seed: int) -> float:
    """The standard error. Raises OverflowError.

    That of a ratio of sums is the one of its residuals (Cochran, "Sampling Techniques", ratio estimators), and that of
    e to it follows by the delta method: the derivative of e to the ratio is the value itself.
    """
    if metric.aggregate == "bleu":
        return stdev([value_of(metric, added(chosen)) for chosen in resamples(grouped(rows), seed)])
    summed = added(rows)
    ratio, size = _ratio(summed), max(1.0, summed[1]) / len(rows)
    residuals = [(total - ratio * count) / size for total, count in rows]
    if not all(map(math.isfinite, residuals)):
        return math.inf
    spread = stdev(residuals) / math.sqrt(len(rows))
    return spread * (value if metric.aggregate == "exp_ratio" else 1.0)


def _sum(column: Sequence[float]) -> float:
    try:
        return math.fsum(column)
    except (OverflowError, ValueError):  # of numbers that are too large, or of both infinities
        return math.nan


def _ratio(summed: Sums) -> float:
    return summed[0] / max(1.0, summed[1])  # as the loss of a batch that has no token to learn


def _exp_ratio(summed: Sums) -> float:
    try:
        return math.exp(_ratio(summed))
    except OverflowError:
        return math.inf


_VALUES: Mapping[Aggregate, Callable[[Sums], float]] = {
    "mean": _ratio,
    "ratio": _ratio,
    "exp_ratio": _exp_ratio,
    "bleu": bleu,
}
_WIDTHS: Mapping[Aggregate, int] = {"ratio": 2, "exp_ratio": 2, "bleu": SIZE}
