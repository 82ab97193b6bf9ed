"""Requests of one project to a real API, each timed: what `benchmarks/hostile.py` asks with, and what it got."""

import http.client
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """``status`` is 0 where none came; times are those of `time.monotonic`."""

    kind: str
    began: float
    seconds: float
    status: int


@dataclass
class Project:
    """One project's key, and the answers that it got, each on a connection of its own."""

    name: str
    port: int
    key: str
    answers: list[Answer] = field(default_factory=list)

    def ask(self, kind: str, method: str, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the answer holds, its ``data`` if it has some; nothing where it is a refusal, or none came."""
        began, status, body = time.monotonic(), 0, b""
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "application/json"}
        sent = None
        if document is not None:
            sent, headers["Content-Type"] = json.dumps(document), "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, sent, headers)
            response = connection.getresponse()
            body, status = response.read(), response.status
        except (OSError, http.client.HTTPException):
            status = 0
        finally:
            connection.close()
        self.answers.append(Answer(kind, began, time.monotonic() - began, status))
        if not 200 <= status < 300:
            return {}
        found: dict[str, Any] = json.loads(body)
        return found.get("data") or found


def go_first() -> None:
    """Of this thread: what is measured is the API, not how long a client waits for a processor. Needs root."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -10)
