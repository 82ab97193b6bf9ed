"""Sweeps whose objective is a benchmark: a trial ends when the evaluations have ended that its training plans."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from sqlalchemy import select, update

from app.domain.lifecycle.states import JobState
from app.domain.spec.model import CHECKPOINT
from app.models import Checkpoint, Job, Metric, Trial
from app.models.base import utc_now
from app.services.attempts import planned_evaluations
from app.services.sweeps import evaluations, lookup, measures
from app.services.sweeps.reading import replay
from app.services.sweeps.search.suggestions import Suggestions
from tests.builders.factories import make_document
from tests.builders.sweep_runs import STEPS, SweepRun, constant
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
POINT = "bench/exact_match/exact_match"
METRIC = "benchmark:exact_match/exact_match"


def planned(*events: str, **changes: Any) -> dict[str, Any]:
    """Changes of a sweep whose objective is a benchmark, planned for these events; two trials at a time."""
    match = {"name": "exact_match", "dataset": {"path": "/srv/data/q.jsonl"}}
    plans = [{"on": event, "benchmarks": [match]} for event in events or ("end",)]
    job = make_document(training_config={"evaluations": plans})
    del job["name"]
    return {"job": job, "objective": {"metric": METRIC}, "budget": {"max_trials": 2, "parallel_trials": 2}, **changes}


def complete(run: SweepRun, number: int) -> None:
    """The training of a trial has completed, which makes the evaluations of its end."""
    run.train(number, curve=constant(1.0))
    run.end(number)
    with run.db.write() as session:
        planned_evaluations.make_at_end(session, session.get_one(Job, run.job(number).id), actor="test")


def checkpoint(run: SweepRun, number: int, step: int) -> None:
    """The training of a trial has saved a checkpoint, which makes its evaluation."""
    found = run.save(number, step)
    with run.db.write() as session:
        job, row = session.get_one(Job, run.job(number).id), session.get_one(Checkpoint, found)
        planned_evaluations.make(session, job, (CHECKPOINT,), actor="test", checkpoint=row)


def evaluation(run: SweepRun, number: int, step: int | None = None) -> Job:
    """The evaluation of a trial's checkpoint, or of its result."""
    of_it = (Job.evaluated_job_id == run.job(number).id, Job.evaluated_step.is_not_distinct_from(step))
    with run.db.read() as session:
        return session.scalars(select(Job).where(*of_it)).one()


def evaluate(run: SweepRun, number: int, value: float, step: int | None = None) -> None:
    """The evaluation completes with this value."""
    found = evaluation(run, number, step)
    is_odd = not math.isfinite(value)
    with run.db.write() as session:
        session.add(
            Metric(
                job_id=found.evaluated_job_id,
                name=POINT,
                step=STEPS if step is None else step,
                at=utc_now(),
                value=None if is_odd else value,
                special="NaN" if is_odd else None,
                attempt=1,
                seq=1,
            )
        )
    end(run, found, JobState.COMPLETED)


def remake(run: SweepRun, job: Job, state: JobState) -> None:
    """Another evaluation of the same model in this state, as a retry makes it."""
    columns: Mapping[str, Any] = {each.key: getattr(job, each.key) for each in Job.__mapper__.column_attrs}
    with run.db.write() as session:
        session.add(Job(**{**columns, "id": f"{job.id}-again", "status": state}))


def end(run: SweepRun, job: Job, state: JobState, **columns: Any) -> None:
    with run.db.write() as session:
        session.execute(update(Job).where(Job.id == job.id).values(status=state, finished_at=utc_now(), **columns))


