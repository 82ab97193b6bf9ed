"""A client of the engine's server over its Unix socket, and a replica that runs in a thread of the test."""

import http.client
import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard._hooks.local_session import LocalSession
from trainyard.protocol.channel import short_address
from trainyard.protocol.commands import AdapterNotLoaded, Stop
from trainyard.protocol.messages import FetchAdapter, Progress
from trainyard.protocol.session import Identity
from workers.rank.run_context import Result, RunContext, RunSpec
from workers.trainers.inference.serving.server import SOCKET
from workers.trainers.inference.serving.trainer import ReplicaTrainer

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


class ServingSession(LocalSession):
    """Keeps what a replica reports; `adapters` are directories by job."""

    def __init__(self, spec: RunSpec, adapters: Mapping[str, Path]) -> None:
        super().__init__(Identity.of(spec))
        self.phases: list[str] = []
        self.begun = threading.Event()
        self.sections: list[str | None] = []
        self.values: list[Mapping[str, float]] = []
        self.steps: list[Progress] = []
        self.fetched: list[tuple[str, str | None]] = []
        self._adapters = adapters

    def phase(self, name: str) -> None:
        self.phases.append(name)
        self.begun.set()

    def section(self, name: str | None, *, max_seconds: float | None = None) -> None:
        self.sections.append(name)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.values.append({"step": step, **values})

    def progress(self, progress: Progress) -> None:
        self.steps.append(progress)

    def fetch_adapter(self, request: FetchAdapter) -> str:
        self.fetched.append((request.job_id, request.checkpoint_id))
        if request.job_id not in self._adapters:
            raise AdapterNotLoaded(f"job {request.job_id} has no adapter")
        return str(self._adapters[request.job_id])


class Replica:
    """Runs until `stop`."""

    def __init__(self, spec: RunSpec, adapters: Mapping[str, Path] | None = None) -> None:
        spec.run_dir.mkdir(parents=True, exist_ok=True)
        self.session = ServingSession(spec, adapters or {})
        self.socket = spec.run_dir / SOCKET
        self.result: Result | None = None
        self._error: BaseException | None = None
        self._trainer = ReplicaTrainer(RunContext(spec, self.session))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.session.begun.wait(60)

    def _run(self) -> None:
        try:
            self.result = self._trainer.run()
        except BaseException as error:  # noqa: BLE001  (raised again by the test)
            self._error = error
        finally:
            self.session.begun.set()

    def ask(self, path: str, body: Mapping[str, Any], **headers: str) -> "Answer":
        connection = self.connect()
        with connection:
            client = http.client.HTTPConnection("engine")
            client.sock = connection
            client.request("POST", path, json.dumps(body), {name.replace("_", "-"): v for name, v in headers.items()})
            response = client.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read().decode())

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(60)
        with short_address(self.socket) as address:
            connection.connect(address)
        return connection

    def request_stop(self, kind: str) -> None:
        self.session.commands.apply(Stop(kind, save_checkpoint=False))

    def stop(self, kind: str = "cancel") -> Result:
        self.request_stop(kind)
        self._thread.join(60)
        if self._error is not None:
            raise self._error
        assert self.result is not None
        return self.result


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The events of a stream but its end, which must be there."""
        events = [event.removeprefix("data: ") for event in self.text.split("\n\n") if event]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]
