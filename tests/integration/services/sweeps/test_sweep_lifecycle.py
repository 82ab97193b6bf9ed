"""A sweep from its creation to its end: trials, budgets, failures, constraints, and control requests."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.domain.sweeps.documents import with_all_data
from app.models import ApiKey, Checkpoint, Job, JobEvent, Sweep, Trial
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.access import api_keys
from tests.builders.factories import make_checkpoint
from tests.builders.sweep_runs import SweepRun, constant
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]


@pytest.mark.both_databases
def test_trials_are_jobs_with_the_values_of_the_sweep(make_run: Make) -> None:
    run = make_run(labels={"team": "a"})
    run.step()

    first, second = run.trials()
    job = run.job(0)
    assert [first.number, second.number, run.sweep().next_number] == [0, 1, 2]  # parallel_trials is 2
    assert (job.name, job.sweep_id, job.status) == ("search-0", run.id, "PENDING")
    assert job.labels == {"team": "a", "trainyard/sweep": run.id, "trainyard/trial": "0"}
    given = job.document.training_config.hyperparameters
    assert float(given["learning_rate"]) == first.values["learning_rate"] != second.values["learning_rate"]
    assert float(given["weight_decay"]) == first.values["weight_decay"]
    assert (job.document.scheduling_config.preemptible, job.document.scheduling_config.on_preemption) == (
        True,
        "requeue",
    )
    assert run.sweep().status == "RUNNING"
    assert run.events() == ["sweep.status", "sweep.status", "trial.started", "trial.started"]


@pytest.mark.both_databases
def test_a_sweep_ends_when_its_trials_are_used_up_and_names_the_best(make_run: Make, api: Api) -> None:
    run = make_run()
    run.run()

    shown = api.get(f"/v1/sweeps/{run.id}")
    best = min(run.trials(), key=lambda trial: trial.objectives[0] if trial.objectives else math.inf)
    assert (shown["status"], shown["status_reason"]) == ("COMPLETED", "max_trials: 4 trials were made")
    assert shown["trials_by_state"]["COMPLETED"] == 4
    assert shown["best"]["number"] == best.number == run.sweep().best_number
    shown = api.get(f"/v1/sweeps/{run.id}/best?top=2")["trials"][0]
    assert (shown["number"], shown["report"]["job_id"], shown["artifacts"]) == (best.number, best.job_id, [])
    assert (shown["report"]["status"], shown["report"]["forked_from"]) == ("SUCCESS", None)
    ordered = api.get(f"/v1/sweeps/{run.id}/trials?order_by=value&page_size=3")
    values = sorted(trial.objectives[0] for trial in run.trials() if trial.objectives)
    assert ([t["objectives"][0] for t in ordered["trials"]], ordered["total_count"]) == (values[:3], 4)
    document = api.get(f"/v1/sweeps/{run.id}/best?document=true")["trials"][0]["document"]
    for again in (document, with_all_data(document)):
        assert api.data(api.post("/v1/jobs", again), 201)["status"] == "PENDING"


def test_a_grid_tries_every_point_once(make_run: Make) -> None:
    parameters = {
        "learning_rate": {"type": "double", "values": [1e-4, 1e-3]},
        "weight_decay": {"type": "categorical", "values": [0.0, 0.1]},
    }
    run = make_run(parameters=parameters, method={"name": "grid"}, budget={"parallel_trials": 4})
    run.run()

    tried = {(trial.values["learning_rate"], trial.values["weight_decay"]) for trial in run.trials()}
    assert (len(run.trials()), len(tried), run.sweep().status) == (4, 4, "COMPLETED")
    assert run.sweep().status_reason == "every point of the grid was tried"


def test_enqueued_values_come_first(make_run: Make) -> None:
    chosen = {"learning_rate": 5e-4, "weight_decay": 0.1}
    run = make_run(enqueue=[chosen])
    run.run()

    assert run.trials()[0].values == chosen
    assert [trial.source for trial in run.trials()] == ["enqueued", "method", "method", "method"]


@pytest.mark.both_databases
def test_asha_stops_losers_whose_reports_count(make_run: Make) -> None:
    rates = [1e-3, 1e-2, 1e-5, 2e-3]
    run = make_run(
        enqueue=[{"learning_rate": rate, "weight_decay": 0.0} for rate in rates],
        early_stopping={"name": "asha", "min": 3, "max": 27},
        budget={"max_trials": 4, "parallel_trials": 1},
    )
    run.run()

    assert run.states() == ["COMPLETED", "STOPPED", "STOPPED", "STOPPED"]
    assert [(r.number, r.rung, r.rank, r.compared, r.continues) for r in run.reports()][3:5] == [
        (1, 3, 2, 2, False),
        (2, 3, 3, 3, False),
    ]
    loser = run.trials()[1]
    assert (loser.reason, loser.step) == ("rank 2 of 2 at 3 steps", 3)
    assert loser.objectives == pytest.approx([1 + 1 / 3])
    with run.db.read() as session:
        event = select(JobEvent.message).where(JobEvent.job_id == loser.job_id, JobEvent.type == "job.cancel_requested")
        assert session.scalars(event).all() == ["stopped by its sweep: rank 2 of 2 at 3 steps"]


def test_a_promoted_trial_is_not_stopped(make_run: Make, api: Api) -> None:
    rates = [1e-3, 1e-2]
    run = make_run(
        enqueue=[{"learning_rate": rate, "weight_decay": 0.0} for rate in rates],
        early_stopping={"name": "asha", "min": 3, "max": 27},
        budget={"max_trials": 2, "parallel_trials": 2},
    )
    run.step()
    api.data(api.post(f"/v1/sweeps/{run.id}/trials/1/promote"))
    run.run()

    assert run.states() == ["COMPLETED", "COMPLETED"]
    assert [report.rank for report in run.reports() if report.number == 1] == [2, 2, 2]


def test_a_value_that_is_not_finite_is_never_best(make_run: Make) -> None:
    run = make_run(budget={"max_trials": 2, "parallel_trials": 2}, objective={"metric": "eval_loss", "select": "last"})
    run.step()
    run.train(0, curve=lambda _values, step: math.nan if step == 27 else 0.001)
    run.train(1)
    run.end(0)
    run.end(1)
    run.step()

    assert run.states() == ["FAILED", "COMPLETED"]
    failed = run.trials()[0]
    assert (failed.error_type, failed.reason) == ("NO_RESULT", "it ended without a finite value of eval_loss")
    assert run.sweep().best_number == 1


def test_a_trial_that_breaks_a_constraint_is_not_best(make_run: Make, api: Api) -> None:
    run = make_run(
        budget={"max_trials": 2, "parallel_trials": 2}, constraints=[{"metric": "rank_memory_mb_max", "at_most": 100}]
    )
    run.step()
    for number, memory in ((0, 200.0), (1, 50.0)):
        run.train(number, to=1, curve=constant(memory), metric="rank_memory_mb_max")
        with run.db.write() as session:
            session.get_one(Job, run.trials()[number].job_id).current_step = 0
    run.train(0, curve=constant(0.1))
    run.train(1, curve=constant(0.9))
    run.end(0)
    run.end(1)
    run.step()
    run.step()

    assert run.sweep().best_number == 1
    first = api.get(f"/v1/sweeps/{run.id}/trials/0")
    assert (first["is_feasible"], first["state"], first["reason"]) == (False, "COMPLETED", "breaks a constraint")


def test_several_objectives_have_a_front(make_run: Make, api: Api) -> None:
    run = make_run(
        objective=[{"metric": "eval_loss"}, {"metric": "report.gpu_time_ms", "goal": "minimize"}],
        budget={"max_trials": 3, "parallel_trials": 3},
    )
    run.step()
    run.step()
    for number, (loss, milliseconds) in enumerate(((0.5, 10), (0.4, 20), (0.6, 30))):
        run.train(number, curve=constant(loss))
        run.end(number, gpu_seconds=milliseconds / 1000)
    run.step()
    run.step()

    assert run.sweep().best_number is None
    assert [trial["number"] for trial in api.get(f"/v1/sweeps/{run.id}/best?top=10")["trials"]] == [0, 1]


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"target": 1.0}, "target: trial 0 reached"),
        ({"patience": 1}, "patience: 1 trials were not better than trial 0"),
        ({"max_device_hours": 1.0}, "max_device_hours: 2.00 device hours were used"),
        ({"max_seconds": 60}, "max_seconds: "),
    ],
)
def test_whatever_part_of_the_budget_is_used_up_first_ends_the_sweep(
    make_run: Make, budget: dict[str, Any], reason: str
) -> None:
    rates = [1e-3, 1e-2]
    run = make_run(
        enqueue=[{"learning_rate": rate, "weight_decay": 0.0} for rate in rates],
        budget={"max_trials": 50, "parallel_trials": 1, **budget},
    )
    for number in range(2):
        run.step()
        if len(run.trials()) <= number:
            break
        run.train(number)
        run.end(number, elapsed_seconds=7200.0)
        if "max_seconds" in budget:
            with run.db.write() as session:
                session.get_one(Sweep, run.id).started_at = utc_now().replace(year=2020)
    run.step()
    run.step()

    assert run.sweep().status == "COMPLETED"
    assert run.sweep().status_reason.startswith(reason)
    assert len(run.trials()) <= 2


def test_trials_that_run_when_the_budget_is_used_up_may_be_cancelled(make_run: Make) -> None:
    run = make_run(budget={"max_trials": 50, "parallel_trials": 2, "target": 5.0, "running": "cancel"})
    run.step()
    run.train(1, to=3)
    run.train(0, curve=constant(1.0))
    run.end(0)
    run.step()

    assert (run.sweep().status, run.job(1).requested) == ("FINISHING", "cancel")
    run.carry_out(1)
    run.step()
    assert (run.sweep().status, run.states()) == ("COMPLETED", ["COMPLETED", "STOPPED"])
    assert run.trials()[1].objectives is not None


def test_a_sweep_fails_when_too_many_trials_fail(make_run: Make) -> None:
    run = make_run(budget={"max_trials": 9, "parallel_trials": 1}, on_failed_trials={"max_failed": 1})
    for number in range(2):
        run.step()
        run.end(number, JobState.FAILED, error_type="OUT_OF_MEMORY", error_message="too large")
    run.step()

    assert run.sweep().status == "FAILED"
    assert run.sweep().status_reason == "2 trials failed; on_failed_trials.max_failed allows 1"


def test_a_sweep_fails_at_once_when_its_first_trials_fail_alike_for_a_cause_of_its_fixed_part(make_run: Make) -> None:
    run = make_run(budget={"max_trials": 60, "parallel_trials": 3})
    run.step()
    run.step()
    for number in range(3):
        run.end(number, JobState.FAILED, error_type="DATA_INVALID", error_message="row 3 is no JSON")
    run.step()

    assert run.sweep().status == "FAILED"
    assert run.sweep().status_reason == "the first 3 trials failed alike: DATA_INVALID: row 3 is no JSON"


@pytest.mark.both_databases
def test_no_trial_begins_after_a_cancel_and_none_is_left(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 50, "parallel_trials": 2})
    run.step()
    run.train(0, to=3)
    api.data(api.post(f"/v1/sweeps/{run.id}/cancel", {"reason": "enough"}))
    run.step()

    assert run.job(0).requested == "cancel"  # it trains
    assert run.job(1).status == "CANCELLED"  # it waited
    run.carry_out(0)
    run.step()
    assert (run.sweep().status, run.states()) == ("CANCELLED", ["CANCELLED", "CANCELLED"])
    repeated = api.data(api.post(f"/v1/sweeps/{run.id}/cancel"))
    assert repeated["status"] == "CANCELLED"
    assert api.problem(api.post(f"/v1/sweeps/{run.id}/pause"), 409)["code"] == "INVALID_STATE"


def test_a_paused_sweep_makes_no_trial_and_pauses_those_that_run(make_run: Make, api: Api) -> None:
    run = make_run()
    run.step()
    run.train(0, to=3)
    api.data(api.post(f"/v1/sweeps/{run.id}/pause"))
    run.step()

    assert run.job(0).requested == "pause"
    assert (run.job(1).status, run.sweep().status) == ("PAUSED", "PAUSED")
    run.end(0, JobState.COMPLETED)
    run.step()
    assert (len(run.trials()), run.states()) == (2, ["COMPLETED", "RUNNING"])
    api.data(api.post(f"/v1/sweeps/{run.id}/resume"))
    assert run.job(1).status == "QUEUED"
    run.run()
    assert run.sweep().status == "COMPLETED"


def test_a_stopped_sweep_lets_its_trials_end(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 50, "parallel_trials": 1})
    run.step()
    assert api.data(api.post(f"/v1/sweeps/{run.id}/stop"))["status"] == "FINISHING"
    run.run()

    assert (run.states(), run.sweep().status) == (["COMPLETED"], "COMPLETED")


def test_a_larger_budget_lets_a_completed_sweep_continue(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 2, "parallel_trials": 1})
    run.run()
    changed = api.data(api.call("PATCH", f"/v1/sweeps/{run.id}", json={"budget": {"max_trials": 3}, "priority": 7}))
    assert (changed["status"], changed["document"]["budget"]["max_trials"]) == ("RUNNING", 3)
    run.run()

    assert (len(run.trials()), run.sweep().status, run.job(2).priority) == (3, "COMPLETED", 7)


def test_values_by_hand_are_tried_too_and_count(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 2, "parallel_trials": 1})
    run.step()
    values = {"learning_rate": 2e-3, "weight_decay": 0.1}
    added = api.data(api.post(f"/v1/sweeps/{run.id}/trials", {"values": values}), 201)
    assert (added["number"], added["source"], added["values"]) == (1, "added", values)
    wrong = api.problem(api.post(f"/v1/sweeps/{run.id}/trials", {"values": {**values, "learning_rate": 1.0}}), 400)
    assert wrong["details"][0]["field"] == "values.learning_rate"
    assert api.problem(api.post(f"/v1/sweeps/{run.id}/trials", {"values": values}), 429)["code"] == "QUOTA_EXCEEDED"
    run.run()
    assert len(run.trials()) == 2


def test_a_trial_that_is_stopped_by_hand_counts(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 1, "parallel_trials": 1})
    run.step()
    run.train(0, to=3)
    api.data(api.post(f"/v1/sweeps/{run.id}/trials/0/stop"))
    run.carry_out(0)
    run.step()

    trial = run.trials()[0]
    assert (trial.state, trial.step) == ("STOPPED", 3)
    assert trial.objectives == pytest.approx([run_value(trial.values, 3)])


def run_value(values: dict[str, Any], step: int) -> float:
    return float((math.log10(values["learning_rate"]) + 3) ** 2 + 1.0 / step)


def test_a_revoked_key_submits_no_trials_until_another_resumes_the_sweep(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 2, "parallel_trials": 1})
    owner = api_keys.authenticate(api.db, api.key)
    other = api.make_key(Role.USER)
    with api.db.write() as session:
        session.get_one(ApiKey, owner.key_id).revoked_at = utc_now()
    run.step()

    assert (run.trials(), run.sweep().status) == ([], "PENDING")
    assert run.sweep().pending_reason.startswith(
        "the API key that submits its trials is revoked or expired; pause the sweep and resume it"
    )
    api.data(api.post(f"/v1/sweeps/{run.id}/pause", key=other))
    api.data(api.post(f"/v1/sweeps/{run.id}/resume", key=other))
    run.step()
    assert (len(run.trials()), run.sweep().pending_reason) == (1, "")


def test_secrets_are_masked_and_reach_every_trial(make_run: Make, api: Api) -> None:
    job = make_sweep_document()["job"]
    job["training_config"]["environment"] = {"MY_TOKEN": "s3cret-value"}
    run = make_run(job=job)
    run.step()

    assert "s3cret-value" not in api.call("GET", f"/v1/sweeps/{run.id}").get_data(as_text=True)
    trial = run.job(0)
    assert trial.document.training_config.environment == {"MY_TOKEN": "***"}
    assert run.plane.box.open(trial.sealed_secrets) == {"training_config.environment.MY_TOKEN": "s3cret-value"}


def test_deleting_a_sweep_leaves_its_jobs(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 1, "parallel_trials": 1})
    assert api.problem(api.call("DELETE", f"/v1/sweeps/{run.id}"), 409)["code"] == "INVALID_STATE"
    run.run()
    job_id = run.trials()[0].job_id
    assert api.call("DELETE", f"/v1/sweeps/{run.id}").status_code == 204

    assert api.call("GET", f"/v1/sweeps/{run.id}").status_code == 404
    with api.db.read() as session:
        assert session.get_one(Job, job_id).sweep_id is None


@pytest.mark.both_databases
def test_only_the_checkpoints_of_the_best_trials_outlive_the_sweep(make_run: Make) -> None:
    rates = [1e-2, 1e-3, 1e-4]
    run = make_run(
        enqueue=[{"learning_rate": rate, "weight_decay": 0.0} for rate in rates],
        budget={"max_trials": 3, "parallel_trials": 3},
        keep={"checkpoints_of_best": 1},
    )
    run.step()
    run.step()
    with run.db.write() as session:
        for trial in run.trials():
            job = session.get_one(Job, trial.job_id)
            make_checkpoint(session, job, step=9)
    run.run()

    with run.db.read() as session:
        query = select(Trial.number).join(Checkpoint, Checkpoint.job_id == Trial.job_id)
        left = session.scalars(query.where(Trial.sweep_id == run.id, Checkpoint.deleted_at.is_(None))).all()
    assert (left, run.sweep().best_number, run.sweep().status) == ([1], 1, "COMPLETED")
