"""Requirements of evaluations: which metrics they name, when they are met, and which say nothing."""

from typing import Any

import pytest

from app.domain.evaluations import requirements
from app.domain.evaluations.catalog import BadBenchmark
from app.domain.spec.inference import Benchmark, Requirement

NAMES = ("loss", "choices", "custom:/srv/brevity.py", "lm_eval:arc")
MEASURED = [Benchmark(name=name) for name in NAMES]


def results(benchmark: str, metric: str, value: Any) -> dict[str, Any]:
    return {benchmark: {"metrics": {metric: {"value": value, "stderr": None}}}}


def verdict(value: Any, measured: Any = None, **bounds: Any) -> dict[str, Any]:
    required = Requirement(metric="choices/accuracy", **bounds)
    of = requirements.target(required.metric, MEASURED)
    return requirements.verdict(required, of, results("choices", "accuracy", value), measured)


@pytest.mark.parametrize(
    ("named", "label", "metric"),
    [
        ("loss", "loss", "loss"),
        ("loss/loss", "loss", "loss"),
        ("choices/accuracy_by_length", "choices", "accuracy_by_length"),
        ("lm_eval-arc/acc_norm", "lm_eval-arc", "acc_norm"),
        ("lm_eval:arc/acc", "lm_eval-arc", "acc"),
        ("custom-brevity", "custom-brevity", "score"),
        ("custom:/srv/brevity.py/score", "custom-brevity", "score"),
    ],
)
def test_metric_is_named_by_its_benchmark(named: str, label: str, metric: str) -> None:
    found, of = requirements.target(named, MEASURED)

    assert (found, of.name) == (label, metric)


@pytest.mark.parametrize(
    ("value", "bounds", "passed"),
    [
        (0.8, {"min": 0.8}, True),
        (0.79, {"min": 0.8}, False),
        (0.8, {"max": 0.8}, True),
        (0.81, {"min": 0.5, "max": 0.8}, False),
        ("NaN", {"min": 0.0}, False),
        (None, {"min": 0.0}, False),
    ],
)
def test_bounds_are_inclusive_and_what_was_not_measured_passes_nothing(
    value: Any, bounds: dict[str, float], *, passed: bool
) -> None:
    assert verdict(value, **bounds)["passed"] is passed


@pytest.mark.parametrize(
    ("value", "baseline", "margin", "passed"),
    [(0.7, 0.7, 0.0, True), (0.75, 0.8, 0.1, True), (0.6, 0.8, 0.1, False), (0.9, None, 0.1, False)],
)
def test_value_may_be_worse_than_the_baseline_by_the_margin(
    value: float, baseline: float | None, margin: float, *, passed: bool
) -> None:
    found = verdict(value, baseline, baseline="job-1", margin=margin)

    assert (found["passed"], found["baseline_value"]) == (passed, baseline)


def test_smaller_losses_are_better() -> None:
    required = Requirement(metric="loss", baseline="job-1", margin=0.1)
    of = requirements.target("loss", MEASURED)

    found = [requirements.verdict(required, of, results("loss", "loss", each), 2.0)["passed"] for each in (1.0, 2.2)]

    assert found == [True, False]


def test_value_without_a_known_direction_is_not_compared_with_a_baseline() -> None:
    required = Requirement(metric="lm_eval:arc/style", baseline="job-1")
    of = requirements.target(required.metric, MEASURED)

    assert not requirements.verdict(required, of, results("lm_eval-arc", "style", 1.0), 1.0)["passed"]


@pytest.mark.parametrize(
    ("required", "field", "said"),
    [
        ({"metric": "choices", "min": 0}, "0.metric", "choices/accuracy_by_length, custom-brevity"),
        ({"metric": "f1", "min": 0}, "0.metric", "known: loss, "),
        ({"metric": "lm_eval:arc", "min": 0}, "0.metric", "lm_eval-arc/METRIC"),
        ({"metric": "loss"}, "0.metric", "give min, max, or baseline"),
        ({"metric": "loss", "min": 2, "max": 1}, "0.min", "swap them"),
        ({"metric": "loss", "min": 2, "margin": 1}, "0.margin", "name a baseline"),
        ({"metric": "lm_eval:arc/style", "baseline": "job-1"}, "0.baseline", "give min or max"),
    ],
)
def test_requirement_that_says_nothing_is_refused(required: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(BadBenchmark) as refused:
        requirements.check([Requirement.from_json(required)], MEASURED)

    assert (refused.value.field, said in refused.value.message) == (field, True)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (verdict(0.4, min=0.8), "choices/accuracy is 0.4, below 0.8"),
        (verdict(0.4, max=0.1), "choices/accuracy is 0.4, above 0.1"),
        (verdict("NaN", max=0.1), "choices/accuracy has no finite value"),
        (verdict(0.4, None, baseline="job-1"), "choices/accuracy is 0.4, but job-1 has no finite value of it"),
        (
            verdict(0.4, 0.6, baseline="job-1", margin=0.1),
            "choices/accuracy is 0.4, worse than the 0.6 of job-1 by more than 0.1",
        ),
    ],
)
def test_sentence_says_what_was_not_met(found: dict[str, Any], said: str) -> None:
    assert requirements.sentence(found) == said


def test_nothing_required_is_neither_passed_nor_failed() -> None:
    assert requirements.all_passed([]) is None
