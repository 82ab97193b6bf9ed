"""An installation whose nodes lie apart: each with a data directory of its own, each process with its own lines."""

import os
import random
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
from sqlalchemy.engine import make_url

from app.domain.lifecycle.states import TERMINAL
from app.services.requests.wakeups import Dispatcher
from config.settings import load_settings
from tests.faults.crash_points import CrashPoints, Point
from tests.faults.proxy import FaultProxy, ProxyThread
from tests.faults.witness import Witness
from tests.systems.servers import PostgresServer
from tests.systems.system import START_SECONDS, System, wait_for

SCRIPTS = Path(__file__).parents[1] / "scripts"
FENCE_SECONDS = 4.5
# Short of what makes a supervisor give up, by as much as a busy machine may need; and longer than that.
SHORT_SECONDS, LONG_SECONDS = FENCE_SECONDS / 3, FENCE_SECONDS + 1.5
# Everything half as long as by default, or less: what recovery waits for is waited for a dozen times.
SHORT = {
    "TRAINYARD_LEASE_TTL_SECONDS": "7",
    "TRAINYARD_LEASE_FENCE_SECONDS": str(FENCE_SECONDS),
    "TRAINYARD_LEASE_RENEW_SECONDS": "0.8",
    "TRAINYARD_LEASE_KILL_GRACE_SECONDS": "1.5",
    "TRAINYARD_NODE_LOST_SECONDS": "4",
    "TRAINYARD_NODE_HEARTBEAT_SECONDS": "1",
    "TRAINYARD_SCHEDULER_RETRY_BASE_SECONDS": "0.2",
    "TRAINYARD_SCHEDULER_RETRY_MAX_SECONDS": "2",
    "TRAINYARD_SCHEDULER_RESEND_SECONDS": "2",
    "TRAINYARD_QUARANTINE_FAULTS": "0",  # every fault is our own doing
    "TRAINYARD_WATCH_STEP_SECONDS": "6",
    "TRAINYARD_WATCH_DISK_FULL_SECONDS": "2",
    "TRAINYARD_WATCH_STUCK_SECONDS": "2",
}
NODE_CONFIG = '[[devices]]\ntype = "cpu"\ncount = {slots}\n'


@dataclass
class Ledger:
    """The answers that clients got. The recorded history must not contradict them."""

    accepted: list[str] = field(default_factory=list)  # jobs, by the answer 201
    verbs: list[tuple[str, str]] = field(default_factory=list)  # (job, verb) answered with 2xx
    server_errors: list[tuple[str, int]] = field(default_factory=list)  # (path, status) of 500 and the like


class Outside:
    """What stands beside a system and is no part of it; several systems may have it, one after the other."""

    def __init__(self) -> None:
        self.witness = Witness()
        self.proxies = ProxyThread()

    def close(self) -> None:
        self.proxies.close()
        self.witness.close()


