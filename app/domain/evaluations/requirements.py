"""What an evaluation's metrics have to be: bounds of their own, or against an earlier evaluation."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.evaluations import catalog
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.evaluations.metric import MetricDefinition
from app.domain.evaluations.open_metrics import metric_of
from app.domain.evaluations.results import Results
from app.domain.spec.inference import Benchmark, Requirement

Target = tuple[str, MetricDefinition]  # the label of a benchmark, and one of its metrics
Value = float | str | None  # as `results.Results` has it


def check(requirements: Sequence[Requirement], benchmarks: Sequence[Benchmark]) -> None:
    """Raise BadBenchmark for one that can't be met or says nothing; its ``field`` begins with the number from 0."""
    for number, each in enumerate(requirements):
        try:
            _check(each, benchmarks)
        except BadBenchmark as error:
            raise BadBenchmark(f"{number}.{error.field}", error.message) from None


def target(metric: str, benchmarks: Sequence[Benchmark]) -> Target:
    """What NAME or NAME/METRIC stands for among these benchmarks. Raises BadBenchmark."""
    for benchmark in benchmarks:
        kind, label = catalog.as_measured(benchmark.name, benchmark.parameters), catalog.label(benchmark.name)
        for name in (label, benchmark.name):
            wanted = metric.removeprefix(f"{name}/")
            if metric == name and len(kind.metrics) == 1:
                return label, kind.metrics[0]
            if wanted != metric and (found := metric_of(kind, wanted)) is not None:
                return label, found
    known = ", ".join(name for each in benchmarks for name in _names(each))
    raise BadBenchmark("metric", f"nothing that is measured here is called {metric[:128]!r}; known: {known}")


def verdict(requirement: Requirement, of: Target | None, results: Results, baseline: Value = None) -> dict[str, Any]:
    """The requirement with ``value``, ``baseline_value`` and whether it has ``passed``.

    ``baseline`` is what its baseline has measured. What was not measured, or is not finite, passes nothing.
    """
    value = value_of(results, of)
    met = _is_between(requirement, value)
    if requirement.baseline is not None:
        met = met and of is not None and _is_not_worse(of[1], value, baseline, requirement.margin)
    return {
        **{name: getattr(requirement, name) for name in ("metric", "min", "max", "baseline", "margin")},
        "value": value,
        "baseline_value": baseline,
        "passed": met,
    }


def value_of(results: Results, of: Target | None) -> Value:
    """The value of a metric in an evaluation's results; None where it is missing."""
    if of is None:
        return None
    label, metric = of
    measured: Mapping[str, Any] = results.get(label, {}).get("metrics", {}).get(metric.name, {})
    value: Value = measured.get("value")
    return value


def all_passed(verdicts: Sequence[Mapping[str, Any]]) -> bool | None:
    """None where nothing is required."""
    return all(each["passed"] for each in verdicts) if verdicts else None


def sentence(verdict: Mapping[str, Any]) -> str:
    """``exact_match is 0.4, below 0.8``: why a requirement was not met."""
    value, baseline = verdict["value"], verdict["baseline_value"]
    if not _is_finite(value):
        return f"{verdict['metric']} has no finite value"
    found = f"{verdict['metric']} is {value:.6g}"
    if verdict["min"] is not None and value < verdict["min"]:
        return f"{found}, below {verdict['min']:g}"
    if verdict["max"] is not None and value > verdict["max"]:
        return f"{found}, above {verdict['max']:g}"
    if not _is_finite(baseline):
        return f"{found}, but {verdict['baseline']} has no finite value of it"
    return f"{found}, worse than the {baseline:.6g} of {verdict['baseline']} by more than {verdict['margin']:g}"


def _check(requirement: Requirement, benchmarks: Sequence[Benchmark]) -> None:
    _, metric = target(requirement.metric, benchmarks)
    low, high = requirement.min, requirement.max
    if low is None and high is None and requirement.baseline is None:
        raise BadBenchmark("metric", "nothing is required of it; give min, max, or baseline")
    if low is not None and high is not None and low > high:
        raise BadBenchmark("min", f"min {low:g} is above max {high:g}, so that no value passes; swap them")
    if requirement.margin and requirement.baseline is None:
        raise BadBenchmark("margin", "margin is how much worse than baseline a value may be; name a baseline, too")
    if requirement.baseline is not None and metric.larger_is_better is None:
        raise BadBenchmark(
            "baseline",
            f"nothing says whether more or less of {metric.name} is better, so no value is worse than that of a "
            "baseline; give min or max in its place",
        )


def _names(benchmark: Benchmark) -> list[str]:
    metrics = catalog.as_measured(benchmark.name, benchmark.parameters).metrics
    label = catalog.label(benchmark.name)
    return [label] if len(metrics) == 1 else [f"{label}/{each.name}" for each in metrics] or [f"{label}/METRIC"]


def _is_between(requirement: Requirement, value: Value) -> bool:
    low, high = requirement.min, requirement.max
    if not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return (low is None or value >= low) and (high is None or value <= high)


def _is_not_worse(metric: MetricDefinition, value: Value, baseline: Value, margin: float) -> bool:
    """False where the direction of the metric is unknown; `check` refuses that."""
    is_known = metric.larger_is_better is not None
    if not is_known or not isinstance(value, int | float) or not isinstance(baseline, int | float):
        return False
    loss = baseline - value if metric.larger_is_better else value - baseline
    return loss <= margin


def _is_finite(value: Value) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
