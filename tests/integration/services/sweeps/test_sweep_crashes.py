"""A sweep whose coordinator dies at any of its transactions: nothing is lost, nothing doubled, everything replays."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.models import Job, Sweep, Trial
from app.services.sweeps.reading import replay
from tests.builders.sweep_runs import SweepRun
from tests.systems.apps import Api

Make = Callable[..., SweepRun]
ASHA = {"name": "asha", "min": 3, "max": 27}
DETERMINISTIC: dict[str, Any] = {
    "method": {"name": "anneal", "seed": 5},
    "early_stopping": ASHA,
    "budget": {"max_trials": 8, "parallel_trials": 2},
    "deterministic": True,
}


class Died(BaseException):
    """The process ended here."""


class DyingDatabase(Database):
    """A database whose writer dies before or after the commit of its n-th transaction."""

    def __init__(self, inner: Database, at: int, *, after_commit: bool) -> None:
        super().__init__()
        self._inner, self._left, self._after_commit = inner, at, after_commit
        self.bind(inner.engine)

    @contextmanager
    def write(self) -> Iterator[Session]:
        self._left -= 1
        with self._inner.write() as session:
            yield session
            if self._left == 0 and not self._after_commit:
                raise Died
        if self._left == 0:
            raise Died


def outcome(run: SweepRun) -> list[tuple[Any, ...]]:
    """What a sweep has tried and found, without times and ids."""
    return [
        (trial.number, trial.values, trial.state, trial.objectives, trial.step, trial.source) for trial in run.trials()
    ]


def run_with_deaths(run: SweepRun, chance: random.Random) -> int:
    """Run it with a coordinator that dies all the time; returns how often."""
    alive, deaths = run.plane, 0
    for _ in range(1000):
        after_commit = chance.random() < 0.5
        run.plane = replace(alive, db=DyingDatabase(run.db, chance.randint(1, 3), after_commit=after_commit))
        try:
            run.step()
        except Died:
            deaths += 1
        finally:
            run.plane = alive
        if run.sweep().finished_at is not None:
            return deaths
        for trial in run.trials():
            if trial.state == "RUNNING" and chance.random() < 0.7:
                run.advance(trial.number)
    raise AssertionError(f"the sweep did not end: {run.states()}")


@pytest.mark.long
@pytest.mark.both_databases
@pytest.mark.parametrize(("seed", "losers"), [(7, "stop"), (8, "stop"), (7, "pause")])
def test_a_sweep_whose_coordinators_die_ends_as_an_undisturbed_one(make_run: Make, seed: int, losers: str) -> None:
    document = {**DETERMINISTIC, "early_stopping": {**ASHA, "losers": losers}}
    undisturbed = make_run(**document)
    undisturbed.run()
    disturbed = make_run(**document)

    assert run_with_deaths(disturbed, random.Random(seed)) > 10
    assert outcome(disturbed) == outcome(undisturbed)
    assert {"STOPPED", "COMPLETED"} == set(disturbed.states())
    with disturbed.db.read() as session:
        jobs = select(func.count()).select_from(Job).where(Job.sweep_id == disturbed.id)
        assert session.scalar(jobs) == len(disturbed.trials()) == 8
        found = replay.replay(replay.read(session, session.get_one(Sweep, disturbed.id)), disturbed.suggestions)
    assert (found.differences, found.suggestions, found.decisions) == ([], 8, len(disturbed.reports()))


@pytest.mark.long
@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("method", "losers"), [("random", "stop"), ("tpe", "stop"), ("anneal", "stop"), ("anneal", "pause")]
)
def test_every_suggestion_and_decision_replays(make_run: Make, api: Api, method: str, losers: str) -> None:
    run = make_run(
        method={"name": method, "seed": 3, "startup_trials": 3},
        early_stopping={**ASHA, "losers": losers},
        budget={"max_trials": 10, "parallel_trials": 3},
    )
    run_with_deaths(run, random.Random(method))

    answer = api.get(f"/v1/sweeps/{run.id}/replay")
    assert (answer["is_equal"], answer["suggestions"], answer["decisions"]) == (True, 10, len(run.reports()))


def test_a_replay_finds_values_that_were_changed(make_run: Make, api: Api) -> None:
    run = make_run(budget={"max_trials": 2, "parallel_trials": 1})
    run.run()
    values = run.trials()[1].values
    with run.db.write() as session:
        session.get_one(Trial, (run.id, 1)).values = {**values, "learning_rate": 0.005}

    answer = api.get(f"/v1/sweeps/{run.id}/replay")
    assert (answer["is_equal"], len(answer["differences"])) == (False, 1)
    assert answer["differences"][0] == {
        "what": "suggestion",
        "number": 1,
        "rung": None,
        "stored": {**values, "learning_rate": 0.005},
        "replayed": values,
    }
