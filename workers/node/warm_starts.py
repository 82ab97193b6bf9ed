"""Keeps the fork servers of this machine running, so that processes of jobs start with their imports behind them."""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from app.host.fork_servers import agents_socket, supervisors_socket
from config.settings import Settings
from workers.fork_server.owner import ForkServerOwner
from workers.node.background_thread import PeriodicThread
from workers.process_environment import process_interpreter
from workers.rank.environment import CPU_MEMORY_SETTINGS, FORKED_HF_HOME, RANK_SETTINGS
from workers.sandbox.launcher import inherited_environment

log = logging.getLogger(__name__)

CHECK_SECONDS = 2.0


@dataclass(frozen=True)
class _Server:
    owner: ForkServerOwner
    megabytes: int  # have to be available before it starts: several times of what it takes
    seconds: float = 0.0  # after the start of the node


class WarmStarts:
    """The fork servers that the setting `node.warm` asks for; none before ``may_start`` is true."""

    def __init__(self, settings: Settings, may_start: Callable[[], bool]) -> None:
        self._servers = []
        if settings.node.warm != "off":
            self._servers.append(_Server(supervisor_server(settings.data.dir), megabytes=256))
        if settings.node.warm == "auto":
            # Its imports take some seconds of two cores, which the first job needs more.
            self._servers.append(_Server(agent_server(settings.data.dir), megabytes=2048, seconds=15.0))
        self._may_start = may_start
        self._began = time.monotonic()
        self._thread = PeriodicThread("fork servers", self._keep, CHECK_SECONDS)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End them; processes that they have forked continue."""
        self._thread.stop()
        for server in self._servers:
            server.owner.close()

    def _keep(self) -> None:
        if not self._may_start():
            return
        for server in self._servers:
            is_time = time.monotonic() - self._began >= server.seconds
            if server.owner.pid is None and not (is_time and available_mb() >= server.megabytes):
                continue
            try:
                server.owner.keep()
            except OSError:
                log.warning("a fork server could not be started, and will be later", exc_info=True)


def available_mb() -> int:
    """Memory of this machine that is available without swapping, in MiB."""
    return int(psutil.virtual_memory().available) >> 20


def supervisor_server(data_dir: Path) -> ForkServerOwner:
    """The owner of the server that forks supervisors. It has no credentials: they come with each request."""
    command = [*process_interpreter(), "-m", "workers.supervisor.fork_server"]
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
        "HF_HOME": FORKED_HF_HOME,
        # Imports read configuration below it, with credentials of the operator.
        "HOME": "/nonexistent",
        "PYTHONNOUSERSITE": "1",
    }
    return ForkServerOwner(agents_socket(data_dir), command, environment)


def _environment() -> dict[str, str]:
    return {**inherited_environment(), "PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
