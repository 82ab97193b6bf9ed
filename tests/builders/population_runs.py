"""A sweep of population based training whose jobs a test runs by hand: they halt, with a checkpoint, as trainers do."""

from typing import Any

from sqlalchemy import update

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Job, Trial
from tests.builders.factories import make_document
from tests.builders.sweep_runs import STEPS, Curve, SweepRun, bowl
from tests.systems.apps import Api

INTERVAL = 9
METHOD: dict[str, Any] = {"name": "pbt", "population": 4, "interval": INTERVAL, "seed": 7}
IDLE = (JobState.PAUSED, *TERMINAL)


def population_document(**changes: Any) -> dict[str, Any]:
    """A sweep of four members that halt after 9 and 18 of 27 steps; ``changes`` replace whole sections."""
    job = make_document(
        data_config={"validation_split": 0.1}, training_config={"hyperparameters": {"max_steps": str(STEPS)}}
    )
    del job["name"]
    document = {"job": job, "method": METHOD, "budget": {"max_trials": 20, "parallel_trials": 4}}
    return {**document, **changes}


class PopulationRun(SweepRun):
    """``advance`` trains a job to its next halt, where it saves and is paused, or to its end."""

    def __init__(self, api: Api, **changes: Any) -> None:
        super().__init__(api, **population_document(**changes))

    def advance(self, number: int, curve: Curve = bowl, *, saves: bool = True) -> None:
        job, trial = self.job(number), self.trials()[number]
        if job.state in IDLE:
            return
        halts = job.document.training_config.halt_at
        start = max(job.current_step, trial.fork_step)
        to = next((at for at in halts.at if at > start), STEPS) if halts is not None else STEPS
        self.train(number, to=to, curve=curve)
        if to >= STEPS:
            self.end(number)
        elif saves:
            self.save_and_halt(number, to)
        else:
            self.become(number, JobState.PAUSED)

    def save_and_halt(self, number: int, step: int) -> str:
        """It saves, and holds no device any more; the id of its checkpoint."""
        checkpoint_id = self.save(number, step)
        self.become(number, JobState.PAUSED, latest_checkpoint_id=checkpoint_id)
        return checkpoint_id

    def become(self, number: int, state: JobState, **columns: Any) -> None:
        with self.db.write() as session:
            of_it = Job.id == self.trials()[number].job_id
            session.execute(update(Job).where(of_it).values(status=state, **columns))

    def generation(self, curve: Curve = bowl) -> None:
        """Every member trains until it halts or ends, and is decided about; there has to be room for all of them."""
        self.step()
        for trial in self.running():
            self.advance(trial.number, curve)
        self.step()

    def running(self) -> list[Trial]:
        return [trial for trial in self.trials() if trial.state == "RUNNING"]

    def replaced(self) -> dict[int, int]:
        """Number of each fork → that of its winner."""
        return {trial.number: trial.parent_number for trial in self.trials() if trial.parent_number is not None}
