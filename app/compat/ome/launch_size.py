"""How many processes run on how many nodes: from a trainer, its runtime and the command of a launcher. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from app.compat.launchers import Launch, check_machines
from app.domain.errors import BadSpec

_FIELD = "spec.trainer.command"


class LaunchSize(NamedTuple):
    """``per_node`` is a number, or auto, gpu or cpu."""

    per_node: str
    nodes: int


def launch_size(trainer: Mapping[str, Any], policy: Mapping[str, Any], launch: Launch) -> LaunchSize:
    """The job's own numbers count before the runtime's. Raises BadSpec for numbers that contradict each other."""
    found = _launch_size(trainer, policy, launch)
    check_machines(launch, found.nodes, _FIELD, asks_for_mpi="mpi" in policy)
    return found


def _launch_size(trainer: Mapping[str, Any], policy: Mapping[str, Any], launch: Launch) -> LaunchSize:
    of_runtime = (policy.get("torch") or policy.get("mpi") or {}).get("numProcPerNode")
    own_per_node = str(trainer.get("numProcPerNode") or launch.per_node or "")
    own_nodes = trainer.get("numNodes") or launch.nodes
    if launch.processes is not None and (not own_per_node or (own_per_node.isdecimal() and int(own_per_node[:9]))):
        return _of_mpirun(launch.processes, own_per_node, own_nodes, policy, str(of_runtime or ""))
    return LaunchSize(own_per_node or str(of_runtime or "auto"), own_nodes or policy.get("numNodes") or 1)


def _of_mpirun(
    processes: int, own_per_node: str, own_nodes: int | None, policy: Mapping[str, Any], of_runtime: str
) -> LaunchSize:
    """`mpirun -np` counts the processes of all nodes."""
    per_node = int(own_per_node[:9] or 0)
    if own_nodes is None and not per_node:
        nodes = policy.get("numNodes") or 1
        if of_runtime.isdecimal() and processes == int(of_runtime[:9]) * nodes:
            return LaunchSize(of_runtime, nodes)
    else:
        nodes = own_nodes or max(1, processes // per_node)
    per_node = per_node or max(1, processes // nodes)
    if per_node * nodes != processes:
        raise BadSpec(
            f"mpirun is to start {processes} processes, and {nodes} nodes with {per_node} processes each make "
            f"{per_node * nodes}; change -np, numNodes or numProcPerNode, so that each node has the same number",
            field=_FIELD,
        )
    return LaunchSize(str(per_node), nodes)