class Cluster(System):
    """``nodes`` by name, with that many CPU slots each; ``witness`` hears of every step.

    ``points`` may be armed; with any, each process of a job starts as a program, without them supervisors are forked.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = MappingProxyType({}),
        *,
        slots: int = 4,
        points: Sequence[Point] = (),
        postgres: PostgresServer | None = None,
        database: str = "",
        outside: Outside | None = None,
    ) -> None:
        super().__init__(folder, TRAINYARD_NODE_NETWORK="host", **settings)  # jobs report to the witness
        self._outside, self._is_guest = outside or Outside(), outside is not None
        self.witness = self._outside.witness
        self.points = CrashPoints(folder / "points", points)
        self._injected = self.points.environment if points else {}
        self.ledger = Ledger()
        self.slots = slots
        self.found_dead: list[str] = []
        self.is_sound = False  # as it was found when it was looked at last
        self.extra: dict[str, dict[str, str]] = {}  # process → what else is in its environment
        self.postgres, self._database = postgres, database
        self._proxies: dict[tuple[str, str], FaultProxy] = {}
        self._nodes: tuple[str, ...] = ()
        shutil.copy(SCRIPTS / "witnessed.py", self.inputs)
        (self.inputs / "data.jsonl").write_text('{"text": "a line"}\n')
        (self.inputs / "model").mkdir()
        (self.inputs / "model" / "config.json").write_text("{}")
        (folder / "node.toml").write_text(NODE_CONFIG.format(slots=slots))

    # ---- processes

    def start(self, *nodes: str) -> "Cluster":
        self._nodes = nodes
        self.redis.start()
        self.prepare()
        self.start_processes()
        return self

    def start_processes(self) -> None:
        """API, coordinator and nodes; also again, after all of them were killed."""
        self.start_api()
        self.start_coordinator()
        for node in self._nodes:
            self.start_node(node)
        wait_for(self.is_ready, seconds=START_SECONDS, what="ready")
        wait_for(lambda: self.ready_nodes() >= set(self._nodes), seconds=START_SECONDS, what="nodes registered")

    def start_node(self, name: str, *, config: Path | None = None) -> None:
        super().start_node(name, config=config or self.folder / "node.toml")

    def restart(self, process: str) -> None:
        """Start again what was killed, by its name: api, coordinator or node-NAME."""
        if process.startswith("node-"):
            self.start_node(process.removeprefix("node-"))
        elif process == "api":
            self.start_api()
        else:
            self.start_coordinator(process)

    def left_of_attempts(self) -> list[psutil.Process]:
        """Every process that was started for some job here, by its environment; a daemon may hide the rest."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TRAINYARD_RUN_DIR", "").startswith(f"{self.folder}/"):
                    found.append(process)
            except psutil.Error:
                continue
        return [*found, *self.processes_of("job-")]

    def revive(self) -> None:
        """Start again what has ended without being asked to, and remember it; systemd does that in earnest."""
        for name in self.names:
            if not self.is_up(name):
                self.gone(name)
                self.found_dead.append(name)
                self.restart(name)

    def is_up(self, process: str) -> bool:
        return process in self._processes and self._processes[process].poll() is None

    def gone(self, process: str) -> None:
        """Forget a process that ended by itself or that other code killed."""
        self._processes.pop(process).wait(timeout=30)

    @property
    def names(self) -> list[str]:
        """Of all processes that were started and not killed by us."""
        return list(self._processes)

    def signal(self, process: str, number: signal.Signals) -> None:
        """To one of our processes alone."""
        os.kill(self.pid(process), number)

    def everything(self) -> list[psutil.Process]:
        """All processes of the system that are up, with what they have started; Redis too."""
        ours = [psutil.Process(self.redis.pid)] if self.redis.is_up else []
        ours += [psutil.Process(self.pid(name)) for name in self.names if self.is_up(name)]
        return [*ours, *(child for one in ours for child in one.children(recursive=True))]

    def power_cut(self) -> None:
        """Everything at once, without a chance to say good-bye; Redis forgets what it held, the database does not."""
        for process in [*self.everything(), *self.processes_of("job-")]:
            _kill(process)
        self.redis.stop(signal.SIGKILL)
        for name in self.names:
            self.gone(name)

    def stop(self) -> None:
        super().stop()
        for proxy in self._proxies.values():
            proxy.close()
        if not self._is_guest:
            self._outside.close()

    def ready_nodes(self) -> set[str]:
        return {node["name"] for node in self.get("/v1/nodes")["nodes"] if node["status"] == "ready"}

    # ---- who speaks to whom

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that stands beside the faults: the tests' own, for reading."""
        return super().environment | {"TRAINYARD_DATABASE_URL": self.database_url}

    @property
    def database_url(self) -> str:
        if self.postgres is None:
            return f"sqlite:///{self.data_dir / 'trainyard.db'}"
        return self.postgres.url(self._database)

    def environment_of(self, process: str) -> dict[str, str]:
        environment = self.environment | self._injected
        broker = self.line(process, "redis")
        environment["TRAINYARD_BROKER_URL"] = self.redis.url.replace(f":{self.redis.port}/", f":{broker.port}/")
        if self.postgres is not None:
            url = make_url(self.database_url).set(port=self.line(process, "database").port)
            environment["TRAINYARD_DATABASE_URL"] = url.render_as_string(hide_password=False)
        if process.startswith("node-"):
            environment["TRAINYARD_DATA_DIR"] = str(self.node_dir(process.removeprefix("node-")))
            environment["TRAINYARD_STORAGE_URL"] = f"file://{self.storage}"
            environment["TRAINYARD_SECURITY_SECRET_KEY"] = (self.data_dir / "secret.key").read_text().strip()
        return environment | self.extra.get(process, {})

    def line(self, process: str, server: str) -> FaultProxy:
        """The proxy through which a process (and the supervisors it starts) reaches ``redis`` or ``database``."""
        key = (process, server)
        if key not in self._proxies:
            port = self.redis.port if server == "redis" else make_url(self.database_url).port
            self._proxies[key] = FaultProxy(self._outside.proxies, ("127.0.0.1", int(port or 0)))
        return self._proxies[key]

    def lines(self, server: str) -> list[FaultProxy]:
        """Those of all processes."""
        return [proxy for (_, name), proxy in self._proxies.items() if name == server]

    @property
    def storage(self) -> Path:
        return self.data_dir / "files"

    def node_dir(self, name: str) -> Path:
        return self.folder / f"node-{name}"

    @property
    def node_names(self) -> tuple[str, ...]:
        return self._nodes

    # ---- jobs

    def witnessed_job(
        self,
        *,
        steps: int = 40,
        step_seconds: float = 0.05,
        ranks: int = 1,
        changes: dict[str, Any] | None = None,
        **hyperparameters: Any,
    ) -> dict[str, Any]:
        """A document for the witnessed script; ``changes`` replace whole sections."""
        asked = {"steps": steps, "step_seconds": step_seconds, "witness": self.witness.address, **hyperparameters}
        return {
            "name": "witnessed",
            "training_config": {
                "training_type": "SFT",
                "base_model": {"model_id": "model"},
                "framework": {"type": "CUSTOM", "custom_script_path": "witnessed.py"},
                "hyperparameters": {name: str(value) for name, value in asked.items()},
                "max_retries": 8,
            },
            "data_config": {"sources": [{"path": "data.jsonl", "format": "jsonl"}]},
            "resource_config": {"gpu_count": ranks, "device_type": "cpu"},
            **(changes or {}),
        }

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        status, answer = super().call(method, path, body, **headers)
        if method == "POST" and 200 <= status < 300:
            if path == "/v1/jobs":
                self.ledger.accepted.append(answer["data"]["job_id"])
            elif path.startswith("/v1/jobs/") and path.count("/") == 4:
                self.ledger.verbs.append((path.split("/")[3], path.split("/")[4]))
        if status >= 500 and status not in (503, 507):
            self.ledger.server_errors.append((path, status))
        return status, answer

    def train(self, **options: Any) -> str:
        """Submit a witnessed job; returns its id."""
        return self.submit(self.witnessed_job(**options))

    def wait_until_witnessed(self, job_id: str, step: int, *, attempt: int = 1, seconds: float = 60) -> None:
        """The witness has seen an attempt, this one or a later, finish the step; meanwhile what ends is revived."""

        def seen() -> bool:
            self.revive()
            return any(s.step >= step and s.attempt >= attempt and s.what == "step" for s in self.witness.of(job_id))

        wait_for(seen, seconds=seconds, what=f"{job_id} to be seen at step {step}")

    def ring_run(self, job_id: str, attempt: int, *, node: str) -> None:
        """The wake-up that tells a node of an attempt, whether there is one or not."""
        dispatcher = Dispatcher(load_settings(self.environment))
        dispatcher.ring_run([(job_id, attempt)], node, "cpu", 5)
        dispatcher.close()

    def wait_for_another_attempt(self, job_id: str, *, seconds: float) -> None:
        """Until the witness sees one after the newest that it has seen."""
        newest = max(sighting.attempt for sighting in self.witness.of(job_id))

        def seen() -> bool:
            self.revive()
            return any(sighting.attempt > newest for sighting in self.witness.of(job_id))

        try:
            wait_for(seen, seconds=seconds, what=f"another attempt of {job_id}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(job_id)}") from error

    def home(self, job_id: str) -> str:
        """The node of the newest attempt."""
        return str(self.job(job_id)["node_names"][0])

    def wait_for_end(self, job_id: str, *, seconds: float = 60) -> dict[str, Any]:
        """Until it is COMPLETED, with a service manager that starts again what ends."""
        wait_for(lambda: self._has_ended(job_id), seconds=seconds, what=f"the end of {job_id}")
        return self.wait_for_status(job_id, "COMPLETED", seconds=1)

    def wait_until_trained_or_ended(self, job_id: str, step: int, *, seconds: float = 90) -> None:
        """Until the witness has seen the step; a job whose end comes first will never make it."""

        def so_far() -> bool:
            return self.witness.last_step(job_id) >= step or self._has_ended(job_id)

        wait_for(so_far, seconds=seconds, what=f"{job_id} to reach step {step}")

    def _has_ended(self, job_id: str) -> bool:
        self.revive()
        job = self._job_or_none(job_id)
        return job is not None and job["status"] in TERMINAL


def is_alive(process: psutil.Process) -> bool:
    """Whether it does something still; one that is dead may wait for its parent, which is stopped."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(action: Callable[[], tuple[int, Any]], *, seconds: float = 30) -> tuple[int, Any]:
    """The first answer that is not 503 and not a broken connection: what a client that tries again gets."""

    def tried() -> tuple[int, Any] | None:
        try:
            status, body = action()
        except OSError:
            return None
        return None if status == 503 else (status, body)

    return wait_for(tried, seconds=seconds, what="an answer")


def chooser(seed: int) -> random.Random:
    """The same choices for the same seed; the seed is printed, so that a failure can be done again."""
    return random.Random(seed)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
