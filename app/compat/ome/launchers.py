"""Launcher commands (torchrun, mpirun) → the command of each rank, as the platform launches the ranks. Pure.

`torchrun --nproc_per_node=2 train.py` becomes `python train.py` with two processes on each node, and
`mpirun -np 8 python train.py` becomes `python train.py` started by MPI.
"""

from collections.abc import Sequence
from typing import NamedTuple

_MODULES = ("torch.distributed.launch", "torch.distributed.run")
_FLAGS = frozenset({"standalone", "run_path", "use_env", "no_use_env"})
_PYTHONS = ("python", "python3")
# Options of mpirun with one value; -mca has two.
_OF_MPIRUN = frozenset(
    {"np", "n", "c", "H", "host", "hostfile", "machinefile", "x", "N", "npernode", "map-by", "bind-to", "rank-by"}
)


class Launch(NamedTuple):
    """``command`` is that of each rank; ``per_node`` is empty and ``nodes`` None unless the launcher sets them."""

    command: list[str]
    per_node: str = ""
    nodes: int | None = None
    processes: int | None = None
    by_mpi: bool = False


def parse_launcher(command: Sequence[str]) -> Launch:
    """The ranks' command and the launcher's options; another command is returned as it is."""
    if not command:
        return Launch([])
    program = command[0].rpartition("/")[2]
    if program == "torchrun":
        return _torchrun(command[1:], python=["python"])
    if program in _PYTHONS and len(command) > 2 and command[1] == "-m" and command[2] in _MODULES:
        return _torchrun(command[3:], python=[command[0]])
    if program in ("mpirun", "mpiexec"):
        return _mpirun(command[1:])
    return Launch(list(command))


def _torchrun(args: Sequence[str], *, python: list[str]) -> Launch:
    options: dict[str, str] = {}
    rest = list(args)
    prefix = python
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name in ("m", "module"):
            prefix = [*python, "-m"]
        elif name == "no_python":
            prefix = []
        elif name not in _FLAGS:
            options[name] = value if equals or not rest else rest.pop(0)
    nodes = options.get("nnodes", "")
    return Launch(
        [*prefix, *rest],
        per_node=options.get("nproc_per_node", ""),
        nodes=int(nodes[:9]) if nodes.isdecimal() else None,
    )


def _mpirun(args: Sequence[str]) -> Launch:
    rest, processes, per_node = list(args), None, ""
    while rest and rest[0].startswith("-"):
        name = rest.pop(0).lstrip("-")
        if name == "mca":
            del rest[:2]
        elif name in _OF_MPIRUN and rest:
            value = rest.pop(0)
            if name in ("np", "n", "c") and value.isdecimal():
                processes = int(value[:9])  # larger numbers are refused later
            elif name in ("N", "npernode"):
                per_node = value
    return Launch(rest, per_node=per_node, processes=processes, by_mpi=True)
