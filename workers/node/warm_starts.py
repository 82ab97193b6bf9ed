"""Keeps the fork servers of this machine running, so that processes of jobs start with their imports behind them."""

import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from config.settings import Settings
from workers.fork_server.owner import ForkServerOwner
from workers.fork_server.sockets import agents_socket, supervisors_socket
from workers.node.background_thread import PeriodicThread
from workers.node.spawn_supervisor import supervisor_interpreter
from workers.rank.environment import CPU_MEMORY_SETTINGS, RANK_SETTINGS
from workers.sandbox.launcher import inherited_environment

CHECK_SECONDS = 2.0
# Memory that has to be available before a server starts: several times of what it takes.
SUPERVISORS_MB, AGENTS_MB = 256, 2048
# Libraries read it when they are imported. In a sandbox /tmp is the attempt's own.
WARM_HF_HOME = "/tmp/huggingface"  # noqa: S108


class WarmStarts:
    """The fork servers, unless the setting `node.warm` is off; none before ``may_start`` is true."""

    def __init__(self, settings: Settings, may_start: Callable[[], bool]) -> None:
        self._servers: list[tuple[ForkServerOwner, int]] = []
        if settings.node.warm != "off":
            data_dir = settings.data.dir
            self._servers = [(supervisor_server(data_dir), SUPERVISORS_MB), (agent_server(data_dir), AGENTS_MB)]
        self._may_start = may_start
        self._thread = PeriodicThread("fork servers", self._keep, CHECK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End them; processes that they have forked go on."""
        self._thread.stop()
        for server, _ in self._servers:
            server.close()

    def _keep(self) -> None:
        if self._may_start():
            for server, megabytes in self._servers:
                if server.pid is not None or available_mb() >= megabytes:
                    server.keep()


def available_mb() -> int:
    """Memory of this machine that is available without swapping, in MiB."""
    return int(psutil.virtual_memory().available) >> 20


def supervisor_server(data_dir: Path) -> ForkServerOwner:
    """The owner of the server that forks supervisors. It has no credentials: they come with each request."""
    command = [*supervisor_interpreter(), "-m", "workers.supervisor.fork_server"]
    environment = {**_environment(), "MALLOC_ARENA_MAX": "1"}
    return ForkServerOwner(supervisors_socket(data_dir), command, environment)


def agent_server(data_dir: Path) -> ForkServerOwner:
    """The owner of the server that forks rank agents, with the environment of a rank on the CPU."""
    command = [sys.executable, "-m", "workers.trainers.fork_server"]
    environment = {
        **_environment(),
        **RANK_SETTINGS,
        **CPU_MEMORY_SETTINGS,
        "OMP_NUM_THREADS": "1",  # each rank sets its own number
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HOME": WARM_HF_HOME,
    }
    return ForkServerOwner(agents_socket(data_dir), command, environment)


def _environment() -> dict[str, str]:
    return {**inherited_environment(), "PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
