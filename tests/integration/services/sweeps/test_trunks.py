"""Trials that begin with the checkpoint of an earlier one: which, where, and what counts as measured by them."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from app.domain.lifecycle.states import JobState
from app.models import Job, Sweep, SweepCount
from app.services.sweeps.counts import BEYOND, Kind
from tests.builders.factories import make_document, make_project
from tests.builders.sweep_runs import SweepRun, constant
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
# Decays are half of a training: 24 steps have 7 in common with one of 12, and 13 with a longer one.
DECAY = {"lr_scheduler_type": "warmup_stable_decay", "lr_decay_ratio": "0.5"}
LENGTHS: dict[str, Any] = {"max_steps": {"type": "int", "values": [48, 24, 12]}}


def job_of() -> dict[str, Any]:
    training = {"hyperparameters": DECAY, "evaluation": {"strategy": "steps", "steps": 3}}
    document = make_document(training_config=training, data_config={"validation_split": 0.1})
    del document["name"]
    return document


@pytest.fixture
def make(make_run: Make) -> Make:
    """A sweep over three lengths, the longest first, three at a time."""

    def run(**changes: Any) -> SweepRun:
        document = {
            "job": job_of(),
            "parameters": LENGTHS,
            "method": {"name": "grid", "order": "natural"},
            "budget": {"parallel_trials": 3},
        }
        return make_run(**{**document, **changes})

    return run


def saves_of(job: Job) -> tuple[int, ...]:
    return job.document.output_config.checkpoint.save_at


def forks(run: SweepRun) -> list[tuple[int | None, int]]:
    return [(trial.parent_number, trial.fork_step) for trial in run.trials()]


@pytest.mark.long
@pytest.mark.both_databases
def test_trials_begin_where_they_branch_off_the_first_one(make: Make, api: Api) -> None:
    run = make()
    run.step()

    assert (forks(run), saves_of(run.job(0))) == ([(None, 0)], (7, 13))
    assert run.sweep().pending_reason == "waits for trial 0 to save at step 13, where trial 1 branches off"
    run.train(0, to=13, curve=constant(1.0))
    saved = {step: run.save(0, step) for step in (7, 13)}
    run.step()

    fork = run.job(1)
    assert forks(run) == [(None, 0), (0, 13), (0, 7)]
    assert (fork.resume_checkpoint_id, fork.document.training_config.resume_from_checkpoint) == (saved[13], saved[13])
    shown = api.get(f"/v1/sweeps/{run.id}/trials/2")
    assert (shown["forked_from"], shown["steps_saved"], shown["values"]) == (0, 7, {"max_steps": 12})
    assert run.sweep().pending_reason == ""


@pytest.mark.parametrize(
    "columns",
    [{"state": JobState.FAILED, "error_type": "UNKNOWN"}, {"state": JobState.COMPLETED}, {"state": JobState.PAUSED}],
    ids=lambda columns: str(columns["state"]),
)
def test_trial_that_gets_no_further_is_not_waited_for(make: Make, columns: dict[str, Any]) -> None:
    run = make()
    run.step()
    run.train(0, to=10, curve=constant(1.0))
    run.save(0, 5)
    run.end(0, **columns)
    run.step()

    expected = (None, 0) if columns["state"] is JobState.FAILED else (0, 5)
    assert forks(run)[1] == expected


def test_what_a_trial_has_left_out_is_not_waited_for(make: Make) -> None:
    """A loss that is suspect keeps it from saving."""
    run = make()
    run.step()
    run.train(0, to=20, curve=constant(1.0))
    run.save(0, 7)
    run.save(0, 20)
    run.step()

    assert forks(run) == [(None, 0), (0, 7), (0, 7)]


@pytest.mark.parametrize("columns", [{"deleted_at": True}, {"diverged": True}], ids=["deleted", "diverged"])
def test_only_sound_checkpoints_are_begun_with(make: Make, columns: dict[str, Any]) -> None:
    run = make()
    run.step()
    run.train(0, to=20, curve=constant(1.0))
    now = {name: run.sweep().created_at if name == "deleted_at" else value for name, value in columns.items()}
    run.save(0, 7)
    run.save(0, 13, **now)
    run.step()

    assert forks(run)[1] == (0, 7)


def test_job_that_went_on_with_other_batches_is_no_trunk(make: Make) -> None:
    run = make()
    run.step()
    run.save(0, 13)
    with run.db.write() as session:
        session.execute(update(Job).where(Job.id == run.job(0).id).values(adjustments={"batch_halvings": 1}))
    run.step()

    assert forks(run)[1] == (None, 0)
    assert saves_of(run.job(1)) == (7,)  # trial 2 may begin with this one


def test_checkpoint_that_a_submission_refuses_costs_the_trunk_but_not_the_trial(make: Make) -> None:
    """As one does that was deleted a moment ago."""
    run = make()
    run.step()
    run.train(0, to=13, curve=constant(1.0))
    with run.db.write() as session:
        make_project(session, "another")
    run.save(0, 13, project="another")
    run.step()

    assert forks(run)[1] == (None, 0)
    assert run.job(1).resume_checkpoint_id is None


@pytest.mark.parametrize("what", ["not wanted", "nothing that matters later"])
def test_nothing_is_shared_where_nothing_may_be(make: Make, what: str) -> None:
    rates = {"learning_rate": {"values": [1e-3, 1e-4, 1e-5]}}
    run = make(share_trunks=False) if what == "not wanted" else make(parameters=rates)
    run.step()

    assert (forks(run), saves_of(run.job(0))) == ([(None, 0)] * 3, ())


def test_sweep_whose_forks_were_found_to_differ_makes_no_more(make: Make) -> None:
    run = make()
    with run.db.write() as session:
        session.execute(update(Sweep).where(Sweep.id == run.id).values(trunks_refused="weights differ"))
    run.step()

    assert forks(run) == [(None, 0)] * 3


def test_what_was_measured_before_the_branch_counts_for_the_fork(make: Make) -> None:
    """The lowest loss is at step 5, which trial 0 trained for both. At a second a step they spare 13 and 7 seconds."""
    run = make()
    run.step()
    run.train(0, to=13, curve=lambda _, step: abs(step - 5))
    run.save(0, 7)
    run.save(0, 13)
    run.step()
    run.train(1, to=24, curve=constant(9.0))
    run.train(2, to=12, curve=constant(8.0))
    for number, own_steps in ((1, 11), (2, 5)):
        run.end(number, elapsed_seconds=float(own_steps))
    run.step()

    assert [trial.objectives for trial in run.trials()] == [None, [0.0], [0.0]]
    with run.db.read() as session:
        spared = session.get_one(SweepCount, (run.sweep().project, Kind.BY_TRUNKS, BEYOND))
    assert (spared.count, round(spared.seconds, 6)) == (2, 20.0)


def test_fork_counts_no_more_of_its_trunk_than_up_to_the_branch(make: Make) -> None:
    """Nor of what its parent itself has begun with."""
    run = make(parameters={"max_steps": {"values": [24, 48, 12]}})
    run.step()
    run.train(0, to=24, curve=lambda _, step: 24.0 - step)
    run.save(0, 7)
    run.save(0, 13)
    run.step()
    run.train(1, to=48, curve=constant(50.0))
    run.end(1)
    run.train(2, to=12, curve=constant(40.0))
    run.end(2)
    run.step()

    assert forks(run) == [(None, 0), (0, 13), (0, 7)]
    assert [trial.objectives for trial in run.trials()] == [None, [11.0], [17.0]]


@pytest.mark.long
def test_fork_is_judged_at_the_rungs_of_its_trunk(make: Make) -> None:
    run = make(early_stopping={"name": "asha", "min": 3, "max": 24, "reduction": 2})
    run.step()
    run.train(0, to=13, curve=lambda _, step: 24.0 - step)
    run.save(0, 13)
    run.step()
    run.train(1, to=24, curve=constant(1.0))
    run.step()

    found = [(report.number, report.rung, report.value) for report in run.reports()]
    assert found[3:] == [(1, 3, 21.0), (1, 6, 18.0), (1, 12, 12.0), (1, 24, 1.0)]


def test_dry_run_tells_the_trunks(api: Api) -> None:
    document = make_sweep_document(job=job_of(), parameters=LENGTHS, method={"name": "grid", "order": "natural"})
    answer = api.data(api.post("/v1/sweeps?dry_run=true", document), 200)

    assert answer["trunks"] == [{"trial": 1, "forked_from": 0, "step": 13}, {"trial": 2, "forked_from": 0, "step": 7}]


def test_values_that_no_trial_can_have_together_cost_that_trial_alone(api: Api, make: Make) -> None:
    """Warm-up is given as steps or as a ratio, not as both: the two in the middle of this grid are refused."""
    job = job_of()
    job["training_config"]["hyperparameters"] = {"lr_scheduler_type": "constant_with_warmup", "max_steps": "20"}
    grid: dict[str, Any] = {"warmup_steps": {"type": "int", "values": [0, 5]}, "warmup_ratio": {"values": [0.1, 0.0]}}
    changes: dict[str, Any] = {"job": job, "parameters": grid, "method": {"name": "grid", "order": "natural"}}
    api.data(api.post("/v1/sweeps?dry_run=true", make_sweep_document(**changes)), 200)
    run = make(**changes)

    for _ in range(4):
        run.step()

    assert sorted(run.states()) == ["FAILED", "RUNNING", "RUNNING", "RUNNING"]


def test_sharing_that_the_framework_does_not_do_is_refused(api: Api) -> None:
    job = job_of()
    job["training_config"]["framework"] = {"type": "MEGATRON"}
    answer = api.post("/v1/sweeps", make_sweep_document(job=job, parameters=LENGTHS, share_trunks=True))

    assert answer.status_code == 400
    assert "share_trunks" in answer.text
    assert "MEGATRON does not" in answer.text
