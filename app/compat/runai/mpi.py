"""Run:ai's workloads that start mpirun → jobs whose ranks mpirun starts. Pure.

Of a distributed workload the platform is the launcher: its pods are the workers alone, and mpirun runs beside the ranks
of the first. A training whose image is used runs the mpirun of that image, as it runs any command.
"""

import shlex
from collections.abc import Mapping
from typing import Any

from app.compat.launchers import Launch, parse_launcher, ranks_per_node
from app.compat.runai.pods import KEPT, Part, Pods, Spec
from app.compat.runai.programs import MASTERS, REST, CommandContext, program_of, words_of
from app.compat.runai.resources import resources_of
from app.compat.runai.variables import common_environment, environment_of
from app.domain.errors import BadSpec
from app.schemas.spec.field_verdicts import warning


def starts_by_mpi(spec: Spec, *, has_image: bool) -> bool:
    """Whether a training is a command of mpirun that the platform runs."""
    return not has_image and spec.get("completions", 1) == 1 and _launch(spec, REST).by_mpi


def mpi_training(spec: Spec, place: CommandContext, warnings: list[str]) -> Pods:
    """Raises BadSpec."""
    launch = _launch(spec, REST)
    per_node = ranks_per_node(launch, 1, f"{REST}.command")
    devices = resources_of(spec.get("compute") or {}, warnings)
    warnings += [warning(f"{REST}.command", why) for why in launch.ignored]
    return Pods(_framework(spec, launch, per_node, place, REST), devices, environment_of(spec))


def mpi_distributed(spec: Spec, master: Spec, place: CommandContext, warnings: list[str]) -> Pods:
    """Raises BadSpec."""
    part = MASTERS if master.get("command") or master.get("args") else REST
    asked = {**spec, **{name: master.get(name) for name in ("command", "args")}} if part == MASTERS else spec
    launch = _launch(asked, part)
    if not launch.by_mpi:
        raise BadSpec(
            "has to be one command of mpirun, with no more than cd, variables, exec or env before it, and none that "
            "differ each time: the platform starts the ranks on all workers, and has no host file and no SSH for a "
            "script; or use the framework PyTorch",
            field=f"{part}.command",
        )
    workers = int(spec.get("numWorkers") or 1)
    per_node = ranks_per_node(launch, workers, f"{part}.command", slots=spec.get("slotsPerWorker"), usual="1")
    warnings += [*_without_effect(spec, master, part), *(warning(f"{part}.command", why) for why in launch.ignored)]
    resources = resources_of(spec.get("compute") or {}, warnings)
    framework = _framework(asked, launch, per_node, place, part)
    return Pods(framework, {**resources, "node_count": workers}, common_environment(spec, master))


def _without_effect(spec: Spec, master: Spec, part: str) -> list[str]:
    found = []
    if part == MASTERS:
        why = "workers run the ranks that the launcher's mpirun starts"
        found += [warning(f"{REST}.{name}", why) for name in ("command", "args") if spec.get(name)]
    if master.get("compute"):
        found.append(warning(f"{MASTERS}.compute", "mpirun takes no devices: it runs beside the ranks of a worker"))
    if spec.get("cleanPodPolicy") == KEPT:
        found.append(warning(f"{REST}.cleanPodPolicy", "workers end with mpirun"))
    return found


def _launch(asked: Spec, part: str) -> Launch:
    words = [*words_of(asked, "command", part), *words_of(asked, "args", part)]
    return parse_launcher(words, f"{part}.command", environment_of(asked))


def _framework(asked: Spec, launch: Launch, per_node: str, place: CommandContext, part: str) -> Part:
    words: Mapping[str, Any] = {"command": shlex.join(launch.command[:1]), "args": shlex.join(launch.command[1:])}
    program = program_of({**asked, **words}, place, part)
    started = {"config": {"launcher": "mpi"}, "distributed": {"config": {"num_proc_per_node": per_node}}}
    return {**program, **started}
