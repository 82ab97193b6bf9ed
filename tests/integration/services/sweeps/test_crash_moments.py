"""A coordinator that dies at a named moment of a sweep, before or after the commit of the transaction that it names.

After the commit is also before what follows it: the wake-up, the end of a job that was asked to end, the deletion of
files.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps.observations import Observation
from app.domain.sweeps.space import Space
from app.domain.sweeps.spec import SweepSpec
from app.http.sweep_documents import complete
from app.models import Job, Sweep, SweepEvent
from app.security.permissions import Caller, Role
from app.services.sweeps import forks
from app.services.sweeps.reading import replay
from app.services.sweeps.search.suggestions import Suggestion, Suggestions
from tests.builders.population_runs import METHOD, PopulationRun
from tests.builders.sweep_runs import Curve, SweepRun, constant
from tests.integration.services.sweeps.test_sweep_crashes import ASHA, DETERMINISTIC, Died, DyingDatabase, outcome
from tests.integration.services.sweeps.test_trunk_verification import end, verifying
from tests.integration.services.sweeps.test_trunks import LENGTHS, job_of
from tests.systems.apps import Api

pytestmark = pytest.mark.long

Make = Callable[..., SweepRun]
LEVEL = constant(1.0)
FEW = {"max_trials": 4, "parallel_trials": 2}


class TrunkRun(SweepRun):
    """Trials of several lengths, which save where others branch off; forks are also trained from the start, at once."""

    def step(self) -> bool:
        for job in verifying(self):
            if job.state not in TERMINAL:
                end(self, job, "same")
        return super().step()

    def advance(self, number: int, curve: Curve = LEVEL) -> None:
        job, fork_step = self.job(number), self.trials()[number].fork_step
        branches = job.document.output_config.checkpoint.save_at
        to = next((step for step in branches if step > max(job.current_step, fork_step)), None)
        self.train(number, to=to or self.trials()[number].values["max_steps"], curve=curve)
        if to is not None:
            self.save(number, to)
        else:
            self.end(number, report={"model_hash": "same"})


def stopping(api: Api) -> SweepRun:
    return SweepRun(api, **{**DETERMINISTIC, "budget": FEW})


def pausing(api: Api) -> SweepRun:
    return SweepRun(api, **{**DETERMINISTIC, "budget": FEW, "early_stopping": {**ASHA, "losers": "pause"}})


def population(api: Api) -> SweepRun:
    return PopulationRun(api, method={**METHOD, "interval": 18}, deterministic=True)


def trunks(api: Api) -> SweepRun:
    return TrunkRun(
        api,
        job=job_of(),
        parameters=LENGTHS,
        method={"name": "grid", "order": "natural"},
        budget={"parallel_trials": 1},
        verify_trunks=1,
        deterministic=True,
    )


@dataclass(frozen=True)
class Transaction:
    """The first one of a sweep that records an event like this."""

    name: str
    make: Callable[[Api], SweepRun]
    type: str
    reason: str = ""
    message: str = ""  # begins so


TRANSACTIONS = (
    Transaction("first-trial", stopping, "trial.started", message="trial 0"),
    Transaction("trial-of-next-generation", stopping, "trial.started", message="trial 2"),
    Transaction("loser-asked-to-end", stopping, "trial.reported", "stops"),
    Transaction("best-trial-ended", stopping, "sweep.best"),
    Transaction("budget-used-up", stopping, "sweep.status", "budget"),
    Transaction("sweep-ended", stopping, "sweep.status", message="max_trials: 4 trials were made"),
    Transaction("halted-trial-promoted", pausing, "trial.reported", "continues"),
    Transaction("halted-losers-ended", pausing, "trial.reported", "stops"),
    Transaction("population-forked", population, "trial.started", message="trial 4, a fork of"),
    Transaction("trunk-forked", trunks, "trial.started", message="trial 1, a fork of"),
    Transaction("verification-begun", trunks, "sweep.changed", "VERIFIES"),
    Transaction("weights-compared", trunks, "sweep.changed", "TRUNK_VERIFIED"),
)


class DyingAt(Database):
    """A database whose writer dies once: before or after the commit of this transaction."""

    def __init__(self, inner: Database, sweep_id: str, at: Transaction, *, after_commit: bool) -> None:
        super().__init__()
        self._inner, self._sweep_id, self._at, self._after_commit = inner, sweep_id, at, after_commit
        self.has_died = False
        self.bind(inner.engine)

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self._inner.write() as session:
            yield session
            is_it = not self.has_died and self._is_it(session)
            self.has_died = self.has_died or is_it
            if is_it and not self._after_commit:
                raise Died
        if is_it:
            raise Died

    def _is_it(self, session: Session) -> bool:
        at = self._at
        query = select(SweepEvent.message).where(SweepEvent.sweep_id == self._sweep_id, SweepEvent.type == at.type)
        if at.name == "sweep-ended" or at.reason:
            query = query.where(SweepEvent.reason == at.reason)
        return any(message.startswith(at.message) for message in session.scalars(query))


def run_to_end(run: SweepRun) -> None:
    """Run it; after each death another coordinator with another process of the method continues it."""
    for _ in range(100):
        try:
            run.step()
        except Died:
            run.close()
            run.suggestions = Suggestions()
            continue
        if run.sweep().finished_at is not None:
            return
        for trial in run.trials():
            if trial.state == "RUNNING":
                run.advance(trial.number)
    raise AssertionError(f"the sweep did not end: {run.sweep().status}, {run.states()}")


def events(run: SweepRun) -> Counter[tuple[str, str]]:
    with run.db.read() as session:
        query = select(SweepEvent.type, SweepEvent.reason).where(SweepEvent.sweep_id == run.id)
        return Counter((row.type, row.reason) for row in session.execute(query))


def found(run: SweepRun) -> tuple[Any, ...]:
    """All that must not depend on deaths: trials, ends, forks, events, jobs; and nothing that a replay finds else."""
    with run.db.read() as session:
        jobs = session.scalars(select(Job).where(Job.sweep_id == run.id).order_by(Job.id)).all()
        replayed = replay.replay(replay.read(session, session.get_one(Sweep, run.id)), run.suggestions)
    trials = run.trials()
    forks = [(trial.parent_number, trial.fork_step) for trial in trials]
    assert (replayed.differences, replayed.suggestions) == ([], len(trials))
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert len({trial.job_id for trial in trials}) == len(trials)
    return run.sweep().status, outcome(run), forks, events(run), len(jobs), replayed.decisions


@pytest.fixture(scope="module")
def undisturbed() -> dict[Callable[[Api], SweepRun], tuple[Any, ...]]:
    """What each kind of sweep finds; it is the same on every database."""
    return {}


@pytest.mark.both_databases
@pytest.mark.parametrize("after_commit", [False, True], ids=["before-commit", "after-commit"])
@pytest.mark.parametrize("at", TRANSACTIONS, ids=lambda at: at.name)
def test_a_coordinator_dies_and_the_sweep_ends_as_an_undisturbed_one(
    api: Api, undisturbed: dict[Callable[[Api], SweepRun], tuple[Any, ...]], at: Transaction, *, after_commit: bool
) -> None:
    if at.make not in undisturbed:
        calm = at.make(api)
        run_to_end(calm)
        undisturbed[at.make] = found(calm)
    run = at.make(api)
    dying = DyingAt(run.db, run.id, at, after_commit=after_commit)
    run.plane = replace(run.plane, db=dying)

    run_to_end(run)

    assert dying.has_died
    assert found(run) == undisturbed[at.make]


@pytest.mark.both_databases
@pytest.mark.parametrize("after_commit", [False, True], ids=["before-commit", "after-commit"])
def test_a_server_dies_while_it_forks_a_sweep_and_none_or_a_whole_one_is_there(
    api: Api, make_run: Make, *, after_commit: bool
) -> None:
    first = make_run(**{**DETERMINISTIC, "budget": FEW})
    run_to_end(first)
    calm = first.another(forked(first, first.db))
    run_to_end(calm)

    with pytest.raises(Died):
        forked(first, DyingDatabase(first.db, 1, after_commit=after_commit))

    with first.db.read() as session:
        others = session.scalars(select(Sweep.id).where(Sweep.id.not_in([first.id, calm.id]))).all()
    assert len(others) == after_commit
    run = first.another(others[0] if others else forked(first, first.db))  # the client asks again
    assert run.known() == calm.known()
    run_to_end(run)
    assert found(run) == found(calm)


def forked(first: SweepRun, db: Database) -> str:
    """The id of a fork that is made with this database."""
    sweep = first.sweep()
    caller = Caller(key_id=sweep.created_by, role=Role.USER, project=sweep.project)
    return forks.fork(replace(first.plane, db=db), caller, first.id, {}, complete=complete).id


class DyingSuggestions:
    """The method's process is killed before it is asked for trial 2, and the coordinator dies with the answer for 3."""

    def __init__(self) -> None:
        self.inner = Suggestions()
        self.deaths: list[int] = []

    def suggest(
        self, spec: SweepSpec, space: Space, *, number: int, place: int, observations: Sequence[Observation]
    ) -> Suggestion:
        if number == 2 and self.inner.child_pid is not None:
            os.kill(self.inner.child_pid, signal.SIGKILL)
            self.deaths.append(number)
        found = self.inner.suggest(spec, space, number=number, place=place, observations=observations)
        if number == 3:
            self.deaths.append(number)
            raise Died
        return found

    def close(self) -> None:
        self.inner.close()


def test_the_process_of_a_method_dies_before_its_answer_and_its_coordinator_with_one(make_run: Make) -> None:
    document = {**DETERMINISTIC, "budget": FEW, "method": {"name": "tpe", "seed": 5, "startup_trials": 1}}
    calm, run = make_run(**document), make_run(**document)
    run_to_end(calm)
    run.suggestions = dying = DyingSuggestions()

    run_to_end(run)

    assert dying.deaths == [2, 3]
    assert found(run) == found(calm)
