"""A gateway before fake engines behind real relays, on a test's database."""

import asyncio
import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select
from tornado.netutil import bind_sockets

from app.cli.local.command_lines import gateway_command
from app.database.engine import Database
from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.serving.document import ServiceDocument
from app.gateway.server import GatewayServer
from app.models import ApiKey, Job, Replica, Service
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.relay_tokens import relay_token
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.operations.control_plane import control_plane
from config.settings import load_settings
from tests.builders.factories import make_job, make_project, make_queue
from tests.doubles.fake_engine import FakeEngine, running
from tests.doubles.fakes import FakeDispatcher
from tests.systems.apps import SECRET_KEY
from tests.systems.servers import free_port
from workers.supervisor.serving.relay_process import RelayPlace, RelayProcess

ROOT = Path(__file__).parents[2]
SECONDS = 20.0


class Answer:
    """Status, headers and content of an answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.raw = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The data of a stream, without comments."""
        lines = [line.removeprefix("data: ") for line in self.raw.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def comments(self) -> list[str]:
        return [line for line in self.raw.decode().split("\n") if line.startswith(":")]


class GatewaySite:
    """The rows of services and replicas, their engines and relays, and a gateway."""

    def __init__(self, database: Database, folder: Path, **settings: str) -> None:
        self.db, self.folder = database, folder
        self.environment = {
            "TRAINYARD_DATA_DIR": str(folder / "data"),
            "TRAINYARD_SECURITY_SECRET_KEY": SECRET_KEY,
            "TRAINYARD_DATABASE_URL": str(database.engine.url.render_as_string(hide_password=False)),
            "TRAINYARD_SERVING_AUTO": "0",
            "TRAINYARD_GATEWAY_PORT": str(free_port()),
            **settings,
        }
        self.settings = load_settings(self.environment)
        self._started = ExitStack()
        with database.write() as session:
            make_project(session)
            make_queue(session)
        self.key = self.make_key(Role.INFERENCE)

    @property
    def port(self) -> int:
        return self.settings.gateway.port

    def close(self) -> None:
        self._started.close()

    def make_key(self, role: Role, project: str | None = "default") -> str:
        if project is not None:
            with self.db.write() as session:
                make_project(session, project)
        return api_keys.create(self.db, SecretBox(SECRET_KEY), role=role, project=project).key

    def revoke_key(self) -> None:
        """Also those of others."""
        with self.db.write() as session:
            for row in session.scalars(select(ApiKey)):
                row.revoked_at = utc_now()

    def service(self, name: str = "support", *, project: str = "default", **document: Any) -> str:
        """The id of a service without replicas."""
        spec = ServiceDocument().changed(name=name, model={"model_uri": "base"}).to_json()
        with self.db.write() as session:
            make_project(session, project)
            session.flush()
            row = Service(
                id=new_id("service"),
                project=project,
                name=name,
                created_by="key-test",
                submits_as=new_id("caller"),
                spec={**spec, **document},
                base={},
                task=document.get("task", "generate"),
                model_key=f"base-of-{name}",
            )
            session.add(row)
            return row.id

    def set_service(self, service_id: str, **columns: Any) -> None:
        with self.db.write() as session:
            row = session.get_one(Service, service_id)
            for column, value in columns.items():
                setattr(row, column, value)

    def engine(self, name: str = "engine", **options: Any) -> tuple[FakeEngine, Path]:
        """A running engine, and its socket."""
        place = self.folder / f"{name}.sock"
        return self._started.enter_context(running(FakeEngine(name, **options), place)), place

    def replica(self, service_id: str, place: Path, *, number: int = 0) -> "ServedReplica":
        """A replica that answers: its rows, and a real relay before the engine's socket."""
        with self.db.write() as session:
            job = make_job(session, state=JobState.SERVING, attempt=1, fence=7)
        relay = RelayProcess()
        token = relay_token(SECRET_KEY, job_id=job.id, attempt=1, fence=7)
        relay.start(RelayPlace(address="127.0.0.1", socket=place, token=token))
        self._started.callback(relay.close, hurries=True)
        with self.db.write() as session:
            session.add(
                Replica(
                    job_id=job.id,
                    service_id=service_id,
                    number=number,
                    revision=1,
                    attempt=1,
                    fence=7,
                    address="127.0.0.1",
                    port=relay.port(),
                    answers_since=utc_now(),
                )
            )
        return ServedReplica(self.db, job.id, relay)

    def serve(self) -> "GatewaySite":
        """Run a gateway on a thread of this process."""
        self._started.enter_context(self._in_process())
        return self

    def serve_as_process(self) -> "subprocess.Popen[bytes]":
        """Run a gateway as `trainyard gateway` does."""
        own = {"PATH": "/usr/bin:/bin", "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT), **self.environment}
        process = subprocess.Popen(gateway_command(), env=own, cwd="/")
        self._started.callback(process.wait)
        self._started.callback(process.terminate)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                if self.ask("GET", "/health").status == 200:
                    return process
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the gateway does not listen")

    def ask(self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str) -> Answer:
        with self.asking(method, path, body, key=key, **headers) as connection:
            return Answer(connection.getresponse())

    @contextmanager
    def asking(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str
    ) -> Iterator[http.client.HTTPConnection]:
        """A connection on which the request was sent; its answer is not read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.key if key is None else key}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, raw, {**sent, **headers})
            yield connection
        finally:
            connection.close()

    def chat(self, text: str, *, model: str = "support", **more: Any) -> Answer:
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        return self.ask("POST", "/v1/chat/completions", body)

    @contextmanager
    def _in_process(self) -> Iterator[None]:
        plane = control_plane(self.settings, self.db, FakeDispatcher())
        ready = threading.Event()
        stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

        async def serve() -> None:
            server = GatewayServer(self.settings, plane)
            server.http.add_sockets(bind_sockets(self.port, "127.0.0.1"))
            server.start()
            ended = asyncio.Event()
            stop.append((asyncio.get_running_loop(), ended))
            ready.set()
            await ended.wait()
            await server.close(seconds=0.2)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="gateway")
        thread.start()
        assert ready.wait(SECONDS)
        try:
            yield
        finally:
            loop, ended = stop[0]
            loop.call_soon_threadsafe(ended.set)
            thread.join(SECONDS)


class ServedReplica:
    def __init__(self, database: Database, job_id: str, relay: RelayProcess) -> None:
        self._db = database
        self.job_id = job_id
        self._relay = relay

    def kill(self) -> None:
        """End its relay, as the kernel does with the supervisor's."""
        self._relay.close(hurries=True)

    def set_job(self, **columns: Any) -> None:
        with self._db.write() as session:
            row = session.get_one(Job, self.job_id)
            for column, value in columns.items():
                setattr(row, column, value)

    def set_replica(self, **columns: Any) -> None:
        with self._db.write() as session:
            row = session.get_one(Replica, self.job_id)
            for column, value in columns.items():
                setattr(row, column, value)


def memory_mb(pid: int) -> float:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
