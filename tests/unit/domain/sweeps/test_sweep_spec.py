"""The document of a sweep: defaults, round trip, states, and goals of metrics."""

import json
from typing import Any

import pytest

from app.domain.sweeps.observations import OWN_FAULTS
from app.domain.sweeps.spec import Constraint, FailedTrials, Objective, SweepSpec
from app.domain.sweeps.states import TERMINAL, TRANSITIONS, TRIAL_TERMINAL, SweepState, TrialState, allowed
from tests.unit.domain.sweeps.sweep_documents import sweep


@pytest.mark.parametrize("document", [sweep(), {}, sweep(objective=[{"metric": "loss"}, {"metric": "reward"}])])
def test_a_sweep_is_read_back_as_it_was_written(document: dict[str, Any]) -> None:
    spec = SweepSpec.from_json(document)

    written = json.loads(json.dumps(spec.to_json()))

    assert SweepSpec.from_json(written) == spec
    assert SweepSpec.from_json(written).to_json() == written


def test_everything_has_a_default_that_is_written() -> None:
    written = SweepSpec.from_json({"method": None, "budget": {"max_trials": None}, "unknown": 1}).to_json()

    assert written["method"] == {
        "name": "tpe",
        "seed": 0,
        "order": "shuffled",
        "startup_trials": 10,
        "sigma0": None,
        "restarts": 0,
        "population": 50,
        "avg_best_idx": 2.0,
        "shrink_coef": 0.1,
        "interval": None,
        "explore": "perturb",
    }
    assert written["budget"]["parallel_trials"] == 1
    assert written["early_stopping"]["name"] == "none"
    assert (written["objective"], written["keep"], written["deterministic"]) == ([], {"checkpoints_of_best": 3}, False)


def test_a_document_is_what_it_says() -> None:
    spec = SweepSpec.from_json(sweep(keep={"checkpoints_of_best": 0}, deterministic=True, labels={"a": "b"}))

    assert (spec.name, spec.labels, spec.deterministic, spec.keep_checkpoints_of_best) == (
        "support-lr",
        {"a": "b"},
        True,
        0,
    )
    assert spec.objectives == (Objective(metric="eval_loss", goal="minimize", select="best"),)
    assert spec.constraints == (Constraint(metric="rank_memory_mb_max", at_most=40_000),)
    assert (spec.method.seed, spec.early_stopping.max, spec.budget.target) == (7, 900, 1.35)


def test_a_job_is_not_shown_because_it_may_have_secrets() -> None:
    assert "base_model" not in repr(SweepSpec.from_json(sweep()))


def test_the_goal_of_a_known_metric_may_be_left_out() -> None:
    assert [Objective.from_json({"metric": metric}).goal for metric in ("eval_loss", "kl")] == ["minimize", None]


def test_a_goal_that_is_given_counts() -> None:
    objective = Objective.from_json({"metric": "loss", "goal": "maximize"})

    assert (objective.goal, objective.sign) == ("maximize", -1.0)
    assert Objective(metric="loss", goal="minimize").sign == 1.0


@pytest.mark.parametrize(
    ("constraint", "value", "violation"),
    [
        (Constraint(metric="m", at_most=4.0), 5.0, 1.0),
        (Constraint(metric="m", at_most=4.0), 4.0, 0.0),
        (Constraint(metric="m", at_least=4.0), 1.0, 3.0),
        (Constraint(metric="m", at_least=1.0, at_most=4.0), 2.0, -1.0),
    ],
)
def test_a_violation_is_above_0(constraint: Constraint, value: float, violation: float) -> None:
    assert constraint.violation(value) == violation


@pytest.mark.parametrize(
    ("most", "trials", "limit"), [(None, 60, 20), (None, 4, 3), (5, 60, 5), (0, 60, 0), (0.25, 60, 15), (1, 60, 1)]
)
def test_how_many_trials_may_fail(most: float | None, trials: int, limit: int) -> None:
    assert FailedTrials(max_failed=most).limit(trials) == limit


def test_causes_that_penalize() -> None:
    own = FailedTrials(penalize=True, causes=OWN_FAULTS)
    stored_before_there_were_causes = SweepSpec.from_json({"on_failed_trials": {"penalize": True}}).on_failed_trials

    assert [own.penalizes(cause) for cause in ("OUT_OF_MEMORY", "NODE_LOST", "")] == [True, False, False]
    assert [stored_before_there_were_causes.penalizes(cause) for cause in ("NODE_LOST", "")] == [True, True]
    assert not FailedTrials(causes=OWN_FAULTS).penalizes("OUT_OF_MEMORY")
    assert FailedTrials.from_json(json.loads(json.dumps(own.to_json()))) == own


def test_states_that_end_a_sweep_and_a_trial() -> None:
    assert {SweepState.COMPLETED, SweepState.CANCELLED, SweepState.FAILED} == TERMINAL
    assert set(TrialState) - {TrialState.RUNNING} == TRIAL_TERMINAL
    assert set(TRANSITIONS) == set(SweepState)


@pytest.mark.parametrize("before", SweepState)
@pytest.mark.parametrize("after", SweepState)
def test_transitions_of_a_sweep(before: SweepState, after: SweepState) -> None:
    order = [SweepState.PENDING, SweepState.RUNNING, SweepState.FINISHING, SweepState.COMPLETED]
    is_forward = before in order and after in order and order.index(after) > order.index(before)
    is_pause = before in (SweepState.PENDING, SweepState.RUNNING) and after == SweepState.PAUSED
    is_resumed = before == SweepState.PAUSED and after in order[1:]
    is_end = before not in TERMINAL and after in (SweepState.CANCELLED, SweepState.FAILED)
    is_continued = before in (SweepState.COMPLETED, SweepState.FINISHING) and after == SweepState.RUNNING  # more budget

    assert allowed(before, after) == (is_forward or is_pause or is_resumed or is_end or is_continued)
