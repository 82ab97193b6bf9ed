"""Supervisors of tests that are forks of one process for all tests, as those of a node worker are forks of its own.

A restart in place is a start anew, as always.
"""

from pathlib import Path

from app.host.fork_servers import supervisors_socket
from config.settings import Settings
from workers.node.spawn_supervisor import spawn_supervisor
from workers.node.warm_starts import supervisor_server


class ForkedSupervisors:
    """A fork server in a directory of its own; ``owned`` gets the pid of each that is started."""

    def __init__(self, directory: Path, owned: set[int]) -> None:
        self._directory, self._owned = directory, owned
        self._server = supervisor_server(directory)
        self._keep()

    def spawn(self, settings: Settings, job_id: str, attempt: int) -> int:
        """What ``spawn_supervisor`` does, with this server instead of the data directory's."""
        self._keep()
        return spawn_supervisor(settings, job_id, attempt, fork_server=supervisors_socket(self._directory))

    def close(self) -> None:
        self._server.close()

    def _keep(self) -> None:
        self._server.keep()
        if self._server.pid is not None:
            self._owned.add(self._server.pid)
