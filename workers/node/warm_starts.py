"""Keeps the fork servers of this machine running, so that processes of jobs start with their imports behind them."""

from collections.abc import Callable
from pathlib import Path

from config.settings import Settings
from workers.fork_server.owner import ForkServerOwner
from workers.fork_server.sockets import supervisors_socket
from workers.node.background_thread import PeriodicThread
from workers.node.spawn_supervisor import supervisor_interpreter
from workers.sandbox.launcher import inherited_environment

CHECK_SECONDS = 2.0


class WarmStarts:
    """The fork servers, unless the setting `node.warm` is off; none before ``may_start`` is true."""

    def __init__(self, settings: Settings, may_start: Callable[[], bool]) -> None:
        self._servers = [supervisor_server(settings.data.dir)] if settings.node.warm != "off" else []
        self._may_start = may_start
        self._thread = PeriodicThread("fork servers", self._keep, CHECK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End them; processes that they have forked go on."""
        self._thread.stop()
        for server in self._servers:
            server.close()

    def _keep(self) -> None:
        if self._may_start():
            for server in self._servers:
                server.keep()


def supervisor_server(data_dir: Path) -> ForkServerOwner:
    """The owner of the server that forks supervisors. It has no credentials: they come with each request."""
    environment = {
        **inherited_environment(),
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "MALLOC_ARENA_MAX": "1",
    }
    command = [*supervisor_interpreter(), "-m", "workers.supervisor.fork_server"]
    return ForkServerOwner(supervisors_socket(data_dir), command, environment)
