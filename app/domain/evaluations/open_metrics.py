"""The metrics of benchmarks that know them only when they have measured: tasks of EleutherAI's harness."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from app.domain.evaluations.catalog import BenchmarkType
from app.domain.evaluations.metric import Aggregate, MetricDefinition
from app.domain.evaluations.samples import Sample, Score
from app.domain.spec.metric_goals import goal_of

MOST = 64
# METRIC, or METRIC.FILTER where the task filters answers.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,48}", re.ASCII)
_BITS = "bits_per_byte"
# As the harness registers its metrics; chrf++ has a name that curves may have.
_SMALLER_IS_BETTER = {"perplexity", "word_perplexity", "byte_perplexity", _BITS, "ter", "brier_score"}
_LARGER_IS_BETTER = {
    *("acc", "acc_norm", "acc_mutual_info", "acc_bytes", "acc_all", "exact_match", "likelihood"),
    *("mcc", "f1", "bleu", "chrf", "chrf_"),
}


def metric_of(kind: BenchmarkType, name: str) -> MetricDefinition | None:
    """The metric of this name; None when the type has no such one. A task may have any name, and is better for larger
    or smaller values as the harness says, or else the name; otherwise that is unknown.
    """
    if kind.metrics:
        return next((each for each in kind.metrics if each.name == name), None)
    if not NAME.fullmatch(name):
        return None
    return MetricDefinition(name, larger_is_better=_is_larger_better(_base(name)))


def measured(kind: BenchmarkType, found: Mapping[str, object]) -> list[MetricDefinition]:
    """The metrics among what was measured, by name; of a task at most `MOST`."""
    names = [each.name for each in kind.metrics] or list(found)[:MOST]
    metrics = (metric_of(kind, name) for name in names if name in found)
    return [each for each in metrics if each is not None]


def of_samples(metric: MetricDefinition, samples: Iterable[Sample]) -> MetricDefinition:
    """The metric of a task with the aggregate that its scores have."""
    scores = [each.scores[metric.name] for each in samples if metric.name in each.scores]
    return of_scores(metric, scores)


def of_scores(metric: MetricDefinition, scores: Sequence[Score]) -> MetricDefinition:
    """As `of_samples`: sums of losses and their counts, numbers, or numbers that are all 0 or 1."""
    if scores and all(isinstance(each, tuple) for each in scores):
        ratio: Aggregate = "ratio" if _base(metric.name) == _BITS else "exp_ratio"
        return replace(metric, aggregate=ratio)
    return replace(metric, is_binary=bool(scores) and all(each in (0.0, 1.0) for each in scores))


def _is_larger_better(base: str) -> bool | None:
    if base in _SMALLER_IS_BETTER:
        return False
    goal = "maximize" if base in _LARGER_IS_BETTER else goal_of(base)
    return goal == "maximize" if goal is not None else None


def _base(name: str) -> str:
    return name.partition(".")[0]