@pytest.mark.long
def test_trial_waits_for_its_evaluation_and_has_its_value(make_run: Make, api: Api) -> None:
    run = make_run(**planned(budget={"max_trials": 2, "parallel_trials": 2, "max_device_hours": 100}))
    run.step()
    for number in (0, 1):
        complete(run, number)
    run.step()
    waiting = evaluation(run, 0)
    shown = api.get(f"/v1/sweeps/{run.id}/trials/0")
    assert (shown["state"], shown["job_status"]) == ("RUNNING", "COMPLETED")
    assert shown["waits_for"] == [{"evaluation_id": waiting.id, "status": waiting.status}]

    evaluate(run, 0, 0.25)
    evaluate(run, 1, 0.75)
    end(run, waiting, JobState.COMPLETED, elapsed_seconds=1800.0)
    run.step()
    run.step()

    assert [(trial.state, trial.objectives) for trial in run.trials()] == [("COMPLETED", [0.25]), ("COMPLETED", [0.75])]
    assert (run.sweep().best_number, run.sweep().status) == (1, "COMPLETED")
    assert run.trials()[0].device_seconds == pytest.approx(1800.0)
    assert api.get(f"/v1/sweeps/{run.id}/trials/0")["waits_for"] == []
    with run.db.read() as session:
        stored = replay.read(session, run.sweep())
    suggestions = Suggestions()
    assert replay.replay(stored, suggestions).differences == []


def test_trial_whose_evaluation_gives_no_value_says_why(make_run: Make) -> None:
    budget = {"max_trials": 3, "parallel_trials": 3}
    run = make_run(**planned(budget=budget, on_failed_trials={"max_failed": 5}))
    run.step()
    for number in range(3):
        complete(run, number)
    failed, cancelled = evaluation(run, 0), evaluation(run, 1)
    end(run, failed, JobState.FAILED, error_type="DATA_NOT_FOUND", error_message="no file /srv/data/q.jsonl")
    end(run, cancelled, JobState.CANCELLED, status_reason="not needed")
    evaluate(run, 2, math.nan)
    run.step()

    without = f"it ended without a finite value of {METRIC}"
    assert [(trial.state, trial.error_type, trial.reason) for trial in run.trials()] == [
        (
            "FAILED",
            "DATA_NOT_FOUND",
            f"{without}: its evaluation {failed.id} is FAILED, DATA_NOT_FOUND: no file /srv/data/q.jsonl",
        ),
        ("CANCELLED", None, f"{without}: its evaluation {cancelled.id} is CANCELLED, not needed"),
        ("FAILED", "NO_RESULT", without),
    ]


@pytest.mark.parametrize(
    ("select_", "expected"), [("best", [0.9]), ("last", [0.5]), ("mean:2", [0.7])], ids=["best", "last", "mean"]
)
def test_value_is_selected_among_those_of_checkpoints_and_result(
    make_run: Make, select_: str, expected: list[float]
) -> None:
    objective = {"metric": METRIC, "select": select_}
    run = make_run(**planned("checkpoint", "end", objective=objective, budget={"max_trials": 1}))
    run.step()
    checkpoint(run, 0, 9)
    complete(run, 0)
    evaluate(run, 0, 0.5)
    run.step()
    assert run.states() == ["RUNNING"]  # the checkpoint is still measured

    evaluate(run, 0, 0.9, step=9)
    run.step()

    assert run.trials()[0].objectives == pytest.approx([expected[0]])


def test_last_value_is_not_that_of_an_earlier_checkpoint(make_run: Make) -> None:
    objective = {"metric": METRIC, "select": "last"}
    run = make_run(**planned("checkpoint", "end", objective=objective, budget={"max_trials": 1}))
    run.step()
    checkpoint(run, 0, 9)
    evaluate(run, 0, 0.9, step=9)
    complete(run, 0)
    end(run, evaluation(run, 0), JobState.FAILED, error_type="DATA_INVALID", error_message="record 3")
    run.step()

    assert run.trials()[0].state == "FAILED"
    assert "DATA_INVALID: record 3" in run.trials()[0].reason


@pytest.mark.both_databases
def test_cancelled_sweep_cancels_the_evaluations_that_trials_wait_for(make_run: Make, api: Api) -> None:
    run = make_run(**planned())
    run.step()
    complete(run, 0)
    run.step()

    api.data(api.post(f"/v1/sweeps/{run.id}/cancel", {}))
    run.step()
    run.step()

    assert evaluation(run, 0).status == "CANCELLED"
    assert (run.states(), run.sweep().status) == (["CANCELLED", "CANCELLED"], "CANCELLED")


