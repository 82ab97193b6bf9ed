"""A real Flower beside a real system: started, asked over HTTP, ended."""

import base64
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from config.queues import flower_command
from tests.systems.servers import free_port
from tests.systems.system import System, wait_for

ROOT = Path(__file__).parents[2]
START_SECONDS = 40.0


class FlowerSite:
    """Its port and password have to be among the system's settings: ``settings`` before, ``start`` after that."""

    def __init__(self, password: str) -> None:
        self.port = free_port()
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> dict[str, str]:
        return {"TRAINYARD_FLOWER_PORT": str(self.port), "TRAINYARD_FLOWER_PASSWORD": self._password}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, system: System) -> "FlowerSite":
        environment = {**system.environment, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)}
        with (system.data_dir / "log" / "flower.log").open("ab") as out:
            self._process = subprocess.Popen(flower_command(), env=environment, stdout=out, stderr=out, cwd="/")
        return self

    def wait_until_up(self) -> "FlowerSite":
        wait_for(lambda: self.call("GET", "/healthcheck")[0] == 200, seconds=START_SECONDS, what="Flower answers")
        return self

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)

    def call(self, method: str, path: str, **headers: str) -> tuple[int, bytes]:
        """Status and body; status 0 as long as Flower does not listen."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        login = base64.b64encode(f"admin:{self._password}".encode()).decode()
        for name, value in {"Authorization": f"Basic {login}", **headers}.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, bytes(error.read())
        except urllib.error.URLError:
            return 0, b""

    def page(self, path: str) -> str:
        status, body = self.call("GET", path)
        assert status == 200, (path, status, body[:500])
        return body.decode()

    def job(self, job_id: str) -> dict[str, Any]:
        """What Flower knows of a job; empty while it knows nothing."""
        status, body = self.call("GET", f"/api/task/info/{job_id}")
        return dict(json.loads(body)) if status == 200 else {}

    def wait_for_state(self, job_id: str, state: str, *, seconds: float = 30) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            shown = self.job(job_id)
            return shown if shown.get("state") == state else None

        return wait_for(look, seconds=seconds, what=f"Flower shows {job_id} as {state}")
