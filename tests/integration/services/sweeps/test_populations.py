"""Population based training: members halt together, and forks of the best take the places of the worst."""

import math
from collections.abc import Callable, Mapping

import pytest
from sqlalchemy import delete, select

from app.domain.lifecycle.states import JobState
from app.domain.sweeps.population import explored
from app.domain.sweeps.spec import SweepSpec
from app.models import Queue, SweepEvent
from app.models.queue import DEFAULT_QUEUE
from app.services.sweeps.next_trial import space_of
from tests.builders.population_runs import IDLE, METHOD, PopulationRun
from tests.builders.sweep_runs import constant
from tests.systems.apps import Api

Make = Callable[..., PopulationRun]
# Values of the members by number; of forks those that follow.
VALUES = [0.3, 0.1, 0.4, 0.2, *([0.15] * 16)]


def advance(run: PopulationRun, values: Mapping[int, float] | list[float] = VALUES) -> None:
    """Every member trains to its next halt with its own value, and the population is decided about."""
    run.step()
    for trial in run.running():
        run.advance(trial.number, constant(values[trial.number]))
    run.step()


@pytest.mark.both_databases
def test_a_fork_of_the_best_takes_the_place_of_the_worst(make_population: Make, api: Api) -> None:
    run = make_population()
    advance(run)

    fork = run.trials()[4]
    assert (fork.source, fork.parent_number, fork.fork_step) == ("exploited", 1, 9)
    assert run.job(4).resume_checkpoint_id == fork.fork_checkpoint_id == run.job(1).latest_checkpoint_id
    loser = run.job(2)
    assert (loser.status, loser.status_reason) == ("CANCELLED", "replaced by a fork of trial 1: 4th of 4 at 9 steps")
    assert [run.job(number).status for number in (0, 1, 3)] == ["QUEUED"] * 3
    run.step()
    assert run.states() == ["RUNNING", "RUNNING", "EXPLOITED", "RUNNING", "RUNNING"]
    shown = api.get(f"/v1/sweeps/{run.id}/trials/4")
    assert (shown["forked_from"], shown["steps_saved"], shown["source"]) == (1, 9, "exploited")
    ranks = [(report.number, report.rank, report.compared, report.continues) for report in run.reports()]
    assert sorted(ranks) == [(0, 3, 4, True), (1, 1, 4, True), (2, 4, 4, False), (3, 2, 4, True)]


@pytest.mark.both_databases
def test_forks_have_explored_values_of_their_winners_and_the_events_say_so(make_population: Make) -> None:
    run = make_population(method={**METHOD, "explore": "resample"})
    advance(run)

    spec = SweepSpec.from_json(run.sweep().spec)
    winner, fork = run.trials()[1], run.trials()[4]
    assert fork.values == explored(space_of(spec), winner.values, spec.method, 4)
    with run.db.read() as session:
        started = select(SweepEvent).where(SweepEvent.sweep_id == run.id, SweepEvent.type == "trial.started")
        event = session.scalars(started.order_by(SweepEvent.seq.desc())).first()
    assert event is not None
    assert (event.data["forked_from"], event.data["fork_step"]) == (1, 9)
    assert "a fork of trial 1 at step 9" in event.message


@pytest.mark.both_databases
def test_a_population_trains_to_its_end(make_population: Make, api: Api) -> None:
    run = make_population()
    run.run()

    assert (run.sweep().status, run.sweep().status_reason) == (
        "COMPLETED",
        "every member of the population has trained to its end",
    )
    assert sorted(run.states()) == ["COMPLETED"] * 4 + ["EXPLOITED"] * 2  # two halts, of each one is replaced
    best = api.get(f"/v1/sweeps/{run.id}")["best"]["number"]
    assert run.trials()[best].state == "COMPLETED"
    drawn = api.get(f"/v1/sweeps/{run.id}/figures/history")["points"]
    assert {point["state"] for point in drawn} == {"COMPLETED", "STOPPED"}


@pytest.mark.both_databases
def test_members_halt_at_every_interval_and_forks_after_their_step(make_population: Make) -> None:
    run = make_population()
    advance(run)

    first, halts = (run.job(number).document.training_config.halt_at for number in (0, 4))
    assert first is not None
    assert halts is not None
    assert first.at == (9, 18)
    assert (halts.unit, halts.at) == ("steps", (18,))
    advance(run)
    assert run.replaced() == {4: 1, 5: 1}
    assert run.trials()[5].fork_step == 18
    assert run.job(5).document.training_config.halt_at is None


