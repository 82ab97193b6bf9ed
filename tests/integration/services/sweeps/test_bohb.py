"""BOHB in a whole sweep: what it knows of rungs, and that it replays."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.sweeps.observations import Observation
from app.domain.sweeps.spec import SweepSpec
from app.models import Sweep
from app.services.sweeps.observed import KnownTrials, known_to_method
from tests.builders.sweep_runs import SweepRun
from tests.builders.sweeps import make_sweep_document
from tests.integration.services.sweeps.test_sweep_crashes import outcome, run_with_deaths
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
RULE = {"name": "hyperband", "min": 3, "max": 27}
CHANGES: dict[str, Any] = {
    "method": {"name": "bohb", "seed": 3, "startup_trials": 4},
    "early_stopping": RULE,
    "budget": {"max_trials": 16, "parallel_trials": 2},
}


def known(run: SweepRun, *, number: int, seen_seq: int) -> list[Observation]:
    with run.db.read() as session:
        sweep = session.get_one(Sweep, run.id)
        return known_to_method(session, sweep, SweepSpec.from_json(sweep.spec), number=number, seen_seq=seen_seq)


@pytest.mark.long
@pytest.mark.both_databases
def test_a_sweep_learns_from_rungs_and_replays(make_run: Make, api: Api) -> None:
    run = make_run(**CHANGES)
    run.run()

    notes = [trial.note for trial in run.trials()]
    assert run.sweep().status == "COMPLETED"
    assert notes[0] == notes[1] == ""  # random: there is nothing to learn from
    assert any(note.startswith("by ") for note in notes)
    assert "drawn at random, as a third of all" in notes
    answer = api.get(f"/v1/sweeps/{run.id}/replay")
    whole = {"is_equal": True, "differences": [], "from": 0, "to": 15, "next_from": None}
    assert answer == {**whole, "suggestions": 16, "decisions": len(run.reports())}
    part = api.get(f"/v1/sweeps/{run.id}/replay?from=5&to=9")
    reports = sum(5 <= report.number <= 9 for report in run.reports())
    assert part == {**whole, "from": 5, "to": 9, "next_from": 10, "suggestions": 5, "decisions": reports}
    refused = api.problem(api.call("GET", f"/v1/sweeps/{run.id}/replay?from=16"), 400)
    assert refused["details"][0]["field"] == "from"
    with run.db.read() as session:
        sweep = session.get_one(Sweep, run.id)
        trials = KnownTrials(session, sweep, SweepSpec.from_json(sweep.spec))
    assert all(trials.of(each) == known(run, number=each.number, seen_seq=each.seen_seq) for each in run.trials())


@pytest.mark.long
def test_coordinators_that_die_change_nothing(make_run: Make) -> None:
    undisturbed, disturbed = (make_run(**CHANGES, deterministic=True) for _ in range(2))
    undisturbed.run()

    assert run_with_deaths(disturbed, random.Random(4)) > 10
    assert outcome(disturbed) == outcome(undisturbed)


def test_reports_are_known_as_of_a_number_of_the_sweep(make_run: Make) -> None:
    run = make_run(**CHANGES)
    run.step()
    run.train(0, to=9)
    run.step()
    run.train(1, to=9)  # of a bracket whose first rung is 9
    run.step()

    reports = run.reports()
    by_number: dict[int, list[tuple[int, float | None]]] = {}
    for report in reports:
        by_number.setdefault(report.number, []).append((report.rung, report.value))
    everything = known(run, number=2, seen_seq=reports[-1].seq)
    assert [each.state for each in everything] == ["running", "running"]
    assert [list(each.reports) for each in everything] == [by_number[0], by_number[1]]
    assert len(by_number[0]) == 2
    assert [len(each.reports) for each in known(run, number=2, seen_seq=reports[0].seq)] == [1, 0]
    assert [len(each.reports) for each in known(run, number=1, seen_seq=reports[-1].seq)] == [2]


def test_other_methods_know_nothing_of_reports(make_run: Make) -> None:
    run = make_run(**{**CHANGES, "method": {"name": "tpe"}})
    run.step()
    run.train(0)
    run.step()

    assert run.reports()
    assert all("reports" not in each.to_json() for each in known(run, number=2, seen_seq=run.sweep().seq))


def test_values_are_maximized_where_the_objective_is(make_run: Make) -> None:
    run = make_run(**CHANGES, objective={"metric": "eval_loss", "goal": "maximize"})
    run.step()
    run.train(0, to=3)
    run.step()

    [report] = run.reports()
    assert report.value is not None
    assert known(run, number=1, seen_seq=report.seq)[0].reports == ((3, -report.value),)


@pytest.mark.long
def test_values_at_rungs_of_an_earlier_sweep_are_known(make_run: Make) -> None:
    job = make_sweep_document()["job"]
    job["training_config"]["evaluation"] = {"strategy": "steps", "steps": 3}  # else it follows from the rungs
    earlier = make_run(**CHANGES, job=job)
    earlier.run()
    warm = {"warm_start": {"sweeps": [earlier.id]}, "job": job}
    same, other, unit = (
        make_run(**CHANGES, **warm),
        make_run(**{**CHANGES, "method": {"name": "tpe"}}, **warm),
        make_run(**{**CHANGES, "early_stopping": {**RULE, "unit": "epochs", "min": 1, "max": 1}}, **warm),
    )

    reports = [len(each.get("reports", ())) for each in same.known()]
    assert sum(reports) == len(earlier.reports())
    assert all("reports" not in each for run in (other, unit) for each in run.known())
    same.step()
    assert same.trials()[0].note != ""  # the first trial is no random one for want of values
