"""Ranks of scripts that call MPI are started by Open MPI's mpirun, from inside the sandbox. Standard library only."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from trainyard.protocol.channel import LineDecoder, Message

MPI = "mpi"  # the launcher in a spec.json
MPIRUN = "mpirun"
# hwloc searches for X servers with GPUs on the ports 6000 to 6009, and waits forever for any other server.
_NO_X_SERVERS = ("env", "HWLOC_COMPONENTS=-gl")
_SIGKILL_SECONDS = 3
_READ_BYTES = 65536


class Mpirun:
    """The parent of all ranks of this node; ``reports`` can be selected on.

    Ranks are given log and variables through a file in memory and descriptors of this process, which they find in
    /proc: mpirun passes no descriptor on, and would show the job's secrets on its command line.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        environments: Sequence[Mapping[str, str]],
        logs: Sequence[int],
        *,
        prepare: Callable[[], None],
    ) -> None:
        self.reports, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._decoder = LineDecoder()
        ours = Path("/proc") / str(os.getpid()) / "fd"
        plan = os.memfd_create("mpi-plan")
        with os.fdopen(plan, "w", closefd=False) as file:
            json.dump(
                {
                    "command": list(command),
                    "directory": str(directory),
                    "environments": [dict(environment) for environment in environments],
                    "logs": [str(ours / str(fd)) for fd in logs],
                    "reports": str(ours / str(writer)),
                },
                file,
            )
        process = subprocess.Popen(
            mpirun_command(len(environments), ours / str(plan)),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=logs[0],
            stderr=logs[0],
            preexec_fn=prepare,  # noqa: PLW1509
        )
        process.returncode = 0  # collected with all other children
        self.pid = process.pid

    def messages(self) -> Iterator[Message]:
        """Messages from ranks: ``rank_started {rank, pid}``, ``rank_ended {rank, code, at}``."""
        while True:
            try:
                data = os.read(self.reports, _READ_BYTES)
            except BlockingIOError:
                return
            yield from self._decoder.feed(data)


def mpirun_command(ranks: int, plan: Path) -> list[str]:
    """Starts them on this machine. Places and processors are the platform's to give, not mpirun's."""
    settings = {
        # Processes in a namespace of their own may not read each other's memory.
        "btl_vader_single_copy_mechanism": "none",
        "odls_base_sigkill_timeout": str(_SIGKILL_SECONDS),
        # There is one machine, so no remote shell.
        "plm": "isolated",
    }
    mca = [word for name, value in settings.items() for word in ("--mca", name, value)]
    places = ["--np", str(ranks), "--host", f"localhost:{ranks}", "--bind-to", "none"]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [
        *_NO_X_SERVERS,
        MPIRUN,
        *root,
        *places,
        *mca,
        sys.executable,
        "-m",
        "workers.rank.mpi_rank",
        "--plan",
        str(plan),
    ]
