"""A node in miniature: a database, a storage, a claimed attempt, and its real supervisor as a process."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from app.database.engine import Database
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.units import WHOLE
from app.host import processes
from app.models import Attempt, Job, JobEvent, Lease, Node
from app.models.base import Base
from app.storage.logs import LogReader
from app.storage.storage import Storage
from config.settings import Settings, load_settings
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.engines import engine_on
from tests.systems.polling import polls
from workers.node.spawn_supervisor import Spawn, reap_supervisors, spawn_supervisor, start_attempts

Row = TypeVar("Row", bound=Base)

NODE = "local"
ENDED = {*TERMINAL, JobState.PAUSED, JobState.QUEUED}


TRAINS = """
import time
from trainyard import hooks
run = hooks.init()
start = 0
resumed = run.resume_checkpoint()
if resumed:
    start = int(open(f"{resumed}/state").read())
    print("resumed at", start, flush=True)
step = start
for step in range(start + 1, STEPS + 1):
    time.sleep(PAUSE if not resumed else 0.02)
    run.log_metrics({"loss": 1 / step}, step=step)
    run.progress(step, STEPS)
    print("step", step, flush=True)
    stop = run.should_stop()
    if stop or run.should_checkpoint() or step in SAVE_AT:
        with run.checkpoint(step=step, metrics={"loss": 1 / step}) as path:
            open(f"{path}/state", "w").write(str(step))
    if stop:
        break
else:
    if FAIL_AT_END and not resumed:
        raise SystemExit(7)
    open(f"{run.output_dir}/model.bin", "wb").write(b"weights")
    open(f"{run.output_dir}/readme.txt", "w").write("a model")
