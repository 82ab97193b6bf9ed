"""Metrics that are known only when a task has measured: their names, their direction, and how scores add up."""

import json

import pytest

from app.domain.evaluations import open_metrics, results
from app.domain.evaluations.catalog import BENCHMARKS
from app.domain.evaluations.metric import Aggregate, MetricDefinition
from app.domain.evaluations.samples import Score
from app.domain.spec.frameworks.requirements import HOW_TO_OFFER, needed
from app.domain.spec.model import JobDocument

TASK = BENCHMARKS["lm_eval"]


@pytest.mark.parametrize(
    ("name", "is_larger_better"),
    [
        ("acc", True),
        ("acc_norm", True),
        ("exact_match.strict-match", True),
        ("chrf", True),
        ("brier_score", False),
        ("word_perplexity", False),
        ("bits_per_byte.none", False),
        ("wer", False),
        ("loss.first", False),
        ("mae", False),
        ("em_toxic", None),
        ("style.error", None),
    ],
)
def test_a_task_may_have_any_metric(name: str, *, is_larger_better: bool | None) -> None:
    assert open_metrics.metric_of(TASK, name) == MetricDefinition(name, larger_is_better=is_larger_better)


@pytest.mark.parametrize("name", ["", "a/b", "acc,none", "m" * 49])
def test_a_name_that_no_curve_has_is_no_metric(name: str) -> None:
    assert open_metrics.metric_of(TASK, name) is None


def test_other_benchmarks_have_their_own_metrics() -> None:
    choices = BENCHMARKS["choices"]

    assert open_metrics.metric_of(choices, "accuracy") is choices.metrics[0]
    assert open_metrics.metric_of(choices, "acc") is None


@pytest.mark.parametrize(
    ("name", "scores", "aggregate", "is_binary"),
    [
        ("acc", [1.0, 0.0], "mean", True),
        ("acc", [1.0, 0.5], "mean", False),
        ("acc", [], "mean", False),
        ("word_perplexity", [(3.0, 2.0)], "exp_ratio", False),
        ("bits_per_byte", [(3.0, 2.0)], "ratio", False),
    ],
)
def test_scores_say_how_they_add_up(name: str, scores: list[Score], aggregate: Aggregate, *, is_binary: bool) -> None:
    found = open_metrics.of_scores(MetricDefinition(name), scores)

    assert (found.aggregate, found.is_binary) == (aggregate, is_binary)


def test_results_of_a_task_are_read_with_all_their_metrics() -> None:
    metrics = {"acc": {"value": 0.5, "stderr": 0.1}, "exact_match.first": 1, "a/b": 2}
    content = json.dumps({"benchmarks": {"lm_eval-arc": {"metrics": metrics, "n": 4, "seconds": 1, "tokens": 9}}})

    (found,) = results.read(content, ["lm_eval:arc"]).values()

    assert found["metrics"] == {
        "acc": {"value": 0.5, "stderr": 0.1},
        "exact_match.first": {"value": 1.0, "stderr": None},
    }


def test_nodes_must_have_the_harness() -> None:
    def capabilities(*names: str) -> frozenset[str]:
        benchmarks = [{"name": name} for name in names]
        return needed(JobDocument.from_json({"kind": "evaluation", "inference": {"benchmarks": benchmarks}}))

    assert capabilities("f1", "lm_eval:arc") == {"evaluate"}
    assert capabilities("f1") == frozenset()
    assert "trainyard[evaluate]" in HOW_TO_OFFER["evaluate"]


def test_nodes_must_have_what_holds_answers_to_a_form() -> None:
    def capabilities(**task: object) -> frozenset[str]:
        return needed(JobDocument.from_json({"kind": "batch", "inference": {"task": {"type": "generate", **task}}}))

    assert capabilities(response_format={"type": "regex", "pattern": "yes|no"}) == {"inference"}
    assert capabilities() == frozenset()
    assert "trainyard[inference]" in HOW_TO_OFFER["inference"]
