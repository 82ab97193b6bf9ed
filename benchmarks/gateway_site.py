"""A gateway as a process on SQLite, with one service whose only replica is the played engine behind a real relay."""

import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from app.cli.local.command_lines import child_environment, gateway_command
from app.database.engine import Database
from app.database.from_settings import open_database
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.serving.document import ServiceDocument
from app.models import Job, Replica, Service
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.relay_tokens import relay_token
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.operations.bootstrap import prepare
from benchmarks.servers import wait_until_it_answers
from config.settings import Settings, load_settings
from workers.supervisor.serving.relay_process import RelayPlace, RelayProcess

START_SECONDS = 30.0
ATTEMPT, FENCE = 1, 7
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Site:
    gateway_pid: int
    gateway_port: int
    key: str
    relay_port: int
    relay_token: str


def started(folder: Path, stack: ExitStack) -> Site:
    """All of it, ended with the stack."""
    environment = {"TRAINYARD_DATA_DIR": str(folder / "data"), "TRAINYARD_SERVING_AUTO": "0"}
    settings = prepare(load_settings({**environment, "TRAINYARD_DATABASE_URL": f"sqlite:///{folder}/gateway.db"}))
    db = open_database(settings.database)
    stack.callback(db.close)
    job_id = new_id("job")
    token = relay_token(settings.security.secret_key, job_id=job_id, attempt=ATTEMPT, fence=FENCE)
    relay = RelayProcess()
    stack.callback(relay.close)
    relay.start(RelayPlace(address="127.0.0.1", socket=_engine(folder, stack), token=token))
    port = relay.port()
    _add_service(db, job_id, port)
    key = api_keys.create(db, SecretBox(settings.security.secret_key), role=Role.INFERENCE, project="default").key
    pid, own_port = _gateway(settings, environment, stack)
    return Site(gateway_pid=pid, gateway_port=own_port, key=key, relay_port=port, relay_token=token)


def _engine(folder: Path, stack: ExitStack) -> Path:
    """The socket of a running engine."""
    place = folder / "engine.sock"
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.played_engine", str(place)], cwd=ROOT)
    _end_with(stack, process)
    deadline = time.monotonic() + START_SECONDS
    while not place.is_socket():
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError("the engine of the benchmark does not listen")
        time.sleep(0.02)
    return place


def _add_service(db: Database, job_id: str, port: int) -> None:
    service = Service(
        id=new_id("service"),
        project="default",
        name="support",
        created_by="benchmark",
        submits_as=new_id("caller"),
        spec=ServiceDocument().changed(name="support", model={"model_uri": "base"}).to_json(),
        base={},
        task="generate",
        model_key="base",
    )
    replica = Replica(
        job_id=job_id,
        service_id=service.id,
        number=0,
        revision=1,
        attempt=ATTEMPT,
        fence=FENCE,
        address="127.0.0.1",
        port=port,
        answers_since=utc_now(),
    )
    for row in (service, _job(job_id), replica):  # one after the other: the last refers to both
        with db.write() as session:
            session.add(row)


def _job(job_id: str) -> Job:
    return Job(
        id=job_id,
        project="default",
        queue="default",
        name="support-0",
        spec={},
        training_type="INFERENCE",
        framework="TRANSFORMERS",
        priority=5,
        status=JobState.SERVING,
        attempt=ATTEMPT,
        fence=FENCE,
        queued_at=utc_now(),
    )


def _gateway(settings: Settings, environment: dict[str, str], stack: ExitStack) -> tuple[int, int]:
    """The process and the port of a gateway that answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        port = int(listener.getsockname()[1])
        own = {**environment, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        own["TRAINYARD_DATABASE_URL"] = settings.database.url
        listener.set_inheritable(True)
        process = subprocess.Popen(
            gateway_command(listener.fileno()),
            env=child_environment(own, settings),
            cwd=tempfile.gettempdir(),
            pass_fds=[listener.fileno()],
        )
    _end_with(stack, process)
    wait_until_it_answers(process, port)
    return process.pid, port


def _end_with(stack: ExitStack, process: "subprocess.Popen[bytes]") -> None:
    def end() -> None:
        process.terminate()
        process.wait(timeout=START_SECONDS)

    stack.callback(end)
