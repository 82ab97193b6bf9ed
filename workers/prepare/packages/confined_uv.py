"""Runs uv in its sandbox: ``python -m workers.prepare.packages.confined_uv --gate FD … -- COMMAND…``.

The sandbox has loopback alone. This process listens there, passes the listener out to the gate, which connects to
public addresses only, and becomes the command, with the gate as its proxy. What packages run as they are built has a
second lock.
"""

import argparse
import os
import resource
import socket
from pathlib import Path

from app.host.landlock import stay_below

LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gate", required=True, type=int, help="socket that takes the listener")
    parser.add_argument("--memory", required=True, type=int, help="bytes, for each process")
    parser.add_argument("--file", required=True, type=int, help="bytes, for each file")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    limits = ((resource.RLIMIT_DATA, arguments.memory), (resource.RLIMIT_FSIZE, arguments.file))
    for kind, most in (*limits, (resource.RLIMIT_CORE, 0)):
        _limit(kind, most)
    with (
        socket.create_server((LOOPBACK, 0), backlog=_BACKLOG) as listener,
        socket.socket(fileno=arguments.gate) as gate,
    ):
        socket.send_fds(gate, [b"listener"], [listener.fileno()])
        url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
    stay_below(Path("/"))
    os.environ |= dict.fromkeys((*_PROXIES, *map(str.lower, _PROXIES)), url)
    os.execv(arguments.command[0], arguments.command)  # noqa: S606 – the command is ours


def _limit(kind: int, most: int) -> None:
    before = resource.getrlimit(kind)[1]
    most = most if before == resource.RLIM_INFINITY else min(most, before)
    resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
