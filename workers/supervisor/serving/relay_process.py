"""The supervisor's side of a relay: starts its process, and reads where it listens."""

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from trainyard.protocol.interactive import SOCKET

END_SECONDS = 3.0
START_SECONDS = 20.0
# Nothing of the supervisor's: a relay needs none of its settings.
_ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[3]), "PYTHONSAFEPATH": "1"}


class RelayFailed(Exception):
    """The relay does not listen; the message says why."""


@dataclass(frozen=True, kw_only=True)
class RelayPlace:
    """What a relay is started with: its own address, the path of the socket in the sandbox, and who is let in.

    ``local``: where gateways of this machine reach it, too; None: nowhere. Jobs in mount namespaces of their own
    do not see it; others may, and lack the token.
    """

    address: str
    socket: Path
    token: str
    local: Path | None = None


class RelayProcess:
    """``start`` belongs to the main thread: the process dies with the thread that has started it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, place: RelayPlace) -> None:
        """Raises OSError."""
        # Without site-packages, of which it needs none: it starts sooner, and people may be waiting for it.
        command = [sys.executable, "-S", "-m", "workers.relay", str(os.getpid())]
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ENVIRONMENT
        )
        assert process.stdin is not None  # noqa: S101 – for the type checker: it is a pipe
        with process.stdin:
            of_sessions = place.socket.name == SOCKET
            configuration = {
                "address": place.address,
                "socket": str(place.socket),
                "token": place.token,
                "what": "session server" if of_sessions else "engine",
                "hands_over": of_sessions,
                "local": str(place.local or ""),
            }
            process.stdin.write(json.dumps(configuration).encode())

    def port(self) -> int:
        """Waits until it listens; on any thread. Raises RelayFailed."""
        process = self._process
        if process is None or process.stdout is None:
            raise RelayFailed("it was not started")
        readable, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline() if readable else b""
        if not line:
            raise RelayFailed("it has ended" if readable else f"it does not listen after {START_SECONDS:g} s")
        return int(json.loads(line)["port"])

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def close(self, *, hurries: bool = False) -> None:
        """End the process, which first passes on what the engine has said; does nothing when there is none."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.0 if hurries else END_SECONDS)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
