"""A population whose coordinator dies at any of its transactions, and what a replay finds of it."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from app.models import Job, Sweep, Trial, TrialReport
from app.services.jobs.control import requests as control_requests
from app.services.sweeps.reading import replay
from app.services.sweeps.reading.replay import SweepReplay
from tests.builders.population_runs import METHOD, PopulationRun
from tests.integration.services.sweeps.test_sweep_crashes import outcome, run_with_deaths

Make = Callable[..., PopulationRun]
EIGHT: dict[str, Any] = {"method": {**METHOD, "population": 8}, "budget": {"max_trials": 30, "parallel_trials": 3}}


def replayed(run: PopulationRun) -> SweepReplay:
    with run.db.read() as session:
        return replay.replay(replay.read(session, session.get_one(Sweep, run.id)), run.suggestions)


@pytest.mark.long
@pytest.mark.both_databases
@pytest.mark.parametrize(("seed", "changes"), [(7, {}), (8, {"deterministic": True})])
def test_a_population_whose_coordinators_die_ends_as_an_undisturbed_one(
    make_population: Make, seed: int, changes: dict[str, Any]
) -> None:
    undisturbed = make_population(**EIGHT, **changes)
    undisturbed.run()
    disturbed = make_population(**EIGHT, **changes)

    assert run_with_deaths(disturbed, random.Random(seed)) > 10
    assert outcome(disturbed) == outcome(undisturbed)
    assert disturbed.replaced() == undisturbed.replaced()
    with disturbed.db.read() as session:
        jobs = select(func.count()).select_from(Job).where(Job.sweep_id == disturbed.id)
        assert session.scalar(jobs) == len(disturbed.trials()) == 12
    found = replayed(disturbed)
    assert (found.differences, found.suggestions, found.decisions) == ([], 12, len(disturbed.reports()))


def test_a_replay_finds_another_winner_other_values_and_another_loser(make_population: Make) -> None:
    run = make_population()
    run.run()
    first, second = sorted(run.replaced())
    with run.db.write() as session:
        fork = session.get_one(Trial, (run.id, first))
        fork.parent_number = next(number for number in range(4) if number != fork.parent_number)
        other = session.get_one(Trial, (run.id, second))
        other.values = {**other.values, "learning_rate": 0.005}
        report = session.get_one(TrialReport, (run.id, other.parent_number, 9))
        report.continues = False

    found = replayed(run).differences
    assert {(each.what, each.number, each.rung) for each in found} >= {
        ("decision", first, 9),
        ("suggestion", second, None),
        ("decision", other.parent_number, 9),
    }


@pytest.mark.both_databases
def test_what_a_person_or_the_budget_decided_replays_too(make_population: Make) -> None:
    run = make_population(budget={"max_trials": 5, "parallel_trials": 4})
    run.step()
    for number in range(4):
        run.advance(number, saves=number > 0)
    with run.db.write() as session:
        control_requests.resume(session, run.job(0).id, actor="person")
    run.step()  # records the reports; the first member has left its halt
    run.run()

    assert replayed(run).differences == []
    assert len(run.trials()) == 5
