"""What `GET /v1/sweeps/{id}` says of the next device hour."""

from typing import Any

import pytest

from app.domain.sweeps.states import SweepState, TrialState
from app.models import Sweep
from tests.builders.sweeps import make_sweep, make_sweep_document, make_trial
from tests.systems.apps import Api

VALUES = (3.0, 2.0, 2.5, 1.0, 1.5)


def ended(api: Api, *values: float, best: int, status: SweepState = SweepState.RUNNING, **document: Any) -> str:
    """A sweep whose completed trials took an hour each, and one that failed; ``best``: the place of the best value."""
    with api.db.write() as session:
        sweep = make_sweep(session, status=status, document=make_sweep_document(**document))
        make_trial(session, sweep, state=TrialState.FAILED, device_seconds=3600.0)
        for value in values:
            make_trial(session, sweep, objectives=[value], device_seconds=3600.0)
        sweep.best_number = 1 + best
        return str(sweep.id)


@pytest.mark.both_databases
def test_a_sweep_says_what_the_next_device_hour_may_bring(api: Api) -> None:
    sweep_id = ended(api, *VALUES, best=3)

    found = api.get(f"/v1/sweeps/{sweep_id}")["forecast"]

    assert found["trials"] == pytest.approx(5 / 6)
    assert 0 < found["expected_improvement"] < 0.5
    assert found["expected_best_after_an_hour"] == pytest.approx(1.0 - found["expected_improvement"])
    assert api.get("/v1/sweeps")["sweeps"][0]["forecast"] is None  # not in lists


def test_an_objective_that_is_maximized_rises(api: Api) -> None:
    sweep_id = ended(api, *VALUES, best=0, objective={"metric": "eval_loss", "goal": "maximize"})

    assert api.get(f"/v1/sweeps/{sweep_id}")["forecast"]["expected_best_after_an_hour"] > 3.0


def test_there_is_no_forecast_where_nothing_follows_or_too_little_is_known(api: Api) -> None:
    few, cancelled = ended(api, *VALUES[1:], best=2), ended(api, *VALUES, best=3, status=SweepState.CANCELLED)
    several = ended(api, *VALUES, best=3)
    with api.db.write() as session:
        session.get_one(Sweep, several).best_number = None  # as that of several objectives

    assert [api.get(f"/v1/sweeps/{each}")["forecast"] for each in (few, cancelled, several)] == [None] * 3


def test_trials_that_break_a_constraint_bring_nothing(api: Api) -> None:
    sweep_id = ended(api, *VALUES, best=3)
    before = api.get(f"/v1/sweeps/{sweep_id}")["forecast"]
    with api.db.write() as session:
        make_trial(session, session.get_one(Sweep, sweep_id), objectives=[0.0], violations=[1.0], device_seconds=3600.0)

    after = api.get(f"/v1/sweeps/{sweep_id}")["forecast"]

    assert after["expected_improvement"] < before["expected_improvement"]
    assert after["expected_best_after_an_hour"] > before["expected_best_after_an_hour"]
