"""Ranks of scripts that call MPI are started by Open MPI's mpirun, from inside the sandbox. Standard library only.

On several nodes mpirun runs in the sandbox of the first. Where it would log in elsewhere it starts
`workers.rank.mpi_remote`, which asks `workers.rank.mpi_part` in the sandbox of the other node for Open MPI's daemon.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.protocol.channel import LineDecoder, Message
from trainyard.protocol.run_spec import RunSpec

MPI = "mpi"  # the launcher in a spec.json
MPIRUN = "mpirun"
PLAN = "TRAINYARD_MPI_PLAN"  # path of the plan, in the environment of Open MPI's daemons, which ranks don't get
_PYTHON = "TRAINYARD_MPI_PYTHON"
PART = "part-"  # and its number: what mpirun calls the other nodes; their addresses may be those of one machine
# hwloc searches for X servers with GPUs on the ports 6000 to 6009, and waits forever for any other server.
_NO_X_SERVERS = ("env", "HWLOC_COMPONENTS=-gl")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 – where Open MPI has its segments, too
_FOLDER, _LOCK, _NEW_LOCK = "trainyard-mpi-", "lock", "lock.new"
_SIGKILL_SECONDS = 3
_READ_BYTES = 65536


@dataclass(frozen=True, kw_only=True)
class MpiNodes:
    """Of each part of a job on several nodes: address and port where it waits for mpirun, which knows the secret."""

    places: tuple[tuple[str, int], ...]
    secret: str = field(repr=False)

    @classmethod
    def from_message(cls, message: Mapping[str, Any] | None) -> "MpiNodes | None":
        if message is None:
            return None
        return cls(places=tuple((address, port) for address, port in message["places"]), secret=message["secret"])

    def to_message(self) -> dict[str, Any]:
        return {"places": [list(place) for place in self.places], "secret": self.secret}


class Mpirun:
    """The parent of all ranks of this node; ``reports`` can be selected on.

    That is mpirun, or on the other nodes of a job the process that starts Open MPI's daemon for it. Ranks are given
    log and variables through a file in memory and descriptors of this process, which they find in /proc: mpirun passes
    no descriptor on, and would show the job's secrets on its command line.
    """

    def __init__(
        self,
        spec: RunSpec,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        logs: Sequence[int],
        nodes: MpiNodes | None,
        *,
        prepare: Callable[[], None],
    ) -> None:
        self.reports, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._decoder = LineDecoder()
        self._folder = _folder() if nodes is not None else None
        ours = Path("/proc") / str(os.getpid()) / "fd"
        plan = os.memfd_create("mpi-plan")
        with os.fdopen(plan, "w", closefd=False) as file:
            document = {
                "command": list(command),
                "environments": [dict(environment) for environment in environments],
                "logs": [str(ours / str(fd)) for fd in logs],
                "reports": str(ours / str(writer)),
                "settings": _of_this_node(spec, nodes, self._folder, environments[0]),
            }
            json.dump({**document, **_place(spec, nodes)}, file)
        process = subprocess.Popen(
            _command(spec, ours / str(plan), nodes),
            env={**os.environ, **_of_daemons(spec, ours / str(plan), nodes, self._folder)},
            cwd=spec.directory,
            stdin=subprocess.DEVNULL,
            stdout=logs[0],
            stderr=logs[0],
            preexec_fn=prepare,  # noqa: PLW1509
        )
        process.returncode = 0  # collected with all other children
        self.pid = process.pid

    def messages(self) -> Iterator[Message]:
        """Messages from ranks: ``rank_started {rank, pid}``, ``rank_ended {rank, code, at}``, ``rank_follows {rank}``.

        The last: mpirun ends it because another has failed.
        """
        while True:
            try:
                data = os.read(self.reports, _READ_BYTES)
            except BlockingIOError:
                return
            yield from self._decoder.feed(data)

    def close(self) -> None:
        """Remove what a killed process may have left in shared memory."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _folder() -> Path:
    """Open MPI's files of this node: two daemons of a job on one machine would have the same names elsewhere.

    This process locks it until it ends. Those that are not locked are of agents that were killed, and are removed.
    """
    place = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    for lock in place.glob(f"{_FOLDER}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # in use, or another user's
            descriptor = _locked(lock)
            shutil.rmtree(lock.parent, ignore_errors=True)
            os.close(descriptor)
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=place))
    _locked(folder / _NEW_LOCK)
    (folder / _NEW_LOCK).rename(folder / _LOCK)  # which no other agent finds unlocked
    return folder


