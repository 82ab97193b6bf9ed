"""Objectives and constraints that name a benchmark: of an evaluation that the trials plan."""

from typing import Any

import pytest

from app.domain.spec.model import JobDocument
from app.domain.sweeps.benchmarks import measured
from app.domain.sweeps.rules.document import check
from app.domain.sweeps.spec import Objective, SweepSpec
from tests.unit.domain.sweeps.sweep_documents import JOB, PLAIN, refused, sweep, with_training

SCORED = "custom:/srv/brevity.py"
PBT = {"name": "pbt", "interval": 100, "population": 4}


def planning(*names: str, on: str = "end") -> dict[str, Any]:
    """Changes of a sweep whose trials plan these benchmarks, without early stopping."""
    listed = [{"name": name, "dataset": {"path": "/srv/q.jsonl"}} for name in names]
    plan = {"on": on, "benchmarks": listed}
    return {**PLAIN, "budget": {"max_trials": 9}, "job": with_training(JOB, evaluations=[plan])}


@pytest.mark.parametrize(
    ("metric", "point"),
    [
        ("benchmark:choices/accuracy_by_length", "bench/choices/accuracy_by_length"),
        (f"benchmark:{SCORED}/score", "bench/custom-brevity/score"),
        ("benchmark:custom-brevity/score", "bench/custom-brevity/score"),
        ("benchmark:lm_eval:topics/acc", "bench/lm_eval-topics/acc"),
    ],
)
def test_planned_benchmark_is_an_objective_and_a_constraint(metric: str, point: str) -> None:
    raw = sweep(
        **planning("choices", SCORED, "lm_eval:topics"),
        objective={"metric": metric},
        constraints=[{"metric": metric, "at_least": 0.5}],
    )

    check(SweepSpec.from_json(raw))

    found = measured(metric)
    assert (found.point if found else None) == point


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        ("benchmark:exact_match/exact_match", "maximize"),
        ("benchmark:perplexity/perplexity", "minimize"),
        ("benchmark:loss/loss", "minimize"),
        (f"benchmark:{SCORED}/score", "maximize"),
        ("benchmark:lm_eval:error_types/acc", "maximize"),
        ("benchmark:lm_eval:topics/wer", "minimize"),
        ("benchmark:lm_eval:topics/loss.first", "minimize"),
        ("benchmark:lm_eval:topics/style", None),
        ("benchmark:lm_eval-error_types/acc", "maximize"),
        ("benchmark:custom-error/score", "maximize"),
        ("benchmark:f1/entropy", None),
        ("benchmark:judge/win_rate", "maximize"),
        ("benchmark:judge/unjudged", "minimize"),
        ("benchmark:judge/first_share", None),
        ("eval_loss", "minimize"),
    ],
)
def test_goal_is_that_of_the_benchmark(metric: str, goal: str | None) -> None:
    assert Objective.from_json({"metric": metric}).goal == goal


def test_goal_of_an_unknown_metric_of_a_task_is_required() -> None:
    error = refused(**planning("lm_eval:topics"), objective={"metric": "benchmark:lm_eval:topics/style"})

    assert (error.field, "use minimize or maximize" in error.message) == ("objective.goal", True)


@pytest.mark.parametrize(
    ("metric", "part"),
    [
        ("benchmark:f1/f1", "no evaluation of the trials measures f1: job.training_config.evaluations plans choices"),
        ("benchmark:choices/acuracy", "did you mean accuracy?"),
        ("benchmark:lm_eval:topics/acc,none", "known: those of the task"),
        ("benchmark:custom:/srv/other.py/score", "no evaluation of the trials measures custom:/srv/other.py"),
    ],
)
def test_benchmark_that_nothing_measures_is_refused(metric: str, part: str) -> None:
    error = refused(**planning("choices", SCORED, "lm_eval:topics"), objective={"metric": metric, "goal": "maximize"})

    assert (error.field, part in error.message) == ("objective.metric", True)


@pytest.mark.parametrize(
    ("parameters", "measured_", "other"),
    [
        ({}, "score", "win_rate"),
        ({"labels": ["good", "bad"], "passing": ["good"]}, "passed", "score"),
        ({"baseline": "other"}, "win_rate", "passed"),
    ],
)
def test_objective_by_a_judge_is_what_its_parameters_measure(
    parameters: dict[str, Any], measured_: str, other: str
) -> None:
    asked = planning("judge")
    asked["job"]["training_config"]["evaluations"][0]["benchmarks"][0]["parameters"] = {"service": "j", **parameters}

    check(SweepSpec.from_json(sweep(**asked, objective={"metric": f"benchmark:judge/{measured_}"})))
    error = refused(**asked, objective={"metric": f"benchmark:judge/{other}"})

    assert (error.field, f"known: {measured_}, " in error.message) == ("objective.metric", True)


@pytest.mark.parametrize(
    ("compares", "field"),
    [
        ({"early_stopping": {"name": "asha", "min": 100, "max": 900}}, "early_stopping.name"),
        ({"method": PBT}, "objective.metric"),
    ],
)
def test_trials_are_compared_by_a_benchmark_of_their_checkpoints(compares: dict[str, Any], field: str) -> None:
    objective = {"metric": "benchmark:choices/accuracy"}

    error = refused(**{**planning("choices", on="best"), **compares}, objective=objective)

    assert (error.field, "set on to checkpoint in job.training_config.evaluations" in error.message) == (field, True)
    check(SweepSpec.from_json(sweep(**{**planning("choices", on="checkpoint"), **compares}, objective=objective)))


def test_dataset_of_a_planned_benchmark_may_be_a_path() -> None:
    changes = planning("choices")
    changes["job"]["training_config"]["evaluations"][0]["benchmarks"][0]["dataset"] = "/srv/q.jsonl"

    spec = SweepSpec.from_json(sweep(**changes, objective={"metric": "benchmark:choices/accuracy"}))
    check(spec)

    (plan,) = JobDocument.from_json(spec.job).training_config.evaluations
    assert plan.benchmarks[0].dataset is not None
    assert plan.benchmarks[0].dataset.path == "/srv/q.jsonl"


def test_checkpoints_of_all_trials_are_measured() -> None:
    changes = planning("choices", on="checkpoint")
    on = {"type": "categorical", "values": ["end", "checkpoint"]}
    changes |= {
        "parameters": {"training_config.evaluations.0.on": on},
        "early_stopping": {"name": "asha", "min": 100, "max": 900},
    }

    assert refused(**changes, objective={"metric": "benchmark:choices/accuracy"}).field == "early_stopping.name"


@pytest.mark.parametrize("name", [5, ["a"], None, {}])
def test_name_that_is_no_text_is_no_planned_benchmark(name: object) -> None:
    changes = planning("choices")
    changes["job"]["training_config"]["evaluations"][0]["benchmarks"][0]["name"] = name

    error = refused(**changes, objective={"metric": "benchmark:choices/accuracy"})

    assert (error.field, "plans nothing" in error.message) == ("objective.metric", True)