def test_stopped_trial_ends_with_what_was_measured_and_its_evaluation_is_cancelled(make_run: Make, api: Api) -> None:
    run = make_run(**planned("checkpoint", "end"))
    run.step()
    checkpoint(run, 0, 9)
    evaluate(run, 0, 0.4, step=9)
    complete(run, 0)
    run.step()

    api.data(api.post(f"/v1/sweeps/{run.id}/trials/0/stop"))
    run.step()

    trial = run.trials()[0]
    assert (trial.state, trial.objectives, trial.step) == ("STOPPED", [0.4], 9)
    assert evaluation(run, 0).status == "CANCELLED"


def test_used_up_budget_that_cancels_counts_what_was_measured(make_run: Make) -> None:
    budget = {"max_trials": 9, "parallel_trials": 1, "max_device_hours": 1.0, "running": "cancel"}
    run = make_run(**planned("checkpoint", "end", budget=budget))
    run.step()
    checkpoint(run, 0, 9)
    evaluate(run, 0, 0.4, step=9)
    complete(run, 0)
    # Its device time counts while the trial waits.
    end(run, evaluation(run, 0), JobState.QUEUED, elapsed_seconds=7200.0)
    for _ in range(3):
        run.step()

    assert (run.trials()[0].state, run.trials()[0].objectives) == ("STOPPED", [0.4])
    assert (evaluation(run, 0).status, run.sweep().status) == ("CANCELLED", "FAILED")


def test_rungs_wait_for_the_evaluations_of_their_checkpoints(make_run: Make) -> None:
    run = make_run(**planned("checkpoint", early_stopping={"name": "asha", "min": 3, "max": 27}))
    run.step()
    for number in (0, 1):
        run.train(number, to=9, curve=constant(1.0))
        checkpoint(run, number, 3)
        checkpoint(run, number, 9)
    evaluate(run, 0, 0.9, step=9)  # before that of the first rung
    run.step()
    assert run.reports() == []

    evaluate(run, 1, 0.8, step=3)
    evaluate(run, 0, 0.2, step=3)
    run.step()

    found = [(each.number, each.rung, each.value, each.continues) for each in run.reports()]
    assert found == [(0, 3, 0.2, True), (1, 3, 0.8, True), (0, 9, 0.9, True)]


def test_halted_trial_stays_until_its_checkpoint_is_measured(make_run: Make) -> None:
    run = make_run(**planned("checkpoint", early_stopping={"name": "asha", "min": 3, "max": 27, "losers": "pause"}))
    run.step()
    for number, value in ((0, 0.2), (1, 0.8)):
        run.halt(number, at=3, curve=constant(1.0))
        checkpoint(run, number, 3)
        run.step()
        assert (len(run.reports()), run.job(number).status) == (number, "PAUSED")
        evaluate(run, number, value, step=3)
        run.step()

    for _ in range(3):
        run.step()
    assert [(each.rung, each.value) for each in run.reports()] == [(3, 0.2), (3, 0.8)]
    assert run.job(1).status in ("PENDING", "QUEUED")  # the better one continues
    run.halt(1, at=9, curve=constant(1.0))
    checkpoint(run, 1, 9)
    run.step()
    assert (len(run.reports()), run.job(1).status) == (2, "PAUSED")  # it is no halt that was decided about


@pytest.mark.long
@pytest.mark.both_databases
def test_fork_counts_what_its_trunk_has_measured(make_run: Make) -> None:
    run = make_run(**planned("checkpoint", "end"))
    run.step()
    checkpoint(run, 0, 9)
    checkpoint(run, 0, 18)
    evaluate(run, 0, 0.9, step=18)
    branch = evaluation(run, 0, 9).resume_checkpoint_id
    with run.db.write() as session:
        fork = session.get_one(Trial, (run.id, 1))
        fork.parent_number, fork.fork_step, fork.fork_checkpoint_id = 0, 9, branch
        session.get_one(Job, fork.job_id).resume_checkpoint_id = branch
    complete(run, 1)
    evaluate(run, 1, 0.5)
    evaluate(run, 0, 0.6, step=9)
    run.step()

    assert run.trials()[1].objectives == [0.6]  # step 18 of the other one is not its own


