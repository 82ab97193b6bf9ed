"""A real `trainyard up` for tests: started on free ports, asked over HTTP, ended by pid."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.systems.databases import put_migrated_sqlite
from tests.systems.polling import polls
from tests.systems.servers import free_port
from tests.systems.system import NODE_WARM

START_SECONDS = 90.0


class RunningUp:
    """``output`` is what it has printed so far."""

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        flower: bool = False,
        tensorboard: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.flower_port = free_port()
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        self._log = data_dir.parent / f"{data_dir.name}.out"
        options = ["--flower-port", str(self.flower_port)] if flower else ["--no-flower"]
        options += [] if tensorboard else ["--no-tensorboard"]
        if "--port" not in arguments:
            options += ["--port", "0"]
        if "TRAINYARD_DATABASE_URL" not in {*os.environ, *(environment or {})}:
            put_migrated_sqlite(f"sqlite:///{data_dir / 'trainyard.db'}")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                trainyard("up", "--data-dir", str(data_dir), *options, *arguments),
                env={**os.environ, "TRAINYARD_NODE_WARM": NODE_WARM or "supervisors", **(environment or {})},
                stdout=log,
                stderr=log,
                cwd=data_dir.parent,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        return (self.data_dir / "run" / "url").read_text().strip()

    @property
    def key(self) -> str:
        return (self.data_dir / "admin.key").read_text().strip()

    def wait_until_ready(self) -> "RunningUp":
        wait_until(lambda: "Ready after" in self.output or self.process.poll() is not None, START_SECONDS)
        assert self.process.poll() is None, self.output
        return self

    def pid_of(self, name: str) -> int:
        return int((self.data_dir / "run" / f"{name}.pid").read_text())

    def pids(self) -> dict[str, int]:
        return {path.stem: int(path.read_text()) for path in (self.data_dir / "run").glob("*.pid")}

    def get(self, path: str) -> tuple[int, Any]:
        """(status, data or error) of a request with the administrator's key."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.key}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.load(response)["data"]
        except urllib.error.HTTPError as error:
            return error.code, json.load(error).get("error")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end and wait for its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


def trainyard(*arguments: str) -> list[str]:
    """The command line of our command, whatever environment the tests run in."""
    return [sys.executable, "-m", "app.cli.main", *arguments]


def wait_until(happens: Callable[[], object], seconds: float = 20.0) -> None:
    assert any(happens() for _ in polls(seconds, shortest=0.02)), "it did not happen in time"


def is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
