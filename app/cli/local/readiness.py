"""Polls the API for readiness and reports what is missing when it takes long."""

import http.client
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

REQUEST_TIMEOUT_SECONDS = 0.5
REPORT_SECONDS = 10.0


class StartupReadiness:
    """Readiness of the API at host and port and of the nodes started with it."""

    def __init__(self, host: str, port: int, *, nodes: Sequence[str], key_file: Path) -> None:
        self._host = reachable(host).strip("[]")
        self._port = port
        self._missing = list(nodes)
        self._key_file = key_file
        self._report_at = time.monotonic() + REPORT_SECONDS

    @property
    def url(self) -> str:
        return f"http://{reachable(self._host)}:{self._port}"

    def check(self, say: Callable[[str], None]) -> bool:
        """Whether `/health/ready` returns 200 and every node is registered; periodically reports what is missing."""
        status, message = self._get("/health/ready")
        while status == 200 and self._missing:
            # Until the node registers, a submitted job could not be rejected as unschedulable.
            status, message = self._get(f"/v1/nodes/{self._missing[0]}", key=self._key_file.read_text().strip())
            if status == 200:
                self._missing.pop(0)
        if status != 200 and time.monotonic() > self._report_at:
            say(f"Not ready yet: {message}")
            self._report_at = time.monotonic() + REPORT_SECONDS
        return status == 200

    def _get(self, path: str, *, key: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=REQUEST_TIMEOUT_SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            response = connection.getresponse()
            return response.status, _message(response.read())
        except (OSError, http.client.HTTPException):
            return 0, "the API does not respond"
        finally:
            connection.close()


def reachable(host: str) -> str:
    """The URL host by which this machine reaches a server listening on ``host``."""
    # A server on the wildcard address is reachable on loopback.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 – compared, not bound
    return f"[{host}]" if ":" in host else host


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def seconds_since_start() -> float:
    """Seconds since this process started, including the interpreter's start."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