def test_fork_was_measured_where_it_measured_itself(make_run: Make) -> None:
    run = make_run(**planned("checkpoint"))
    run.step()
    checkpoint(run, 0, 9)
    evaluate(run, 0, 0.6, step=9)
    branch = evaluation(run, 0, 9).resume_checkpoint_id
    with run.db.write() as session:
        fork = session.get_one(Trial, (run.id, 1))
        fork.parent_number, fork.fork_step, fork.fork_checkpoint_id = 0, 9, branch
        session.get_one(Job, fork.job_id).resume_checkpoint_id = branch
    checkpoint(run, 1, 18)
    evaluate(run, 1, 0.5, step=18)

    with run.db.read() as session:
        job = session.get_one(Job, run.job(1).id)
        assert measures.first_value_from(session, job, METRIC, 9) == (9, 0.6)
        assert measures.measured_at(session, job, METRIC, 9) is None
        assert measures.measured_at(session, job, METRIC, 18) is not None


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_retried_evaluation_does_not_take_away_what_was_measured(make_run: Make, state: JobState) -> None:
    run = make_run(**planned(budget={"max_trials": 1}))
    run.step()
    complete(run, 0)
    evaluate(run, 0, 0.5)
    remake(run, evaluation(run, 0), state)
    run.step()

    assert (run.states(), run.trials()[0].objectives) == (["COMPLETED"], [0.5])


def test_evaluation_that_failed_counts_once_it_was_retried(make_run: Make) -> None:
    run = make_run(**planned(budget={"max_trials": 1}))
    run.step()
    complete(run, 0)
    first = evaluation(run, 0)
    evaluate(run, 0, 0.5)
    remake(run, first, JobState.COMPLETED)
    end(run, first, JobState.FAILED)
    run.step()

    assert run.trials()[0].objectives == [0.5]


def test_value_of_another_benchmark_with_the_same_label_does_not_count(make_run: Make) -> None:
    run = make_run(**planned("checkpoint", "end", budget={"max_trials": 1}))
    run.step()
    checkpoint(run, 0, 9)
    evaluate(run, 0, 0.9, step=9)
    with run.db.write() as session:
        other = session.get_one(Job, evaluation(run, 0, 9).id)
        other.spec = json.loads(json.dumps(other.spec).replace('"exact_match"', '"choices"'))
    complete(run, 0)
    evaluate(run, 0, 0.5)
    run.step()

    assert run.trials()[0].objectives == [0.5]


def test_cancelled_sweep_does_not_wait_for_evaluations_that_were_made_later(make_run: Make, api: Api) -> None:
    run = make_run(**planned(budget={"max_trials": 1}))
    run.step()
    run.train(0, curve=constant(1.0))
    run.end(0)
    api.data(api.post(f"/v1/sweeps/{run.id}/cancel", {}))
    with run.db.write() as session:
        planned_evaluations.make_at_end(session, session.get_one(Job, run.job(0).id), actor="test")
    run.step()

    assert evaluation(run, 0).status == "CANCELLED"
    assert (run.states(), run.sweep().status) == (["CANCELLED"], "CANCELLED")


def test_jobs_are_locked_before_evaluations_of_ended_trials(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run, taken = make_run(**planned("checkpoint", "end")), list[str]()
    run.step()
    checkpoint(run, 0, 9)
    run.train(0, to=9, curve=constant(1.0))
    run.end(0, JobState.FAILED, error_type="OOM")
    for module, name in ((lookup, "locked_jobs"), (evaluations, "cancel")):
        original = getattr(module, name)

        def noting(*args: Any, of: Callable[..., Any] = original, as_: str = name, **keywords: Any) -> Any:
            taken.append(as_)
            return of(*args, **keywords)

        monkeypatch.setattr(module, name, noting)
    run.step()

    assert taken == ["locked_jobs", "cancel"]
    assert evaluation(run, 0, 9).status == "CANCELLED"


def test_failed_trial_of_a_deterministic_sweep_reports_no_more(make_run: Make) -> None:
    stopping = {"name": "asha", "min": 3, "max": 27}
    run = make_run(**planned("checkpoint", early_stopping=stopping, deterministic=True))
    run.step()
    for number in (0, 1):
        run.train(number, to=9, curve=constant(1.0))
        checkpoint(run, number, 3)
    run.end(0, JobState.FAILED, error_type="OOM")
    evaluate(run, 1, 0.8, step=3)
    run.step()
    evaluate(run, 0, 0.2, step=3)
    run.step()

    assert [(each.number, each.value) for each in run.reports()] == [(1, 0.8)]
