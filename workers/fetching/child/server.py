"""The child's side of ``child_client``: hides its secrets, dies with its parent, reports progress, and answers."""

import argparse
import contextlib
import io
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.domain.spec.credentials import texts_of
from app.host.processes import die_with_parent, hide_from_same_user
from trainyard.protocol.json import JSON
from workers.fetching.uris import shown

REPORT_SECONDS = 0.5
Watch = Callable[[], int]


class ProgressReporter:
    """Reports progress to the parent: counted bytes, or the growth of a watched directory."""

    def __init__(self) -> None:
        self._count = 0
        self._watches: list[Watch] = []
        self._out = os.dup(1)
        self._deadline = float("inf")
        self._late: JSON = None
        self._counting, self._speaking = threading.Lock(), threading.Lock()
        threading.Thread(target=self._beat, name="heart", daemon=True).start()

    def arrived(self, count: int) -> None:
        """Report received bytes; 0 while waiting for another process that reports progress itself."""
        with self._counting:
            self._count += count or 1

    def watch(self, size: Watch) -> None:
        """Count what this returns, too."""
        self._watches.append(size)

    @contextlib.contextmanager
    def watching(self, size: Watch) -> Iterator[None]:
        """The same for the duration of the block."""
        self.watch(size)
        try:
            yield
        finally:
            self._watches.remove(size)

    def limit(self, seconds: float, answer: JSON) -> None:
        """Set a deadline; when it passes, this process answers ``answer`` and ends."""
        self._late = answer
        self._deadline = time.monotonic() + seconds

    def send(self, line: dict[str, Any]) -> None:
        text = memoryview(json.dumps(line).encode() + b"\n")
        with self._speaking:  # the beat must not interleave
            while text:
                text = text[os.write(self._out, text) :]

    def _beat(self) -> None:
        before: list[int] = []
        while True:
            time.sleep(REPORT_SECONDS)
            now = [self._count, *(size() for size in tuple(self._watches))]
            if now != before:
                self.send({"arrived": sum(now)})
            before = now
            if time.monotonic() > self._deadline:
                self.send({"answer": self._late})
                os._exit(1)


class _Shown(io.TextIOBase):
    """A stream that redacts secrets in whatever libraries print."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets

    def write(self, text: str) -> int:
        os.write(2, shown(text, self._secrets).encode())
        return len(text)


def serve(work: Callable[[dict[str, Any], ProgressReporter], JSON]) -> int:
    """Read the request, do the work, answer. Exceptions of the work are reported without secrets."""
    become_child()
    request = json.loads(sys.stdin.buffer.read())
    speak_without(secrets_in(request))
    heart = ProgressReporter()
    try:
        heart.send({"answer": work(request, heart)})
    except Exception:  # noqa: BLE001 – the outermost: the parent sees that no answer came
        sys.stderr.write(traceback.format_exc())
        return 1
    return 0


def become_child() -> None:
    """Die with the parent that the command line names, and hide from other processes of the user."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--die-with", required=True, type=int)
    die_with_parent(parser.parse_args().die_with)
    hide_from_same_user()


def speak_without(secrets: tuple[str, ...]) -> None:
    """Redact these in whatever is printed from now on."""
    sys.stderr = sys.stdout = _Shown(secrets)


def secrets_in(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Values that no message may contain: the job's secrets, and those of the settings."""
    settings = request.get("fetch", {})
    ours = (value for name, value in settings.items() if name.endswith(("_secret", "_key")))
    return tuple(value for value in (*texts_of(request.get("secrets", {})), *ours) if value)
