"""Rank agents and inspections of systems under test that are forks of one process, which has imported what trains.

A node worker would keep such a process for itself (`TRAINYARD_NODE_WARM=auto`): every system would import all anew.
"""

from pathlib import Path

from app.host.fork_servers import agents_socket, is_listening
from tests.systems.system import NODE_WARM, System, wait_for
from workers.node.warm_starts import agent_server


class ForkedAgents:
    """A fork server in a directory of its own; ``owned`` gets the pid of each that is started."""

    def __init__(self, directory: Path, owned: set[int]) -> None:
        (directory / "run").mkdir(parents=True)
        self._socket, self._owned = agents_socket(directory), owned
        self._server = agent_server(directory)
        self._keep()

    def serve(self, data_dir: Path) -> None:
        """Nodes and coordinators of this data directory find the server from now on."""
        self._keep()
        path = agents_socket(data_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(self._socket)

    def serve_system(self, system: System) -> None:
        """The same for a system, unless TESTS_NODE_WARM tells its nodes what to fork."""
        if NODE_WARM is None:
            self.serve(system.data_dir)

    def close(self) -> None:
        self._server.close()

    def _keep(self) -> None:
        """It ends by itself after many children."""
        before = self._server.pid
        for _ in range(2):  # the first may find that it has ended
            self._server.keep()
        if self._server.pid is None or self._server.pid == before:
            return
        self._owned.add(self._server.pid)
        wait_for(lambda: is_listening(self._socket), seconds=120, what="a process that waits for a request")
