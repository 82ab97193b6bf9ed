"""Metrics `benchmark:NAME/METRIC`: what the evaluations that a trial's training plans measure of its model."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.domain.evaluations import catalog
from app.domain.evaluations.catalog import BadBenchmark, BenchmarkType
from app.domain.evaluations.open_metrics import metric_of
from app.domain.spec.metric_goals import Goal, goal_of
from app.domain.spec.model import JobDocument, PlannedEvaluation

PREFIX = "benchmark:"
_POINTS = "bench/"  # begins the names of a training's metrics that its planned evaluations have measured


@dataclass(frozen=True)
class BenchmarkMetric:
    """A metric of a benchmark. ``benchmark`` is its name in the plan, or its label: `custom:/data/brevity.py` or
    `custom-brevity`.
    """

    benchmark: str
    metric: str

    @property
    def point(self) -> str:
        """The name of the training's metric."""
        return f"{_POINTS}{catalog.label(self.benchmark)}/{self.metric}"

    def is_of(self, name: str) -> bool:
        """Whether it is measured by the benchmark with this name."""
        return self.benchmark in (name, catalog.label(name))


def measured(metric: str) -> BenchmarkMetric | None:
    """What the metric of an objective or a constraint names; None for one that is no benchmark's."""
    name, _, of_it = metric.removeprefix(PREFIX).rpartition("/")
    return BenchmarkMetric(name, of_it) if metric.startswith(PREFIX) and name and of_it else None


def plans(document: JobDocument, found: BenchmarkMetric) -> Iterator[tuple[PlannedEvaluation, str]]:
    """The planned evaluations of a training that measure it, each with the benchmark's name there."""
    return ((plan, name) for plan, name in planned(document) if found.is_of(name))


def planned(document: JobDocument) -> Iterator[tuple[PlannedEvaluation, str]]:
    """The planned evaluations of a training with the names of their benchmarks.

    The document may not have been checked yet: a name that is no text is left out.
    """
    for plan in document.training_config.evaluations:
        yield from ((plan, each.name) for each in plan.benchmarks if isinstance(each.name, str))


def kinds(document: JobDocument, found: BenchmarkMetric) -> list[BenchmarkType]:
    """The types of the planned benchmarks that it names, with the metrics that each has by its parameters."""
    planned = (each for plan in document.training_config.evaluations for each in plan.benchmarks)
    named = (each for each in planned if isinstance(each.name, str) and found.is_of(each.name))
    return [catalog.as_measured(each.name, each.parameters) for each in named if kind_of(each.name) is not None]


def kind_of(name: str) -> BenchmarkType | None:
    """The type of a benchmark; None for a name that the rules of evaluations refuse."""
    try:
        return catalog.find(name)
    except BadBenchmark:
        return None


def goal(metric: str) -> Goal | None:
    """Whether less or more is better: of a benchmark as its type says, otherwise by the metric's name.

    None where neither says so.
    """
    found = measured(metric)
    if found is None:
        return goal_of(metric)
    # A label begins with the name of its type: custom-brevity, lm_eval-TASK.
    kind = kind_of(found.benchmark) or catalog.BENCHMARKS.get(found.benchmark.partition("-")[0])
    known = metric_of(kind, found.metric) if kind is not None else None
    if known is None or known.larger_is_better is None:
        return None
    return "maximize" if known.larger_is_better else "minimize"