def _locked(path: Path) -> int:
    """A descriptor that locks the file. Raises OSError."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _place(spec: RunSpec, nodes: MpiNodes | None) -> dict[str, Any]:
    """The part of a plan that says where its ranks are."""
    return {
        "directory": spec.directory,
        "first_rank": spec.first_rank,
        "part": spec.node_rank,
        "nodes": nodes.to_message() if nodes is not None else None,
    }


def _command(spec: RunSpec, plan: Path, nodes: MpiNodes | None) -> list[str]:
    if nodes is None:
        return mpirun_command(spec.local_ranks, plan)
    if spec.node_rank == 0:
        return mpirun_of_nodes(spec.local_ranks, len(nodes.places))
    return [sys.executable, "-m", "workers.rank.mpi_part"]


def mpirun_command(ranks: int, plan: Path) -> list[str]:
    """Starts them on this machine. Places and processors are the platform's to give, not mpirun's."""
    settings = {
        # There is one machine, so no remote shell.
        "plm": "isolated"
    }
    places = ["--np", str(ranks), "--host", f"localhost:{ranks}"]
    return [*_mpirun(places, settings), sys.executable, "-m", "workers.rank.mpi_rank", "--plan", str(plan)]


def mpirun_of_nodes(ranks: int, nodes: int) -> list[str]:
    """Starts so many on each of the nodes; ranks of a node follow each other, as without mpirun.

    Directory and interpreter may differ between the nodes: each finds its own in its environment.
    """
    settings = {
        "plm": "rsh",
        "plm_rsh_agent": f"{sys.executable} -m workers.rank.mpi_remote",
        "plm_rsh_no_tree_spawn": "1",
        # Interfaces and folders are those of one node.
        "plm_rsh_pass_environ_mca_params": "0",
        # No name server knows the parts.
        "if_base_do_not_resolve": "1",
    }
    hosts = [f"localhost:{ranks}", *(f"{PART}{part}:{ranks}" for part in range(1, nodes))]
    places = ["--np", str(ranks * nodes), "--host", ",".join(hosts), "--map-by", "slot", "--wdir", "/", "--noprefix"]
    rank = f'exec "${_PYTHON}" -m workers.rank.mpi_rank --plan "${PLAN}"'
    return [*_mpirun([*places, "--leave-session-attached"], settings), "sh", "-c", rank]


def _mpirun(options: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    common = {
        # Processes in a namespace of their own may not read each other's memory.
        "btl_vader_single_copy_mechanism": "none",
        "odls_base_sigkill_timeout": str(_SIGKILL_SECONDS),
    }
    mca = [word for name, value in {**common, **settings}.items() for word in ("--mca", name, value)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [*_NO_X_SERVERS, MPIRUN, *root, *options, "--bind-to", "none", *mca]


def _of_daemons(spec: RunSpec, plan: Path, nodes: MpiNodes | None, folder: Path | None) -> dict[str, str]:
    """Variables of mpirun and its daemons, which differ between nodes."""
    if nodes is None:
        return {}
    return {
        PLAN: str(plan),
        _PYTHON: sys.executable,
        "TMPDIR": str(folder),
        "OMPI_MCA_oob_tcp_if_include": _network(spec, nodes),
        "HWLOC_COMPONENTS": "-gl",
    }


def _of_this_node(
    spec: RunSpec, nodes: MpiNodes | None, folder: Path | None, environment: Mapping[str, str]
) -> dict[str, str]:
    """Open MPI's settings for ranks of this node, which mpirun knows for its own alone; the job's environment wins."""
    if nodes is None:
        return {}
    folders = {f"OMPI_MCA_{name}_backing_directory": str(folder) for name in ("btl_vader", "osc_sm", "osc_rdma")}
    ours = {**folders, "OMPI_MCA_btl_tcp_if_include": _network(spec, nodes)}
    return {name: environment.get(name, value) for name, value in ours.items()}


def _network(spec: RunSpec, nodes: MpiNodes) -> str:
    """The one address by which the other nodes reach this one, in the form for a network."""
    return f"{nodes.places[spec.node_rank][0]}/32"
