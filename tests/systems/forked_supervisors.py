"""Supervisors that are forks of one process which has imported what they need: a second of computing less for each.

They are processes as those of a node worker are, in a session of their own, with their own environment, log, command
line and fence; only their interpreter was not started for them. Tests of node workers and of whole systems start theirs
with ``spawn_supervisor``, and a restart in place is a start anew.
"""

import json
import os
import socket
import subprocess
from pathlib import Path

from config.settings import Settings
from tests.systems.supervisor_forks import REQUEST_BYTES
from workers.node import spawn_supervisor

# The command line of a process lies where its arguments were put when it started: with room for a supervisor's.
ROOM = "-" * 100
START_SECONDS = 60.0


class ForkedSupervisors:
    """The process that forks them, and the socket on which it is asked to."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command, arguments = spawn_supervisor.supervisor_command("", 0), (theirs.fileno(), os.getpid())
            self._socket.settimeout(START_SECONDS)
            self._process = subprocess.Popen(
                [*command[: command.index("-m")], "-m", "tests.systems.supervisor_forks", *map(str, arguments), ROOM],
                env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def spawn(self, settings: Settings, job_id: str, attempt: int) -> int:
        """What ``spawn_supervisor`` does."""
        request = [
            spawn_supervisor.supervisor_command(job_id, attempt),
            spawn_supervisor.supervisor_environment(settings),
        ]
        with spawn_supervisor.supervisor_log(settings.data.dir) as log:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [log.fileno()])
            return int(self._socket.recv(REQUEST_BYTES))

    def close(self) -> None:
        self._socket.close()
        self._process.wait(10)
