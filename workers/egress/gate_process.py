"""The supervisor's side of a gate: starts its process with the sandbox's listener, and reads its notes."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.domain.spec.locations.outbound_proxy import OutboundProxy

log = logging.getLogger(__name__)

END_SECONDS = 2.0
# Nothing of the supervisor's: a gate needs none of its settings, and must not go through another proxy.
_ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONSAFEPATH": "1"}


class GateProcess:
    """``on_note`` is called with each note about connections, on a thread of its own. ``proxy`` as for `Gate`."""

    def __init__(
        self,
        services: Sequence[str],
        private: Sequence[str],
        on_note: Callable[[dict[str, Any]], None],
        *,
        proxy: OutboundProxy | None = None,
    ) -> None:
        through = asdict(proxy) if proxy is not None else None
        self._configuration = {"services": list(services), "private": list(private), "proxy": through}
        self._on_note = on_note
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: threading.Thread | None = None

    def serve(self, listener: int) -> None:
        """Take over a listening socket of the sandbox; a second one is closed. Called by a thread that outlives the
        process, which dies with it. If the process can't be started, the connections are refused.
        """
        try:
            if self._process is not None:
                log.warning("the agent offers a second listener; it is not served")
                return
            self._start(listener)
        except OSError as error:
            log.warning("the gate could not be started: %s", error)
        finally:
            os.close(listener)

    def _start(self, listener: int) -> None:
        """Raises OSError."""
        command = [sys.executable, "-m", "workers.egress", "--die-with", str(os.getpid()), "--listener", str(listener)]
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[listener], env=_ENVIRONMENT
        )
        self._reading = threading.Thread(target=self._read, args=[process], name="egress", daemon=True)
        self._reading.start()
        assert process.stdin is not None  # noqa: S101 – for the type checker: it is a pipe
        with process.stdin:
            process.stdin.write(json.dumps(self._configuration).encode())

    def close(self) -> None:
        """End the process; its last notes are passed on before this returns."""
        if self._process is None or self._reading is None:
            return
        self._process.terminate()
        self._reading.join(END_SECONDS)
        self._process.kill()
        self._process.wait()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101
        with process.stdout:
            for line in process.stdout:
                self._on_note(json.loads(line))