@pytest.mark.both_databases
def test_no_member_is_decided_about_before_all_have_halted(make_population: Make) -> None:
    run = make_population()
    run.step()
    for number in (0, 1, 2):
        run.advance(number)
    run.step()

    assert [report.decided_seq for report in run.reports()] == [None] * 3
    assert [run.job(number).status for number in range(3)] == ["PAUSED"] * 3


@pytest.mark.both_databases
@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_member_that_has_ended_holds_no_other_up(make_population: Make, state: JobState) -> None:
    run = make_population()
    run.step()
    run.end(3, state, error_type="OUT_OF_MEMORY")
    advance(run)

    assert run.replaced() == {4: 1}
    assert all(report.compared == 3 for report in run.reports())


@pytest.mark.both_databases
def test_a_winner_without_a_checkpoint_is_not_forked(make_population: Make) -> None:
    run = make_population()
    run.step()
    for number in range(4):
        run.advance(number, constant(VALUES[number]), saves=number != 1)
    run.step()

    assert run.replaced() == {}
    assert all(report.continues and report.decided_seq for report in run.reports())
    assert [run.job(number).status for number in range(4)] == ["QUEUED"] * 4


@pytest.mark.both_databases
def test_a_member_without_a_finite_value_is_replaced(make_population: Make) -> None:
    run = make_population()
    advance(run, [math.nan, 0.1, 0.4, 0.2])

    assert run.replaced() == {4: 1}
    assert run.job(0).status == "CANCELLED"


@pytest.mark.both_databases
def test_a_budget_that_is_used_up_replaces_no_member(make_population: Make) -> None:
    run = make_population(budget={"max_trials": 5, "parallel_trials": 4})
    run.run()

    assert len(run.replaced()) == 1
    assert sorted(run.states()) == ["COMPLETED"] * 4 + ["EXPLOITED"]
    assert run.sweep().status_reason == "max_trials: 5 trials were made"


@pytest.mark.long
@pytest.mark.both_databases
def test_fewer_parallel_trials_than_members_train_one_after_the_other(make_population: Make) -> None:
    run = make_population(budget={"max_trials": 20, "parallel_trials": 2}, method={**METHOD, "population": 8})
    most = 0
    for _ in range(100):
        run.step()
        active = [trial for trial in run.running() if run.job(trial.number).state not in IDLE]
        most = max(most, len(active))
        if run.sweep().finished_at is not None:
            break
        for trial in active:
            run.advance(trial.number)

    assert most == 2
    assert sorted(run.states()) == ["COMPLETED"] * 8 + ["EXPLOITED"] * 4
    assert {trial.fork_step for trial in run.trials()} == {0, 9, 18}


@pytest.mark.both_databases
def test_a_paused_sweep_decides_when_it_is_resumed(make_population: Make, api: Api) -> None:
    run = make_population()
    run.step()
    for number in range(4):
        run.advance(number, constant(VALUES[number]))
    api.data(api.post(f"/v1/sweeps/{run.id}/pause"), 200)
    run.step()
    assert run.replaced() == {}
    assert [run.job(number).status for number in range(4)] == ["PAUSED"] * 4

    api.data(api.post(f"/v1/sweeps/{run.id}/resume"), 200)
    run.step()
    run.step()
    assert run.replaced() == {4: 1}
    assert [run.job(number).status for number in (0, 1, 3)] == ["QUEUED"] * 3


@pytest.mark.both_databases
def test_a_member_that_was_rolled_back_and_halts_again_continues_at_once(make_population: Make) -> None:
    run = make_population()
    advance(run)
    run.become(0, JobState.PAUSED, status_reason="halted at step 9", current_step=9)  # began anew, from step 0
    run.become(3, JobState.PAUSED, status_reason="paused", current_step=9)  # by a person
    run.step()

    assert [run.job(number).status for number in (0, 3)] == ["QUEUED", "PAUSED"]
    assert len(run.reports()) == 4


def limit_queue(run: PopulationRun, most: int | None) -> None:
    with run.db.write() as session:
        session.get_one(Queue, DEFAULT_QUEUE).max_waiting_jobs = most


