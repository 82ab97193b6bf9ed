"""The agent's side of the session server: makes its socket, starts it, and starts it again when it has ended."""

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from trainyard.protocol.channel import short_address
from trainyard.protocol.interactive import SOCKET
from trainyard.protocol.run_spec import RunSpec
from workers.rank.environment import own_python, script_interpreter, session_server_environment
from workers.rank.rank_process import as_rank
from workers.rank.role_environment import spec_of

BACKLOG = 512
_LEAN = ("-S",)  # without site-packages, of which it needs none: people may be waiting for it
NOTEBOOK_LOG = "notebook.log"  # in the run directory's work
MOST_STARTS = 20  # a job that kills it again and again ends its own access


class SessionHost:
    """Of one agent. ``pid`` is 0 while no session server runs."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._listener: socket.socket | None = None
        self._configuration = b""
        self._starts = 0
        self.pid = 0

    @property
    def is_open(self) -> bool:
        return self._listener is not None

    def open(self, environments: Mapping[int, Mapping[str, str]], notebook: Mapping[str, str] | None) -> None:
        """Listen, and start the server with the variables of each rank; does nothing when it was opened before.

        Raises OSError.
        """
        if self._listener is not None:
            return
        configuration: dict[str, Any] = {
            "environments": {str(rank): dict(each) for rank, each in environments.items()},
            "directory": self._spec.directory or str(self._spec.run_dir),
            "directories": _directories_of_roles(self._spec),
        }
        if notebook is not None:
            configuration["notebook"] = {**notebook, **_notebook(self._spec)}
        self._configuration = json.dumps(configuration).encode()
        listener = self._listening()
        self._listener = listener
        try:
            self._start(listener)
        except OSError:
            self._listener = None
            listener.close()
            raise

    def ended(self) -> None:
        """The server has ended, which only processes of the job can have caused. What waits for it stays in line."""
        self.pid = 0
        if self._listener is None:
            return
        try:
            if self._starts >= MOST_STARTS:
                raise OSError(0, "it was started too often")
            self._start(self._listener)
        except OSError:
            self._listener.close()
            self._listener = None

    def _listening(self) -> socket.socket:
        """Raises OSError."""
        place = self._spec.run_dir / SOCKET
        place.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_address(place) as address:
                listener.bind(address)
            place.chmod(0o600)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def _start(self, listener: socket.socket) -> None:
        parent = os.getpid()
        self._starts += 1
        with self._input() as configuration:
            process = subprocess.Popen(
                [*own_python(self._spec), *_LEAN, "-m", "workers.rank.sessions", str(listener.fileno())],
                env=session_server_environment(),
                cwd=self._spec.run_dir,
                stdin=configuration,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                preexec_fn=lambda: as_rank(parent),  # noqa: PLW1509 – this process has one thread
            )
        process.returncode = 0  # collected with all other children
        self.pid = process.pid

    def _input(self) -> IO[bytes]:
        """The configuration in memory: with a pipe the agent would wait for a server that a rank has stopped."""
        file = open(os.memfd_create("sessions"), "w+b")  # noqa: PTH123, SIM115 – it has no path; the caller closes it
        try:
            file.write(self._configuration)
            file.seek(0)
        except OSError:
            file.close()
            raise
        return file


def _directories_of_roles(spec: RunSpec) -> dict[str, str]:
    """Where the ranks of instances start, by rank, if that is another place than the job's."""
    return {str(rank): each.directory for each in spec.instances if each.directory for rank in each.global_ranks}


def _notebook(spec: RunSpec) -> dict[str, str]:
    """With the packages and the directory of the first rank, whose environment it gets."""
    if spec.instances:
        spec = spec_of(spec, min(spec.instances, key=lambda each: each.first_rank))
    work = Path(spec.run_dir, "work")
    return {
        "python": script_interpreter(spec),
        "directory": spec.directory or str(work),
        "log": str(work / NOTEBOOK_LOG),
    }
