"""A process that forks a supervisor for each request on its socket: see ``tests.systems.forked_supervisors``."""

import ctypes
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.orm import configure_mappers

from app.host.processes import die_with_parent, reap_children
from workers.supervisor import main as supervisor

REQUEST_BYTES = 1 << 20


def main() -> int:
    """Fork a supervisor for each request; its fork returns what the supervisor returns."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    signal.signal(signal.SIGCHLD, lambda *_: reap_children())
    configure_mappers()
    gc.collect()
    gc.freeze()  # or the first collection of each fork would copy all of it
    with socket.socket(fileno=descriptor) as asked:
        while True:
            data, descriptors, _, _ = socket.recv_fds(asked, REQUEST_BYTES, 1)
            if not data:
                return 0
            if os.fork() == 0:
                _become(*json.loads(data), log=descriptors[0])
                asked.send(str(os.getpid()).encode())
                break
            os.close(descriptors[0])
    return supervisor.main()


def _become(command: list[str], environment: dict[str, str], *, log: int) -> None:
    """What a start of its own would have given this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.path[: len(_search_path())] = _search_path(environment)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command[command.index("-m") + 1 :]
    _show_command_line(command)


def _search_path(environment: Mapping[str, str] = os.environ) -> list[str]:
    return environment["PYTHONPATH"].split(os.pathsep)


def _show_command_line(command: list[str]) -> None:
    """By their command lines supervisors are found."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    line = b"\0".join(word.encode() for word in command) + b"\0"
    ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main())
