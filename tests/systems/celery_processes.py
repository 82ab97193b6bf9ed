"""Coordinators and other Celery processes of ours as real processes, on a database and a Redis of the test's choice."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from celery import Celery
from celery.result import AsyncResult

from app.database.engine import Database, make_engine
from app.domain.lifecycle.states import JobState
from app.models import Job, ProcessBeat
from app.services.requests.wakeups import Dispatcher
from app.services.scheduling.planner import PLANNER
from config.queues import COORDINATOR, celery_config, worker_command
from config.settings import load_settings
from tests.builders.factories import make_job, make_node

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 10.0


class CeleryWorld:
    """One data directory; `close` ends whatever was started."""

    def __init__(self, folder: Path, *, database_url: str, broker_url: str, **variables: str) -> None:
        self._folder = folder
        self.environment = {
            "TRAINYARD_DATA_DIR": str(folder / "data"),
            "TRAINYARD_DATABASE_URL": database_url,
            "TRAINYARD_BROKER_URL": broker_url,
            **variables,
        }
        self.settings = load_settings(self.environment)
        self.db = Database().bind(make_engine(database_url))
        self.dispatcher = Dispatcher(self.settings)
        self.celery = Celery("test", set_as_current=False)
        self.celery.conf.update(celery_config(self.settings))
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, role: str = COORDINATOR, **variables: str) -> subprocess.Popen[bytes]:
        return self.start_command(worker_command(role), **variables)

    def start_rarely_polling(self, role: str = COORDINATOR) -> subprocess.Popen[bytes]:
        """A worker of whom something soon is to be expected only by a message."""
        return self.start_command([sys.executable, "-m", "tests.systems.rarely_polling", role])

    def start_command(self, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.environment, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT), **variables}
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd="/")
        self._processes.append(process)
        return process

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def submit(self, state: JobState = JobState.PENDING, **columns: Any) -> str:
        with self.db.write() as session:
            return make_job(session, state=state, **columns).id

    def add_node(self, name: str = "local", **columns: Any) -> None:
        with self.db.write() as session:
            make_node(session, name, **columns)

    def job(self, job_id: str) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, job_id)

    def is_in(self, job_id: str, state: JobState) -> bool:
        return self.job(job_id).state is state

    def shown(self, job_id: str) -> Any:
        """What the result backend says of the job."""
        return AsyncResult(job_id, app=self.celery)

    def planner_pid(self) -> int:
        """0 as long as no coordinator is elected."""
        with self.db.read() as session:
            beat = session.get(ProcessBeat, PLANNER)
            return int(beat.holder.split(":")[2]) if beat is not None else 0

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(STOP_SECONDS)
        self.dispatcher.close()
        self.celery.close()
        self.db.close()


def is_over(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None
