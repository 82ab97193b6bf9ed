"""Launcher commands (torchrun, mpirun) → the command of each rank, as the platform launches the ranks. Pure.

`torchrun --nproc_per_node=2 train.py` becomes `python train.py` with two processes on each node, and
`mpirun -np 8 python train.py` becomes `python train.py` started by MPI, also where a shell starts it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.compat import mpirun, mpirun_texts
from app.domain.errors import BadSpec

_MODULES = ("torch.distributed.launch", "torch.distributed.run")
_TORCH_FLAGS = frozenset({"standalone", "run_path", "use_env", "no_use_env"})
_PYTHONS = ("python", "python3")
_SHELLS = ("sh", "bash", "dash")
_COMMAND_OF_SHELL = re.compile(r"-[a-z]*c")
LONGER = "mpirun is a part of a longer text here, which each node runs by itself"


class Launch(NamedTuple):
    """``command`` is that of each rank; ``per_node`` is empty and others None unless the launcher sets them.

    ``ignored``: why an option has no effect. ``is_longer``: mpirun is only a part of a shell's text, and stays there.
    """

    command: list[str]
    per_node: str = ""
    nodes: int | None = None
    processes: int | None = None
    by_mpi: bool = False
    hosts: str = ""
    ignored: Sequence[str] = ()
    is_longer: bool = False


def parse_launcher(command: Sequence[str], field: str, variables: Mapping[str, str]) -> Launch:
    """The ranks' command and the launcher's options; another command is returned as it is. Raises BadSpec.

    ``variables``: those of the job, by which a command may start mpirun, too.
    """
    if not command:
        return Launch([])
    program = command[0].rpartition("/")[2]
    if program == "torchrun":
        return _torchrun(command[1:], python=["python"])
    if program in _PYTHONS and len(command) > 2 and command[1] == "-m" and command[2] in _MODULES:
        return _torchrun(command[3:], python=[command[0]])
    if (found := mpirun.of_words(command, field)) is not None:
        return _launch(*found)
    by_variables = mpirun_texts.is_by_variables(command, variables)
    has_text = len(command) > 2 and _COMMAND_OF_SHELL.fullmatch(command[1]) and not command[2].startswith("-")
    if program in _SHELLS and has_text:
        return _of_shell(command, field, by_variables=by_variables)
    return Launch(list(command), is_longer=mpirun_texts.is_part_of(command) or by_variables)


def _of_shell(command: Sequence[str], field: str, *, by_variables: bool) -> Launch:
    found = mpirun.of_text(command[2], field)
    if found is None or found.text is None:
        return Launch(list(command), is_longer=found is not None or by_variables)
    words = [*command[:2], found.text, *command[3:]] if found.text else []
    return _launch(words, found.options)


def _launch(command: list[str], options: mpirun.MpirunOptions) -> Launch:
    processes, per_node, hosts, _, ignored = options
    return Launch(command, per_node=per_node, processes=processes, by_mpi=True, hosts=hosts, ignored=ignored)


def ranks_per_node(launch: Launch, nodes: int, field: str, *, slots: int | None = None, usual: str = "auto") -> str:
    """The processes of each of the nodes that a request has; ``slots``: those that it names.

    Raises BadSpec where the command asks for another number of processes, or for a machine, or has no program.
    """
    check_machines(launch, nodes, field)
    if not launch.command:
        raise BadSpec("has a launcher without a program to start", field=field)
    named = launch.per_node or (str(slots) if slots else "")
    if launch.per_node and slots and int(launch.per_node[:9]) != slots:
        raise _contradiction(f"{launch.per_node} processes per node", nodes, slots, field)
    if launch.processes is None:
        return named or usual
    each = int(named[:9]) if named else launch.processes // nodes
    if launch.processes == 0 or each * nodes != launch.processes:
        raise _contradiction(f"{launch.processes} processes", nodes, each or 1, field)
    return str(each)


def check_machines(launch: Launch, nodes: int, field: str, *, asks_for_mpi: bool = False) -> None:
    """Raises BadSpec for a command that several nodes can't run together, or not once for each rank of MPI."""
    if launch.is_longer and (nodes > 1 or asks_for_mpi):
        where = "on several nodes" if nodes > 1 else "where the platform starts the ranks by MPI"
        raise BadSpec(
            f"{LONGER}; {where} let mpirun be the only command, with no more than cd, variables, exec or env before "
            "it: what comes after it, or differs each time, goes into a script that mpirun starts; an argument of that "
            "name goes in quotes",
            field=field,
        )
    if nodes > 1 and launch.hosts:
        raise BadSpec(
            f"mpirun's -H {launch.hosts} is one machine, and the job has {nodes} nodes; leave it out", field=field
        )


def _contradiction(asked: str, nodes: int, each: int, field: str) -> BadSpec:
    count = f"{nodes} nodes" if nodes > 1 else "1 node"
    return BadSpec(
        f"mpirun is to start {asked}, and {count} with {each} processes each make {nodes * each}; change -np, or the "
        "number of nodes or processes, so that each node has the same number",
        field=field,
    )


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
        elif name not in _TORCH_FLAGS:
            options[name] = value if equals or not rest else rest.pop(0)
    nodes = options.get("nnodes", "")
    return Launch(
        [*prefix, *rest],
        per_node=options.get("nproc_per_node", ""),
        nodes=int(nodes[:9]) if nodes.isdecimal() else None,
    )
