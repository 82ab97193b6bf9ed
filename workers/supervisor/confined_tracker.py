"""Starts the process of a tracking service whose client can't be trusted to connect only where it may.

It runs in a sandbox of its own without a network; the only way out is a gate that connects to the service alone.
"""

import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from app.domain.nodes.sandboxes import WITHOUT_NAMESPACES
from app.domain.spec.locations.egress import PRIVATE
from app.domain.spec.rules.tracking import ALLOW_SETTING
from config.settings import Settings
from workers.egress.gate_process import GateProcess
from workers.prepare.confined_program import end, environment, scratch
from workers.sandbox.sandbox import SandboxUnavailable, choose_sandbox
from workers.sandbox.spec import SandboxSpec
from workers.tracking.child import TrackingChild
from workers.tracking.failures import NotDelivered, ProcessEnded

SHARED_MEMORY_MB = 64
LISTENER_SECONDS = 10.0  # for the start of an interpreter, on a busy machine
NO_SANDBOX = "its client is not started on this node without a sandbox, as it could connect anywhere"
SEE_SETTING = f"; the operator may list the server in {ALLOW_SETTING}"
_PORTS = {"http": 80, "https": 443}
_MODULE = "workers.tracking.confined"
# Reports about faults of the client go to a server of W&B's that no job has named.
_OF_CLIENT = {"WANDB_ERROR_REPORTING": "false"}


def confined_child(settings: Settings, first: Mapping[str, Any]) -> TrackingChild:
    """``first`` is the process's first request, whose service is the only one that it can connect to.

    Called by a thread that outlives it: sandbox and gate end with that thread. Raises NotDelivered.
    """
    wanted = settings.node.sandbox
    if wanted in WITHOUT_NAMESPACES:
        raise NotDelivered(f"{NO_SANDBOX} (TRAINYARD_NODE_SANDBOX={wanted})", refused=True)
    gate = _ServiceGate(settings, first["service"]["url"])
    with ExitStack() as stack:
        try:
            process = _started(settings, gate, stack)
        except SandboxUnavailable as error:
            raise NotDelivered(f"{NO_SANDBOX}: {error}", refused=True) from error
        except OSError as error:
            raise NotDelivered(f"no process could be started for it: {error}") from error
        return TrackingChild(process, stack.pop_all(), gate.refusals)


def _started(settings: Settings, gate: "_ServiceGate", stack: ExitStack) -> "subprocess.Popen[bytes]":
    """The process; what it needs is closed with the stack. Raises SandboxUnavailable, OSError and ProcessEnded."""
    sandbox = choose_sandbox(settings.node.sandbox)
    view = stack.enter_context(scratch(settings, "tracker"))
    spec = SandboxSpec(view=view, shm_mb=SHARED_MEMORY_MB)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", _MODULE, "--gate", str(theirs.fileno())]
        enclosed = stack.enter_context(sandbox.enclosed(command, spec))
        process = subprocess.Popen(
            enclosed.command,
            env=environment(view, sandbox) | _OF_CLIENT,
            cwd=view.run_dir,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(*enclosed.files, theirs.fileno()),
            start_new_session=True,
        )
        theirs.close()
        stack.callback(_end, process)
        stack.callback(gate.close)
        gate.serve(ours)
    return process


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:  # else its id may be another's already
        end(process)


class _ServiceGate:
    """The way out of a sandbox that leads to one service."""

    def __init__(self, settings: Settings, url: str) -> None:
        service = urlsplit(url)
        self._host = (service.hostname or "").rstrip(".")
        self._refusals = deque[str](maxlen=1)
        place = f"{self._host}:{service.port or _PORTS[service.scheme]}"
        self._gate = GateProcess([place], settings.tracking.allow, self._noted)

    def serve(self, control: socket.socket) -> None:
        """Take the listener that the process in the sandbox sends. Raises OSError and ProcessEnded."""
        control.settimeout(LISTENER_SECONDS)
        _, files, _, _ = socket.recv_fds(control, 64, 1)
        if not files:
            raise ProcessEnded
        self._gate.serve(files[0])

    def refusals(self) -> Sequence[str]:
        """The last reason why it did not connect, if there is one; it ends with this, as its notes come late."""
        self.close()
        return tuple(self._refusals)

    def close(self) -> None:
        self._gate.close()

    def _noted(self, note: Mapping[str, Any]) -> None:
        if note["refused"] and note["host"] == self._host:
            self._refusals.append(str(note["refused"]) + (SEE_SETTING if note["refused"] == PRIVATE else ""))
