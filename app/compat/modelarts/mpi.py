"""ModelArts' jobs that start mpirun, and those of its engines for MPI → jobs whose ranks mpirun starts. Pure.

A job whose image is used runs the mpirun of that image, as it runs any command, while it is on one node.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from app.compat.launchers import parse_launcher, ranks_per_node
from app.schemas.spec.field_verdicts import warning

COMMAND = "algorithm.command"
ENGINES = ("horovod", "mpi", "mindspore-gpu")  # by which ModelArts starts boot_file with mpirun
_SHELL = ("bash", "-c")


class MpiLaunch(NamedTuple):
    """The algorithm with the command of each rank, and the fields of the framework that start it by MPI."""

    algorithm: Mapping[str, Any]
    framework: dict[str, Any]


def started(algorithm: Mapping[str, Any], nodes: int, warnings: list[str], *, uses_images: bool) -> MpiLaunch:
    """Raises BadSpec for a command of mpirun that the nodes of the job don't fit."""
    command = algorithm.get("command")
    has_image = uses_images and bool((algorithm.get("engine") or {}).get("image_url"))
    if algorithm.get("id") or (has_image and nodes == 1):
        return MpiLaunch(algorithm, {})
    if not command:
        is_of_engine = algorithm.get("boot_file") and not has_image and _engine(algorithm) in ENGINES
        return MpiLaunch(algorithm, _framework("auto") if is_of_engine else {})
    launch = parse_launcher([*_SHELL, command], COMMAND, algorithm.get("environments") or {})
    if not launch.by_mpi and not launch.is_longer:
        return MpiLaunch(algorithm, {})
    per_node = ranks_per_node(launch, nodes, COMMAND)
    if launch.is_longer:
        return MpiLaunch(algorithm, {})
    warnings += [warning(COMMAND, why) for why in launch.ignored]
    return MpiLaunch({**algorithm, "command": launch.command[2]}, _framework(per_node))


def _engine(algorithm: Mapping[str, Any]) -> str:
    engine = algorithm.get("engine") or {}
    return str(engine.get("engine_name") or engine.get("engine_id", "").partition("-")[0]).lower()


def _framework(per_node: str) -> dict[str, Any]:
    return {"config": {"launcher": "mpi"}, "distributed": {"config": {"num_proc_per_node": per_node}}}
