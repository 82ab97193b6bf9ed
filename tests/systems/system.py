"""The whole of Trainyard as real processes, each startable and killable by itself."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from app.services.operations.bootstrap import prepare
from config.settings import load_settings
from tests.systems.databases import put_migrated_sqlite
from tests.systems.polling import polls
from tests.systems.servers import RedisServer, free_port

# What the nodes of every system fork; unless it is set, tests choose. "supervisors" suits most: the imports for ranks
# would take more of a short test than its trainings do, and those that train have `ForkedAgents`.
NODE_WARM = os.environ.get("TESTS_NODE_WARM")
TRAINYARD = str(Path(sys.executable).parent / "trainyard")
START_SECONDS = 90.0  # of a few processes that compute, beside others that do
T = TypeVar("T")


def wait_for(look: Callable[[], T | None], *, seconds: float, what: str) -> T:
    """The first result of `look` that is true. Polls, because what is awaited happens in other processes."""
    for _ in polls(seconds):
        found = look()
        if found:
            return found
    raise AssertionError(f"not within {seconds} s: {what}")


class System:
    """One installation: a database, a Redis, and named processes on a data directory of their own."""

    def __init__(self, folder: Path, *, database_url: str = "", **settings: str) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.inputs = folder / "inputs"
        self.inputs.mkdir(parents=True, exist_ok=True)
        self.redis = RedisServer()
        self.port, self.gateway_port = free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._database_url = database_url
        self._settings = settings

    # ---- processes

    def start(self, *nodes: str) -> "System":
        self.redis.start()
        self.prepare()
        self.start_api()
        self.start_coordinator()
        for node in nodes:
            self.start_node(node)
        wait_for(self.is_ready, seconds=START_SECONDS, what="ready")
        wait_for(
            lambda: len(self.get("/v1/nodes")["nodes"]) == len(nodes), seconds=START_SECONDS, what="nodes registered"
        )
        return self

    def prepare(self) -> None:
        """The data directory and the database, as the first process would."""
        settings = load_settings(self.environment)
        put_migrated_sqlite(settings.database.url)
        prepare(settings)

    @property
    def environment(self) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
        env |= {
            "TRAINYARD_DATA_DIR": str(self.data_dir),
            "TRAINYARD_BROKER_URL": self.redis.url,
            "TRAINYARD_STORAGE_ROOTS": str(self.inputs),
            "TRAINYARD_API_PORT": str(self.port),
            "TRAINYARD_GATEWAY_PORT": str(self.gateway_port),
            "TRAINYARD_GATEWAY_URL": f"http://127.0.0.1:{self.gateway_port}",
            "TRAINYARD_GATEWAY_SESSIONS_URL": f"http://127.0.0.1:{self.gateway_port}",
            "TRAINYARD_NODE_WARM": NODE_WARM or "supervisors",
            **self._settings,
        }
        return env | ({"TRAINYARD_DATABASE_URL": self._database_url} if self._database_url else {})

    def environment_of(self, process: str) -> dict[str, str]:
        """What one of them is started with; all alike, unless a test wants them apart."""
        del process
        return self.environment

    def command_of(self, process: str) -> list[str]:
        """What the command line of one of them begins with; all alike, unless a test wants them apart."""
        del process
        return [TRAINYARD]

    def start_api(self) -> None:
        self._spawn("api", ["api"])

    def start_coordinator(self, name: str = "coordinator") -> None:
        self._spawn(name, ["coordinator"])

    def start_gateway(self, name: str = "gateway") -> None:
        self._spawn(name, ["gateway"])

    def start_node(self, name: str, *, config: Path | None = None) -> None:
        self._spawn(f"node-{name}", ["node", "--name", name, *(["--config", str(config)] if config else [])])

    def kill(self, name: str, signal_number: int = signal.SIGKILL) -> None:
        """End one process of ours (not what it started) and wait for its end."""
        process = self._processes.pop(name)
        process.send_signal(signal_number)
        process.wait(timeout=30)

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def stop(self) -> None:
        """End everything: processes first, then whatever supervisors are left, then Redis."""
        for name in list(self._processes):
            self.kill(name, signal.SIGKILL)
        for process in self.processes_of("job-"):
            with contextlib.suppress(psutil.NoSuchProcess):  # it may end by itself meanwhile
                process.kill()
        self.redis.close()

    def log(self, name: str) -> str:
        return (self.data_dir / "log" / f"{name}.log").read_text(errors="replace")

    def processes_of(self, job_id: str) -> list[psutil.Process]:
        """Every process whose command line names the job and this installation."""
        found, mine = [], f"{self.folder}/"
        for process in psutil.process_iter():
            try:
                line = " ".join(process.cmdline())
                if job_id not in line:
                    continue  # only few are asked for their environment, because tests poll
                if mine in line or process.environ().get("TRAINYARD_DATA_DIR", "").startswith(mine):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def supervisor_of(self, job_id: str) -> psutil.Process:
        return next(p for p in self.processes_of(job_id) if "workers.supervisor.main" in p.cmdline())

    def ranks_of(self, job_id: str) -> list[psutil.Process]:
        """The trainer processes: those that run the script or the built-in trainer."""
        return [
            p
            for p in self.processes_of(job_id)
            if any((a.endswith(".py") and "/code/" in a) or a == "workers.trainers.main" for a in p.cmdline())
            and not Path(p.cmdline()[0]).name.startswith("bwrap")
            and "workers.rank.agent" not in p.cmdline()
        ]

    # ---- HTTP

    @property
    def key(self) -> str:
        return (self.data_dir / "admin.key").read_text().strip()

    def is_ready(self) -> bool:
        try:
            return self.call("GET", "/health/ready")[0] == 200
        except OSError:
            return False

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """(status, parsed body)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.key}")
        request.add_header("Accept", "application/json")
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        data = None
        if body is not None:
            request.add_header("Content-Type", "application/json")
            data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data=data, timeout=30) as reply:
                return reply.status, json.loads(reply.read() or "null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or "null")
        except http.client.HTTPException as error:  # the answer breaks off: the server was killed
            raise ConnectionError(f"no whole answer to {method} {path}") from error

    def get(self, path: str) -> Any:
        status, body = self.call("GET", path)
        assert status == 200, body
        return body["data"]

    def download(self, path: str) -> bytes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": f"Bearer {self.key}"}
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            return bytes(reply.read())

    # ---- jobs

    def submit(self, document: dict[str, Any]) -> str:
        status, body = self.call("POST", "/v1/jobs", document)
        assert status == 201, body
        return str(body["data"]["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.get(f"/v1/jobs/{job_id}"))

    def wait_for_status(self, job_id: str, *statuses: str, seconds: float = 60) -> dict[str, Any]:
        """The job once it has one of the statuses; an end that was not asked for fails at once."""
        ended = {"COMPLETED", "FAILED", "CANCELLED", "PREEMPTED"}

        def look() -> dict[str, Any] | None:
            job = self._job_or_none(job_id)
            if job is None:
                return None
            assert job["status"] in statuses or job["status"] not in ended, self.story(job_id)
            return job if job["status"] in statuses else None

        return wait_for(look, seconds=seconds, what=f"{job_id} to be {statuses}")

    def wait_for_step(self, job_id: str, step: int, *, seconds: float = 60) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            job = self._job_or_none(job_id)
            assert job is None or job["status"] not in ("FAILED", "CANCELLED"), self.story(job_id)
            return job if job is not None and job["current_step"] >= step else None

        return wait_for(look, seconds=seconds, what=f"{job_id} to reach step {step}")

    def story(self, job_id: str) -> str:
        """What a person needs to understand a failed test: the job, its events, its last log lines."""
        job = self.job(job_id)
        events = self.get(f"/v1/jobs/{job_id}/events?page_size=100&order_by=created_at")["events"]
        lines = [
            f"{e['at']} {e['type']} {e['from_status']}→{e['to_status']} {e['reason']} {e['message']}" for e in events
        ]
        logs = self.get(f"/v1/jobs/{job_id}/logs?tail=30&follow=false")["lines"]
        return "\n".join([f"{job['status']} {job['error_type']} {job['error_message']}", *lines, *map(str, logs)])

    def statuses(self, job_id: str) -> list[str]:
        """The states the job went through, oldest first."""
        events = self.get(f"/v1/jobs/{job_id}/events?page_size=100")["events"]
        return [e["to_status"] for e in events if e["to_status"]]

    def log_lines(self, job_id: str, *, rank: int = 0) -> list[str]:
        lines = self.get(f"/v1/jobs/{job_id}/logs?tail=10000&follow=false&rank={rank}")["lines"]
        return [str(line["line"]) for line in lines]

    def _job_or_none(self, job_id: str) -> dict[str, Any] | None:
        # The API itself or its database is killed in some tests; it is back a moment later.
        try:
            status, body = self.call("GET", f"/v1/jobs/{job_id}")
        except OSError:
            return None
        assert status in (200, 503), body
        return dict(body["data"]) if status == 200 else None

    def _spawn(self, name: str, arguments: list[str]) -> None:
        log = self.data_dir / "log" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [*self.command_of(name), *arguments],
                env=self.environment_of(name),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
