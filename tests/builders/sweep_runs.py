"""A sweep over the API's database whose jobs a test runs by hand: it reports metrics and ends them."""

import copy
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import select, update

from app.domain.lifecycle.states import TERMINAL, JobState
from app.http.context import EXTENSION
from app.models import Job, Metric, Node, Sweep, SweepEvent, Trial, TrialReport
from app.models.base import utc_now
from app.services.sweeps import stepping
from app.services.sweeps.next_trial import Suggests
from app.services.sweeps.search.suggestions import Suggestions
from tests.builders.factories import make_checkpoint, make_node
from tests.builders.sweeps import make_sweep_document
from tests.systems.apps import Api

Curve = Callable[[Mapping[str, Any], int], float]  # values of a trial, step → its objective
STEPS = 27
NODE = "runs-sweeps"


def bowl(values: Mapping[str, Any], step: int) -> float:
    """Falls with the steps, and is lowest for a learning rate of 1e-3."""
    return (math.log10(values["learning_rate"]) + 3) ** 2 + 1.0 / step


def constant(value: float) -> Curve:
    """The same at every step."""
    return lambda _values, _step: value


class SweepRun:
    """One sweep; ``step`` is what the coordinator's loop does."""

    def __init__(self, api: Api, *, existing: str = "", **changes: Any) -> None:
        self.api, self.db = api, api.db
        self.plane = api.app.extensions[EXTENSION].plane
        self.suggestions: Suggests = Suggestions()
        with self.db.write() as session:
            if session.get(Node, NODE) is None:
                make_node(session, NODE, devices=4)
        self.id = existing
        if not existing:
            answer = api.post("/v1/sweeps", make_sweep_document(**changes))
            self.id = str(api.data(answer, 201)["sweep_id"])

    def another(self, sweep_id: str) -> "SweepRun":
        """The same for a sweep that was made otherwise."""
        run = copy.copy(self)
        run.id = sweep_id
        return run

    def step(self) -> bool:
        return stepping.step(self.plane, self.suggestions, self.id)

    def sweep(self) -> Sweep:
        with self.db.read() as session:
            return session.get_one(Sweep, self.id)

    def known(self) -> list[Any]:
        with self.db.read() as session:
            return session.get_one(Sweep, self.id).known

    def trials(self) -> list[Trial]:
        with self.db.read() as session:
            return list(session.scalars(select(Trial).where(Trial.sweep_id == self.id).order_by(Trial.number)))

    def reports(self) -> list[TrialReport]:
        with self.db.read() as session:
            query = select(TrialReport).where(TrialReport.sweep_id == self.id).order_by(TrialReport.seq)
            return list(session.scalars(query))

    def events(self) -> list[str]:
        with self.db.read() as session:
            query = select(SweepEvent.type).where(SweepEvent.sweep_id == self.id).order_by(SweepEvent.seq)
            return list(session.scalars(query))

    def job(self, number: int) -> Job:
        with self.db.read() as session:
            return session.scalars(
                select(Job).join(Trial, Trial.job_id == Job.id).where(Trial.sweep_id == self.id, Trial.number == number)
            ).one()

    def states(self) -> list[str]:
        return [trial.state for trial in self.trials()]

    def train(self, number: int, *, to: int = STEPS, curve: Curve = bowl, metric: str = "eval_loss") -> None:
        """The job of a trial reports every step up to this one; its control requests are not read."""
        trial = self.trials()[number]
        with self.db.write() as session:
            job = session.get_one(Job, trial.job_id)
            job.status, job.total_steps = JobState.TRAINING, STEPS
            for at in range(max(job.current_step, trial.fork_step) + 1, to + 1):
                value = curve(trial.values, at)
                is_odd = not math.isfinite(value)
                session.add(
                    Metric(
                        job_id=job.id,
                        name=metric,
                        step=at,
                        at=utc_now(),
                        value=None if is_odd else value,
                        special="NaN" if is_odd else None,
                        attempt=1,
                        seq=at,
                    )
                )
            job.current_step = max(to, job.current_step)

    def save(self, number: int, step: int, **columns: Any) -> str:
        """The job of a trial has stored a checkpoint after this step; its id."""
        with self.db.write() as session:
            job = session.get_one(Job, self.trials()[number].job_id)
            return make_checkpoint(session, job, step=step, **columns).id

    def halt(self, number: int, *, at: int, curve: Curve = bowl) -> None:
        """The job of a trial trains to this step, evaluates, saves and stops."""
        self.train(number, to=at, curve=curve)
        self.end(number, JobState.PAUSED, status_reason=f"halted at step {at}")

    def end(self, number: int, state: JobState = JobState.COMPLETED, **columns: Any) -> None:
        """The job of a trial ends so."""
        with self.db.write() as session:
            session.execute(
                update(Job)
                .where(Job.id == self.trials()[number].job_id)
                .values(status=state, requested=None, finished_at=utc_now(), **columns)
            )

    def carry_out(self, number: int) -> None:
        """The job of a trial carries out a request to cancel it, if there is one."""
        if self.job(number).requested == "cancel":
            self.end(number, JobState.CANCELLED)

    def run(self, *, curve: Curve = bowl, most: int = 200) -> None:
        """Train every trial a third further at a time, until the sweep has ended."""
        for _ in range(most):
            self.step()
            if self.sweep().finished_at is not None:
                return
            for trial in self.trials():
                if trial.state == "RUNNING":
                    self.advance(trial.number, curve)
        raise AssertionError(f"the sweep did not end: {self.sweep().status}, {self.states()}")

    def advance(self, number: int, curve: Curve = bowl) -> None:
        job = self.job(number)
        if job.state in TERMINAL or job.state is JobState.PAUSED:
            return
        if job.requested == "cancel":
            self.end(number, JobState.CANCELLED)
        elif job.current_step >= STEPS:
            self.end(number)
        else:
            halts, to = job.document.training_config.halt_at, max(3, job.current_step * 3)
            if halts is not None and to in halts.at:
                self.halt(number, at=to, curve=curve)
            else:
                self.train(number, to=to, curve=curve)

    def close(self) -> None:
        with suppress(AttributeError):
            self.suggestions.close()  # type: ignore[attr-defined]  # that of a test may have none