@pytest.mark.both_databases
def test_a_full_queue_delays_the_decision_as_a_whole(make_population: Make) -> None:
    run = make_population()
    run.step()
    for number in range(4):
        run.advance(number, constant(VALUES[number]))
    limit_queue(run, 0)
    run.step()
    assert (run.replaced(), len(run.trials())) == ({}, 4)
    assert "max_waiting_jobs" in run.sweep().pending_reason
    assert [report.decided_seq for report in run.reports()] == [None] * 4

    limit_queue(run, None)
    run.step()
    assert run.replaced() == {4: 1}


@pytest.mark.both_databases
def test_enqueued_values_are_the_first_members(make_population: Make) -> None:
    chosen = {"learning_rate": 5e-4, "weight_decay": 0.1}
    run = make_population(enqueue=[chosen])
    run.step()

    assert [trial.source for trial in run.trials()] == ["enqueued", "method", "method", "method"]
    assert run.trials()[0].values == chosen


def test_a_cancelled_population_makes_no_fork(make_population: Make, api: Api) -> None:
    run = make_population()
    run.step()
    for number in range(4):
        run.advance(number)
    api.data(api.post(f"/v1/sweeps/{run.id}/cancel"), 200)
    run.step()
    run.step()

    assert (run.sweep().status, set(run.states()), len(run.trials())) == ("CANCELLED", {"CANCELLED"}, 4)


@pytest.mark.long
@pytest.mark.both_databases
def test_a_stopped_population_trains_to_its_end_without_forks(make_population: Make, api: Api) -> None:
    run = make_population()
    run.step()
    api.data(api.post(f"/v1/sweeps/{run.id}/stop"), 200)
    run.run()

    assert (run.sweep().status, run.states()) == ("COMPLETED", ["COMPLETED"] * 4)


def replay(api: Api, run: PopulationRun) -> list[object]:
    return list(api.get(f"/v1/sweeps/{run.id}/replay")["differences"])


@pytest.mark.both_databases
def test_a_promotion_after_the_decision_leaves_the_replay_equal(make_population: Make, api: Api) -> None:
    run = make_population()
    advance(run)
    assert replay(api, run) == []
    for number in (1, 3):  # the winner, and another one
        api.data(api.post(f"/v1/sweeps/{run.id}/trials/{number}/promote"))

    assert replay(api, run) == []
    advance(run)
    assert run.trials()[3].promoted
    assert replay(api, run) == []
    with run.db.write() as session:
        session.execute(delete(SweepEvent))
    assert replay(api, run) == []  # it needs no history


@pytest.mark.both_databases
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_halted_member_that_is_promoted_continues_at_once(
    make_population: Make, api: Api, *, is_paused: bool
) -> None:
    run = make_population()
    run.step()
    for number in (0, 1, 2):
        run.advance(number, constant(VALUES[number]))
    run.step()
    if is_paused:
        api.data(api.post(f"/v1/sweeps/{run.id}/pause"))
    api.data(api.post(f"/v1/sweeps/{run.id}/trials/2/promote"))
    assert run.job(2).status == ("PAUSED" if is_paused else "QUEUED")
    if is_paused:
        api.data(api.post(f"/v1/sweeps/{run.id}/resume"))
    assert [run.job(number).status for number in (0, 1, 2)] == ["PAUSED", "PAUSED", "QUEUED"]

    run.advance(3, constant(VALUES[3]))
    run.step()
    assert run.replaced() == {4: 1}  # of the three others the worst
    assert [trial.number for trial in run.trials() if trial.stop_reason] == [0]
    assert replay(api, run) == []


def test_rungs_of_a_population_are_its_halts(make_population: Make, api: Api) -> None:
    run = make_population()
    assert api.get(f"/v1/sweeps/{run.id}/figures/rungs")["rungs"] == []
    advance(run)

    (rung,) = api.get(f"/v1/sweeps/{run.id}/figures/rungs")["rungs"]
    assert (rung["rung"], rung["trials"], rung["continued"], rung["best"]) == (9, 4, 3, 0.1)
    assert {report["number"]: report["continues"] for report in rung["reports"]} == {
        0: True,
        1: True,
        2: False,
        3: True,
    }
    drawn = api.call("GET", f"/v1/sweeps/{run.id}/figures/rungs", headers={"Accept": "image/svg+xml"})
    assert (drawn.status_code, drawn.mimetype) == (200, "image/svg+xml")
