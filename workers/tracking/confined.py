"""The process that has W&B's client send a job's metrics: ``python -m workers.tracking.confined --gate FD``.

Its sandbox has loopback alone. It listens there and passes the listener out to a gate, which connects to the tracking
server and to nothing else; that is the proxy of the client, and of the program that the client starts.
"""

import argparse
import importlib
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

from app.host.landlock import stay_below
from workers.tracking.conversation import TrackedRun, converse

LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# For each process, whatever the server answers.
_LIMITS = ((resource.RLIMIT_DATA, 512 << 20), (resource.RLIMIT_FSIZE, 256 << 20), (resource.RLIMIT_CORE, 0))


def _described(first: dict[str, Any]) -> TrackedRun:
    # Imported by name: the client takes a second or more, and the gate waits for the listener.
    described: TrackedRun = importlib.import_module("workers.tracking.wandb_run").described(first)
    return described


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", required=True, type=int, help="socket that takes the listener")
    stay_below(Path("/"))
    for kind, most in _LIMITS:
        allowed = resource.getrlimit(kind)[1]
        bound = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
        resource.setrlimit(kind, (bound, bound))
    _use_gate(parser.parse_args().gate)
    return converse(_described)


def _use_gate(descriptor: int) -> None:
    with socket.create_server((LOOPBACK, 0), backlog=_BACKLOG) as listener, socket.socket(fileno=descriptor) as gate:
        socket.send_fds(gate, [b"listener"], [listener.fileno()])
        url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    os.environ |= dict.fromkeys((*_PROXIES, *map(str.lower, _PROXIES)), url)


if __name__ == "__main__":
    sys.exit(main())
