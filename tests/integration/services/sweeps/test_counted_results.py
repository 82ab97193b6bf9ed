"""Sweeps of which an earlier sweep's result may be the best (`warm_start.count`)."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from app.models import Checkpoint, Job, Sweep, Trial
from tests.builders.factories import make_checkpoint
from tests.builders.sweep_runs import SweepRun, bowl, constant
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
ONE = {"max_trials": 1, "parallel_trials": 1}


@pytest.fixture
def earlier(make_run: Make) -> SweepRun:
    """Three trials, of which the second has found 0.5."""
    run = make_run(budget={"max_trials": 3, "parallel_trials": 3})
    run.step()
    for number, value in enumerate((2.0, 0.5, 1.0)):
        run.train(number, curve=constant(value))
        run.end(number)
    run.step()
    assert run.sweep().status == "COMPLETED"
    return run


def counting(earlier: SweepRun, **changes: Any) -> dict[str, Any]:
    return {"budget": ONE, "warm_start": {"sweeps": [earlier.id], "count": True}, **changes}


@pytest.mark.both_databases
def test_an_earlier_result_is_the_best_until_a_trial_is_better(make_run: Make, earlier: SweepRun, api: Api) -> None:
    run = make_run(**counting(earlier, budget={"max_trials": 2, "parallel_trials": 1}))
    origin = {"sweep_id": earlier.id, "number": 1}
    first = api.get(f"/v1/sweeps/{run.id}")["best"]
    assert first == {
        "number": -2,
        "job_id": earlier.job(1).id,
        "values": earlier.trials()[1].values,
        "objectives": [0.5],
        "earlier": origin,
    }

    run.step()
    run.train(0, curve=constant(0.7))
    run.end(0)
    run.step()
    assert run.sweep().best_number == -2
    assert "sweep.best" not in run.events()
    run.train(1, curve=constant(0.3))
    run.end(1)
    run.step()

    shown = api.get(f"/v1/sweeps/{run.id}")
    assert (shown["best"]["number"], shown["best"]["objectives"], shown["best"]["earlier"]) == (1, [0.3], None)
    assert (shown["trials"], shown["status"]) == (2, "COMPLETED")
    assert api.get(f"/v1/sweeps/{run.id}/replay")["is_equal"] is True


@pytest.mark.long
def test_the_best_results_are_shown_with_where_they_come_from(make_run: Make, earlier: SweepRun, api: Api) -> None:
    run = make_run(**counting(earlier))
    run.step()
    run.train(0, curve=constant(0.7))
    run.end(0)
    run.step()

    [first, second, third, last] = api.get(f"/v1/sweeps/{run.id}/best?top=10&document=true")["trials"]
    assert [each["number"] for each in (first, second, third, last)] == [-2, 0, -1, -3]
    assert first["earlier"] == {"sweep_id": earlier.id, "number": 1}
    assert (first["source"], first["state"], first["job_status"]) == ("earlier", "COMPLETED", "COMPLETED")
    assert (first["reports"], first["device_seconds"], first["step"]) == ([], 0.0, 27)
    assert (second["earlier"], second["job_id"]) == (None, run.job(0).id)
    assert first["document"]["name"] == "search-best-earlier-2"
    again = api.data(api.post("/v1/jobs", first["document"]), 201)
    with run.db.read() as session:
        given = session.get_one(Job, again["job_id"]).document.training_config.hyperparameters
    assert float(given["learning_rate"]) == earlier.trials()[1].values["learning_rate"]
    numbers = [each["number"] for each in api.get(f"/v1/sweeps/{run.id}/trials")["trials"]]
    assert numbers == [0]  # the sweep has no trial with a number below 0


def test_an_earlier_result_outlives_its_sweep(make_run: Make, earlier: SweepRun, api: Api) -> None:
    run = make_run(**counting(earlier))
    assert api.call("DELETE", f"/v1/sweeps/{earlier.id}").status_code == 204

    [best] = api.get(f"/v1/sweeps/{run.id}/best")["trials"]
    assert (best["number"], best["earlier"]) == (-2, {"sweep_id": earlier.id, "number": 1})
    assert (best["objectives"], best["job_status"]) == ([0.5], "COMPLETED")  # the job has stayed


def test_a_target_that_an_earlier_result_reached_ends_the_sweep(make_run: Make, earlier: SweepRun) -> None:
    run = make_run(**counting(earlier, budget={**ONE, "target": 0.6}))
    run.run()

    assert (run.sweep().status, run.trials()) == ("COMPLETED", [])
    assert run.sweep().status_reason == "target: the best result of an earlier sweep reached 0.5"


def test_patience_counts_from_an_earlier_result(make_run: Make, earlier: SweepRun) -> None:
    run = make_run(**counting(earlier, budget={"max_trials": 9, "parallel_trials": 1, "patience": 2}))
    run.run(curve=constant(0.6))

    assert run.sweep().status_reason == "patience: 2 trials were not better than the best result of an earlier sweep"


def test_checkpoints_are_kept_of_the_sweeps_own_trials(make_run: Make, earlier: SweepRun) -> None:
    run = make_run(**counting(earlier, budget={"max_trials": 2, "parallel_trials": 2}, keep={"checkpoints_of_best": 1}))
    run.step()
    with run.db.write() as session:
        for number in (0, 1):
            make_checkpoint(session, session.get_one(Job, run.job(number).id), step=9)
    for number, value in enumerate((3.0, 0.7)):
        run.train(number, curve=constant(value))
        run.end(number)
    run.step()

    with run.db.read() as session:
        query = select(Trial.number).join(Checkpoint, Checkpoint.job_id == Trial.job_id)
        left = session.scalars(query.where(Trial.sweep_id == run.id, Checkpoint.deleted_at.is_(None))).all()
    assert (left, run.sweep().best_number, run.sweep().status) == ([1], -2, "COMPLETED")


def test_results_that_a_sweep_began_with_keep_their_origin(make_run: Make, earlier: SweepRun, api: Api) -> None:
    second = make_run(budget=ONE, warm_start={"sweeps": [earlier.id]})
    second.run(curve=constant(3.0))
    third = make_run(**counting(second))
    best = api.get(f"/v1/sweeps/{third.id}")["best"]
    assert (best["earlier"], best["number"]) == ({"sweep_id": earlier.id, "number": 1}, -3)

    # Stored before results had an origin: they are known by the sweep that knew them.
    with second.db.write() as session:
        row = session.get_one(Sweep, second.id)
        row.known = [{name: value for name, value in raw.items() if name != "origin"} for raw in row.known]
    fourth = make_run(**counting(second))
    assert api.get(f"/v1/sweeps/{fourth.id}")["best"]["earlier"] == {"sweep_id": second.id, "number": -2}
    assert api.get(f"/v1/sweeps/{second.id}/replay")["is_equal"] is True


def test_of_several_objectives_earlier_results_are_on_the_front(make_run: Make, api: Api) -> None:
    two = {"objective": [{"metric": "eval_loss"}, {"metric": "loss"}]}
    first = make_run(**two, budget=ONE)
    first.step()
    first.train(0, to=26, curve=constant(1.0))
    first.train(0, curve=constant(5.0), metric="loss")
    first.end(0)
    first.step()
    run = make_run(**two, **counting(first))

    assert api.get(f"/v1/sweeps/{run.id}")["best"] is None
    assert [each["number"] for each in api.get(f"/v1/sweeps/{run.id}/best?top=9")["trials"]] == [-1]


TIGHT: dict[str, Any] = {"constraints": [{"metric": "loss", "at_most": 1.0}]}


def test_a_sweep_of_other_constraints_does_not_count(make_run: Make, earlier: SweepRun, api: Api) -> None:
    answer = api.post("/v1/sweeps", make_sweep_document(**counting(earlier), **TIGHT))

    [detail] = api.problem(answer, 400)["details"]
    assert detail["field"] == "warm_start.sweeps.0"
    assert "has other constraints" in detail["message"]
    known = make_run(**{**counting(earlier), "warm_start": {"sweeps": [earlier.id]}}, **TIGHT)
    assert len(known.known()) == 3


def test_results_count_that_were_judged_by_the_same_constraints(make_run: Make, earlier: SweepRun) -> None:
    """Those that the second sweep began with were not."""
    second = make_run(budget={"max_trials": 2, "parallel_trials": 2}, warm_start={"sweeps": [earlier.id]}, **TIGHT)
    second.step()
    for number, loss in enumerate((0.5, 2.0)):
        second.train(number, to=26, curve=constant(loss), metric="loss")
        second.train(number, curve=constant(0.9 - number / 10))
        second.end(number)
    second.step()

    same, none = make_run(**counting(second), **TIGHT), make_run(**counting(second))

    assert same.sweep().best_number == -2  # 0.9, since 0.8 breaks the constraint and 0.5 was never judged by it
    assert none.sweep().best_number == -4  # 0.5


def test_earlier_results_are_never_best_unless_they_count(make_run: Make, earlier: SweepRun, api: Api) -> None:
    run = make_run(budget=ONE, warm_start={"sweeps": [earlier.id]})

    assert api.get(f"/v1/sweeps/{run.id}")["best"] is None
    assert api.get(f"/v1/sweeps/{run.id}/best")["trials"] == []
    run.run(curve=bowl)
    assert run.sweep().best_number == 0
