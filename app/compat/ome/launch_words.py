"""Commands that start ranks by themselves → what each rank runs: here the platform starts them. Pure.

`torchrun --nproc_per_node=2 train.py` becomes `python train.py` with two processes on each node, and
`mpirun -np 8 python train.py` becomes `python train.py` started by MPI.
"""

from collections.abc import Sequence
from typing import NamedTuple

_MODULES = ("torch.distributed.launch", "torch.distributed.run")
_FLAGS = frozenset({"standalone", "run_path", "use_env", "no_use_env"})
_PYTHONS = ("python", "python3")
# Options of mpirun that have one value after them; -mca has two.
_OF_MPIRUN = frozenset(
    {"np", "n", "c", "H", "host", "hostfile", "machinefile", "x", "N", "npernode", "map-by", "bind-to", "rank-by"}
)


class Launch(NamedTuple):
    """``words`` are those of each rank. ``per_node`` and ``nodes`` are empty or None where the command says nothing."""

    words: list[str]
    per_node: str = ""
    nodes: int | None = None
    processes: int | None = None
    by_mpi: bool = False


def unlaunched(words: Sequence[str]) -> Launch:
    """Of a command that starts no ranks: itself."""
    if not words:
        return Launch([])
    program = words[0].rpartition("/")[2]
    if program == "torchrun":
        return _torchrun(words[1:], python=["python"])
    if program in _PYTHONS and len(words) > 2 and words[1] == "-m" and words[2] in _MODULES:
        return _torchrun(words[3:], python=[words[0]])
    if program in ("mpirun", "mpiexec"):
        return _mpirun(words[1:])
    return Launch(list(words))


def _torchrun(words: Sequence[str], *, python: list[str]) -> Launch:
    options: dict[str, str] = {}
    rest = list(words)
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


def _mpirun(words: Sequence[str]) -> Launch:
    rest, processes, per_node = list(words), None, ""
    while rest and rest[0].startswith("-"):
        name = rest.pop(0).lstrip("-")
        if name == "mca":
            del rest[:2]
        elif name in _OF_MPIRUN and rest:
            value = rest.pop(0)
            if name in ("np", "n", "c") and value.isdecimal():
                processes = int(value[:9])  # more is too many in any case
            elif name in ("N", "npernode"):
                per_node = value
    return Launch(rest, per_node=per_node, processes=processes, by_mpi=True)