"""

SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(120)\n"

STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPS


class World:
    """One node's data directory and database."""

    def __init__(
        self, directory: Path, database_url: str, *, spawn: Spawn = spawn_supervisor, **variables: str
    ) -> None:
        self.spawn = spawn
        self.directory = directory
        self.data_dir = directory / "data"
        self.settings: Settings = load_settings(
            {
                "TRAINYARD_DATA_DIR": str(self.data_dir),
                "TRAINYARD_DATABASE_URL": database_url,
                "TRAINYARD_STORAGE_ROOTS": str(directory / "mine"),
                "TRAINYARD_LOG_LEVEL": "INFO",
                **variables,
            }
        )
        self.storage = Storage(self.settings.storage.url)
        self.db = Database().bind(engine_on(database_url))
        (directory / "mine").mkdir(exist_ok=True)
        (directory / "mine" / "data.jsonl").write_text('{"text": "hello"}\n')
        with self.db.write() as session:
            make_node(session, NODE, devices=4)

    def submit(
        self,
        script: str,
        *,
        ranks: int = 1,
        document: dict[str, Any] | None = None,
        framework_config: Mapping[str, str] | None = None,
        distributed: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        **columns: Any,
    ) -> str:
        """A CUSTOM job that is dispatched to this node; returns its id."""
        path = self.directory / "mine" / f"script-{time.monotonic_ns()}" / "train.py"
        path.parent.mkdir()
        path.write_text(script)
        asked = make_document(
            training_config={
                "base_model": {"model_id": "none"},
                "framework": {
                    "type": "CUSTOM",
                    "custom_script_path": str(path),
                    "config": dict(framework_config or {}),
                    **({"distributed": dict(distributed)} if distributed else {}),
                },
                "hyperparameters": {"speed": "fast"},
            },
            resource_config={"gpu_count": ranks, **(resources or {})},
            **{"data_config": {"sources": [{"path": str(self.directory / "mine/data.jsonl")}]}, **(document or {})},
        )
        with self.db.write() as session:
            job = make_job(session, document=asked, **columns)
            return job.id

    def dispatch(self, job_id: str, *, ranks: int = 1, first_device: int = 0, share: int = WHOLE) -> int:
        """What a planner leaves behind; returns the attempt's number."""
        with self.db.write() as session:
            job, node = session.get_one(Job, job_id), session.get_one(Node, NODE)
            job.status = JobState.SCHEDULING
            indices = tuple(range(first_device, first_device + ranks))
            make_attempt(session, job, node, device_indices=indices, claimed=False, share=share)
            return job.attempt

    def start(self, script: str, *, ranks: int = 1, **options: Any) -> str:
        """Submit, dispatch and start; returns the job's id."""
        job_id = self.submit(script, ranks=ranks, **options)
        self.take_up(job_id, ranks=ranks)
        return job_id

    def take_up(self, job_id: str, **dispatched: int) -> None:
        """Dispatch a submitted job to this node, and start its supervisor."""
        assert self.start_supervisor(job_id, self.dispatch(job_id, **dispatched))

    def start_supervisor(self, job_id: str, attempt: int, settings: Settings | None = None, node: str = NODE) -> int:
        """How many were started: none when the attempt can't be claimed."""
        return start_attempts(settings or self.settings, self.db, [(job_id, attempt)], node=node, spawn=self.spawn)

    def request(self, job_id: str, requested: str | None = None, **columns: Any) -> None:
        """Write a control request, as the API does, and nudge the supervisor."""
        with self.db.write() as session:
            job = session.get_one(Job, job_id)
            job.requested = requested or job.requested
            for name, value in columns.items():
                setattr(job, name, value)
        self.nudge(job_id)

    def nudge(self, job_id: str) -> None:
        lease = self.lease(job_id)
        if lease.supervisor_pid is not None and lease.released_at is None:
            os.kill(lease.supervisor_pid, signal.SIGUSR1)

    def job(self, job_id: str) -> Job:
        with self.db.read() as session:
            return session.get_one(Job, job_id)

    def lease(self, job_id: str) -> Lease:
        with self.db.read() as session:
            return session.query(Lease).filter_by(job_id=job_id).order_by(Lease.id.desc()).first()  # type: ignore[return-value]

    def attempt(self, job_id: str, number: int = 1) -> Attempt:
        with self.db.read() as session:
            return session.get_one(Attempt, (job_id, number))

    def attempt_trains(self, job_id: str, number: int) -> bool:
        """Whether that attempt has come so far."""
        with self.db.read() as session:
            attempt = session.get(Attempt, (job_id, number))
            return attempt is not None and attempt.trained_at is not None

    def events(self, job_id: str) -> list[JobEvent]:
        with self.db.read() as session:
            return session.query(JobEvent).filter_by(job_id=job_id).order_by(JobEvent.seq).all()

    def states(self, job_id: str) -> list[str]:
        return [event.to_status for event in self.events(job_id) if event.to_status]

    def log(self, job_id: str) -> list[str]:
        return [line.line for line in LogReader(self.storage, job_id).read(live=False, limit=1_000_000)]

    def wait_for_end(self, job_id: str, seconds: float = 20.0) -> Job:
        """The job once its attempt has ended and its supervisor has exited."""
        lease = self.lease(job_id)
        self.wait(lambda: self.job(job_id).state in ENDED, seconds, job_id)
        self.wait(lambda: not self.supervisor_alive(job_id, lease.attempt), 5.0, job_id)
        return self.job(job_id)

    def wait_for_line(self, job_id: str, text: str, seconds: float = 10.0) -> None:
        self.wait(lambda: any(text in line for line in self.log(job_id)), seconds, job_id)

    def wait(self, condition: Callable[[], bool], seconds: float, job_id: str = "") -> None:
        assert any(condition() for _ in polls(seconds, shortest=0.02)), self.describe(job_id)

    def supervisor_alive(self, job_id: str, attempt: int) -> bool:
        reap_supervisors()
        # One that is just ending has no command line any more, by which it is found, and is not gone as long as one
        # of its threads is not.
        mine = [each for each in rows(self, Lease) if (each.job_id, each.attempt) == (job_id, attempt)]
        ending = [each.supervisor_pid for each in mine if each.supervisor_pid is not None]
        return bool(processes.supervisors_of(job_id, attempt)) or any(map(processes.start_ticks, ending))

    def processes(self, job_id: str, attempt: int = 1) -> list[int]:
        return processes.processes_of_attempt(job_id, attempt)

    def describe(self, job_id: str) -> str:
        said = self.data_dir / "log" / "supervisors.log"
        if not job_id:
            return said.read_text() if said.exists() else ""
        job = self.job(job_id)
        return "\n".join(
            [
                f"{job.status} {job.error_type} {job.error_message}\n{job.error_stack}",
                *self.log(job_id),
                said.read_text() if said.exists() else "",
            ]
        )

    def close(self) -> None:
        with self.db.read() as session:
            leases = session.query(Lease).all()
        for lease in leases:
            processes.kill(processes.supervisors_of(lease.job_id, lease.attempt))
            processes.kill_attempt(lease.job_id, lease.attempt)
        deadline = time.monotonic() + 5
        while any(self.supervisor_alive(x.job_id, x.attempt) for x in leases) and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [x.job_id for x in leases if self.supervisor_alive(x.job_id, x.attempt)]
        self.db.close()
        assert left == [], "supervisors that do not end would write into the database of the next test"


def training(steps: int = 5, pause: float = 0.02, save_at: tuple[int, ...] = (), *, fail_at_end: bool = False) -> str:
    """A script that trains with our hooks; one with ``fail_at_end`` reaches its end only in its second attempt.

    ``pause``: seconds of a step until it is resumed, so that a slow machine has time to act in the first attempt.
    """
    given = f"STEPS, PAUSE, SAVE_AT, FAIL_AT_END = {steps}, {pause}, {save_at}, {fail_at_end}\n"
    return given + TRAINS


def rows(world: World, kind: type[Row], **where: Any) -> list[Row]:
    """Every row of a table."""
    with world.db.read() as session:
        return session.query(kind).filter_by(**where).all()


def try_again(world: World, job_id: str, *, ranks: int = 1, seconds: float = 20.0) -> Job:
    """What planner and node do after a retry; returns the job at the end of its second attempt."""
    with world.db.write() as session:
        session.get_one(Job, job_id).status = JobState.QUEUED
    world.take_up(job_id, ranks=ranks)
    return world.wait_for_end(job_id, seconds)


def environment(pid: int) -> list[bytes]:
    """The variables that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
