"""Trials that halt at their rungs: who is promoted, who waits without a device, and who ends."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.spec.model import HaltAt
from app.models import Sweep, TrialReport
from app.models.base import utc_now
from app.services.jobs.control import requests as control_requests
from tests.builders.sweep_runs import SweepRun, constant
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
ASHA = {"name": "asha", "min": 3, "max": 27, "losers": "pause"}


def make_asha(make_run: Make, *, trials: int, parallel: int = 1, **changes: Any) -> SweepRun:
    return make_run(
        **{"early_stopping": ASHA, "budget": {"max_trials": trials, "parallel_trials": parallel}, **changes}
    )


def halt_all(run: SweepRun, values: list[float]) -> None:
    """The trials with these numbers report these values at the first rung, one after the other."""
    for number, value in enumerate(values):
        run.step()
        run.halt(number, at=3, curve=constant(value))
    run.step()


def replays(api: Api, run: SweepRun) -> bool:
    answer = api.get(f"/v1/sweeps/{run.id}/replay")
    assert answer["differences"] == []
    return bool(answer["decisions"] == len(run.reports()))


@pytest.mark.both_databases
def test_a_halted_trial_gives_its_place_to_a_new_one_until_it_is_among_the_best(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9)
    halt_all(run, [0.5, 0.1])

    assert (len(run.trials()), run.job(1).status) == (3, "PAUSED")
    assert [report.decided_seq for report in run.reports()] == [None, None]
    assert run.job(0).document.training_config.halt_at is not None
    run.halt(2, at=3, curve=constant(0.9))
    run.step()

    # 1 of 3 reports: the best continues, and has the place of the next trial.
    assert (run.job(1).status, run.job(0).status, len(run.trials())) == ("QUEUED", "PAUSED", 3)
    promoted = run.reports()[1]
    assert (promoted.continues, promoted.rank, promoted.compared, promoted.decided_seq) == (True, 1, 3, 4)
    assert replays(api, run)


@pytest.mark.long
@pytest.mark.both_databases
@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_halving_goes_to_the_end_and_the_best_trial_completes(make_run: Make, api: Api, name: str) -> None:
    run = make_asha(make_run, trials=9, parallel=3, early_stopping={**ASHA, "name": name})
    run.run()

    assert run.sweep().status == "COMPLETED"
    assert set(run.states()) == {"COMPLETED", "STOPPED"}
    lost = next(trial for trial in run.trials() if trial.state == "STOPPED")
    assert lost.reason.startswith("rank ")
    assert lost.objectives is not None
    assert all(report.decided_seq is not None for report in run.reports())
    assert replays(api, run)
    if name == "asha":
        first = sorted(run.reports(), key=lambda report: (report.rung, report.value))[:3]
        assert first[0].continues
        assert run.trials()[first[0].number].state == "COMPLETED"


@pytest.mark.long
def test_few_trials_still_end_with_one_that_completes(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=2)
    halt_all(run, [0.5, 0.1])

    assert (run.sweep().status, run.job(1).status) == ("FINISHING", "QUEUED")
    run.run(curve=constant(0.1))
    assert (run.states(), run.sweep().status) == (["STOPPED", "COMPLETED"], "COMPLETED")
    assert run.trials()[0].reason == "rank 2 of 2 at 3 steps"
    assert replays(api, run)


def test_when_the_promoted_trial_fails_the_next_best_continues(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=2)
    halt_all(run, [0.5, 0.1])
    run.end(1, JobState.FAILED, error_type="OUT_OF_MEMORY", error_message="too large")
    run.step()

    assert run.job(0).status == "QUEUED"
    run.run()
    assert run.states() == ["COMPLETED", "FAILED"]
    assert replays(api, run)


@pytest.mark.parametrize("rule", [{"name": "median", "startup_trials": 1}, {"name": "patience", "patience": 1}])
def test_median_and_patience_decide_at_once(make_run: Make, api: Api, rule: dict[str, Any]) -> None:
    run = make_asha(make_run, trials=2, early_stopping={**ASHA, **rule})
    run.step()
    run.halt(0, at=3, curve=constant(0.5))
    run.step()
    assert (run.job(0).status, run.reports()[0].continues) == ("QUEUED", True)

    run.run(curve=lambda _values, step: 0.1 if step == 3 else float(step))
    assert run.sweep().status in ("COMPLETED", "FAILED")
    assert all(report.decided_seq == report.seq for report in run.reports())
    assert replays(api, run)


@pytest.mark.long
def test_a_trial_whose_checkpoint_failed_passes_its_halt_and_counts(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=4, parallel=2)
    run.step()
    run.train(0, to=3, curve=constant(0.5))
    run.step()
    assert run.reports() == []  # it may still halt
    run.train(0, to=4, curve=constant(0.5))
    run.step()

    report = run.reports()[0]
    assert (report.value, report.continues, report.decided_seq) == (0.5, True, report.seq)
    run.run()
    assert run.sweep().status == "COMPLETED"
    assert replays(api, run)


def test_a_halt_without_a_measurement_counts_with_the_newest_value(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=2, parallel=2)
    run.step()
    run.train(0, to=2, curve=constant(0.5))
    for number in range(2):  # the second one has measured nothing
        with run.db.write() as session:
            job = session.merge(run.job(number))
            job.current_step = 3
        run.end(number, JobState.PAUSED)
    run.step()
    run.step()

    assert [(report.value, report.continues) for report in run.reports()] == [(0.5, True), (None, False)]
    assert (run.trials()[1].state, run.job(0).status) == ("STOPPED", "QUEUED")
    run.run()
    assert replays(api, run)


@pytest.mark.long
@pytest.mark.both_databases
def test_a_resumed_sweep_leaves_halted_trials_halted(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9, parallel=2)
    run.step()
    run.halt(0, at=3)
    run.step()
    run.train(1, to=2)
    api.data(api.post(f"/v1/sweeps/{run.id}/pause"))
    assert ([trial.paused for trial in run.trials()][:2], run.job(1).requested) == ([False, True], "pause")
    run.halt(1, at=3)  # it comes to its rung before it reads the request
    api.data(api.post(f"/v1/sweeps/{run.id}/resume"))
    run.step()

    assert [run.job(number).status for number in (0, 1)] == ["PAUSED", "PAUSED"]
    assert [report.decided_seq for report in run.reports()] == [None, None]
    run.run()
    assert run.sweep().status == "COMPLETED"
    assert replays(api, run)


def test_a_halted_trial_is_promoted_by_hand(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=2)
    halt_all(run, [0.9])
    shown = api.data(api.post(f"/v1/sweeps/{run.id}/trials/0/promote"))

    assert (shown["job_status"], shown["promoted"], shown["reports"][0]["continues"]) == ("QUEUED", True, True)
    run.run()
    assert run.states()[0] == "COMPLETED"
    assert replays(api, run)


def test_a_halted_trial_whose_job_a_person_resumes_is_exempt(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=2)
    halt_all(run, [0.9])
    with run.db.write() as session:
        control_requests.resume(session, run.job(0).id, actor="a person")
    run.step()

    assert (run.trials()[0].promoted, run.reports()[0].continues) == (True, True)
    run.run()
    assert run.states()[0] == "COMPLETED"
    assert replays(api, run)


def test_a_halted_trial_is_stopped_by_hand(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=2)
    halt_all(run, [0.9])
    api.data(api.post(f"/v1/sweeps/{run.id}/trials/0/stop"))
    run.step()

    trial, report = run.trials()[0], run.reports()[0]
    assert (trial.state, trial.objectives, run.job(0).status) == ("STOPPED", [0.9], "CANCELLED")
    assert (report.decided_seq, report.continues) == (trial.observed_seq, False)
    run.run()
    assert replays(api, run)


def test_a_cancelled_sweep_cancels_halted_trials(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9)
    halt_all(run, [0.5, 0.1])
    api.data(api.post(f"/v1/sweeps/{run.id}/cancel"))
    run.step()
    run.carry_out(2)
    run.step()

    assert (set(run.states()), run.sweep().status) == ({"CANCELLED"}, "CANCELLED")
    assert all(report.decided_seq is not None for report in run.reports())


def test_a_stopped_sweep_halves_what_it_has_to_the_end(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9)
    halt_all(run, [0.5, 0.1])
    api.data(api.post(f"/v1/sweeps/{run.id}/stop"))
    run.run(curve=constant(0.9))

    assert (run.sweep().status, run.states()) == ("COMPLETED", ["STOPPED", "COMPLETED", "STOPPED"])


@pytest.mark.parametrize(
    ("running", "states"), [("finish", ["STOPPED", "COMPLETED"]), ("cancel", ["STOPPED", "STOPPED"])]
)
def test_a_budget_of_time_that_is_used_up_ends_halted_trials(make_run: Make, running: str, states: list[str]) -> None:
    run = make_asha(
        make_run, trials=9, budget={"max_trials": 9, "parallel_trials": 2, "max_seconds": 60, "running": running}
    )
    run.step()
    run.step()
    for number, value in enumerate((0.5, 0.1)):
        run.halt(number, at=3, curve=constant(value))
    with run.db.write() as session:
        session.get_one(Sweep, run.id).started_at = utc_now().replace(year=2020)
    run.run()

    # The best one continues where the budget lets it, because none has completed.
    assert run.states() == states
    assert [report.decided_seq is not None for report in run.reports()] == [True] * len(run.reports())


def test_a_budget_of_time_ends_all_halted_trials_once_one_has_completed(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9, budget={"max_trials": 9, "parallel_trials": 1, "max_seconds": 600})
    halt_all(run, [0.1, 0.2, 0.3])
    for step in (9, 27):
        run.train(0, to=step + 1 if step == 9 else step, curve=constant(0.1))
    run.end(0)
    with run.db.write() as session:
        session.get_one(Sweep, run.id).started_at = utc_now().replace(year=2020)
    run.run()

    assert (run.states(), run.sweep().status) == (["COMPLETED", "STOPPED", "STOPPED"], "COMPLETED")
    assert replays(api, run)


def test_a_value_that_is_not_finite_ends_its_trial_at_once(make_run: Make) -> None:
    run = make_asha(make_run, trials=4)
    run.step()
    run.halt(0, at=3, curve=constant(math.nan))
    run.step()
    run.step()

    assert (run.trials()[0].state, run.job(0).status) == ("STOPPED", "CANCELLED")
    assert run.trials()[0].error_type == "NO_RESULT"


def test_halted_trials_count_for_no_place_and_no_time(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9)
    halt_all(run, [0.5, 0.1])

    shown = api.get(f"/v1/sweeps/{run.id}/trials/0")
    assert (shown["job_status"], shown["state"], shown["step"]) == ("PAUSED", "RUNNING", 3)
    assert api.get(f"/v1/sweeps/{run.id}")["trials_by_state"]["RUNNING"] == 3
    run.step()
    assert len(run.trials()) == 3  # the third one waits for a device


@pytest.mark.long
@pytest.mark.both_databases
def test_a_deterministic_sweep_decides_by_generations(make_run: Make, api: Api) -> None:
    document: dict[str, Any] = {
        "method": {"name": "anneal", "seed": 5},
        "deterministic": True,
        "budget": {"max_trials": 8, "parallel_trials": 4},
    }
    forwards, backwards = make_asha(make_run, trials=8, **document), make_asha(make_run, trials=8, **document)
    forwards.run()
    for _ in range(300):
        backwards.step()
        for trial in reversed(backwards.trials()):  # one of them at a time is observed
            if trial.state == "RUNNING":
                backwards.advance(trial.number)
                backwards.step()

    def outcome(run: SweepRun) -> list[Any]:
        return [(trial.values, trial.state, trial.objectives, trial.step) for trial in run.trials()]

    assert backwards.sweep().status == forwards.sweep().status == "COMPLETED"
    assert outcome(forwards) == outcome(backwards)
    assert replays(api, forwards)
    assert replays(api, backwards)


@pytest.mark.long
def test_a_replay_finds_a_promotion_that_was_not_earned(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9, parallel=3)
    run.run()
    loser = next(report for report in run.reports() if not report.continues)
    with run.db.write() as session:
        session.get_one(TrialReport, (run.id, loser.number, loser.rung)).continues = True

    answer = api.get(f"/v1/sweeps/{run.id}/replay")
    assert (answer["is_equal"], answer["differences"][0]["what"]) == (False, "decision")


def test_a_replay_checks_a_promotion_whose_trial_a_person_promotes_later(make_run: Make, api: Api) -> None:
    run = make_asha(make_run, trials=9)
    halt_all(run, [0.5, 0.1, 0.9])
    api.data(api.post(f"/v1/sweeps/{run.id}/trials/1/promote"))
    assert (run.trials()[1].promoted, replays(api, run)) == (True, True)
    with run.db.write() as session:  # another one was better then
        session.get_one(TrialReport, (run.id, 0, 3)).value = 0.05

    differences = api.get(f"/v1/sweeps/{run.id}/replay")["differences"]
    assert (1, [True, 1, 3], [False, 2, 3]) in [
        (each["number"], each["stored"], each["replayed"]) for each in differences
    ]


def test_trials_of_a_script_have_halts_in_their_documents(make_run: Make, api: Api) -> None:
    job = make_sweep_document()["job"]
    job["training_config"]["framework"] = {"type": "CUSTOM", "custom_script_path": "/srv/train.py"}
    run = make_asha(make_run, trials=2, job=job)
    run.step()

    assert run.job(0).document.training_config.halt_at == HaltAt(at=(3, 9))
    assert api.get(f"/v1/sweeps/{run.id}")["document"]["early_stopping"]["losers"] == "pause"
