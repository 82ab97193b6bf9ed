"""Asks the API whether everything is there, and says what is missing when that takes long."""

import http.client
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ASK_SECONDS = 0.5
COMPLAIN_SECONDS = 10.0


class Readiness:
    """Of the API that listens at host and port, and of the nodes that are started with it."""

    def __init__(self, host: str, port: int, *, nodes: Sequence[str], key_file: Path) -> None:
        self._host = reachable(host).strip("[]")
        self._port = port
        self._missing = list(nodes)
        self._key_file = key_file
        self._complain_at = time.monotonic() + COMPLAIN_SECONDS

    @property
    def url(self) -> str:
        return f"http://{reachable(self._host)}:{self._port}"

    def look(self, say: Callable[[str], None]) -> bool:
        """Whether `/health/ready` answers 200 and the nodes are known; from time to time says what is missing."""
        status, said = self._ask("/health/ready")
        while status == 200 and self._missing:
            # Before it has registered, the first job would not be told that it can never fit.
            status, said = self._ask(f"/v1/nodes/{self._missing[0]}", key=self._key_file.read_text().strip())
            if status == 200:
                self._missing.pop(0)
        if status != 200 and time.monotonic() > self._complain_at:
            say(f"Not ready yet: {said}")
            self._complain_at = time.monotonic() + COMPLAIN_SECONDS
        return status == 200

    def _ask(self, path: str, *, key: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=ASK_SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            response = connection.getresponse()
            return response.status, _message(response.read())
        except (OSError, http.client.HTTPException):
            return 0, "the API does not answer"
        finally:
            connection.close()


def reachable(host: str) -> str:
    """The host of a URL on which this machine reaches what listens there."""
    # Where "any address" listens, that is the loopback one.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 – compared, not bound
    return f"[{host}]" if ":" in host else host


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def seconds_since_start() -> float:
    """How long this process has been running, the start of the interpreter included."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started
