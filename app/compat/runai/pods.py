"""What the pods of a Run:ai workload run, and on which devices: equal pods are nodes of a native job, others its roles.

Pods of a workload whose master differs are the roles ``master`` and ``worker``, with one world of all of their ranks.
Completions that run at a time are the instances of the role ``copy``, each with devices and a world of its own. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.compat.mounts import map_paths
from app.compat.runai.programs import MASTERS, REST, CommandContext, chosen_by_rank, program_of
from app.compat.runai.resources import SHARES, resources_of
from app.compat.runai.variables import changed_by, common_environment, environment_of
from app.domain.errors import BadSpec
from app.domain.spec.roles import INSTANCE, JOB, TASK
from app.domain.spec.rules.roles import MOST_INSTANCES
from app.schemas.spec.field_verdicts import warning

MASTER, WORKER, COPY = "master", "worker", "copy"  # roles
KEPT = "None"  # of cleanPodPolicy: pods run on when the master has ended
_PROCESSES = {"num_proc_per_node": "1"}  # a pod runs its command once for any number of devices
_LIMITS = {"cpu_cores": "cpuCoreLimit", "ram_mb": "cpuMemoryLimit"}
Spec = Mapping[str, Any]
Part = dict[str, Any]


class Pods(NamedTuple):
    """Parts of the native document. Of a job with ``tasks`` these have the programs and the devices."""

    framework: Part
    resources: Part
    environment: dict[str, str]
    tasks: Sequence[Part] = ()


@dataclass(frozen=True)
class _Pod:
    """Of one kind: what ``count`` of them run and take, and ``part`` of the request that says so."""

    count: int
    program: Mapping[str, list[str]]
    resources: Part
    part: str

    def role(self, name: str, **more: Any) -> Part:
        training: Part = dict(self.program)
        if self.resources["gpu_count"] > 1:
            training["config"] = _PROCESSES
        devices = {name: value for name, value in self.resources.items() if name != "limits"}
        return {"role": name, "count": self.count, "resource_config": devices, "training_config": training, **more}


def of_training(spec: Spec, place: CommandContext, warnings: list[str]) -> Pods:
    """Raises BadSpec."""
    devices = resources_of(spec.get("compute") or {}, warnings)
    together = min(spec.get("completions", 1), spec.get("parallelism", 1))
    if together == 1 or _has_share(devices):
        if together > 1:
            why = "completions at one time share the part of a device: ask for whole devices to give each its own"
            warnings.append(warning("spec.parallelism", why))
        return _equal(program_of(spec, place), devices, environment_of(spec))
    if together > MOST_INSTANCES:
        raise BadSpec(
            f"at most {MOST_INSTANCES} completions run at a time; set it to {MOST_INSTANCES}, and the others follow",
            field="spec.parallelism",
        )
    copy = _Pod(together, program_of(spec, place, copies=together), devices, REST)
    return Pods(
        {"custom_retry_on_error": False},  # a copy is started again alone, up to backoffLimit
        _limits([copy], warnings),
        environment_of(spec),
        [copy.role(COPY, world=INSTANCE, restart=TASK)],
    )


def of_distributed(spec: Spec, master: Spec, place: CommandContext, warnings: list[str], own_image: Part) -> Pods:
    """``own_image``: the field ``image`` of the master, where it is another. Raises BadSpec."""
    workers = int(spec.get("numWorkers") or 1)
    worker = _Pod(workers, program_of(spec, place), resources_of(spec.get("compute") or {}, warnings), REST)
    first = _master(spec, master, worker, place._replace(has_image=place.has_image or bool(own_image)), warnings)
    changed = changed_by(master, spec)
    if (first.program, first.resources) == (worker.program, worker.resources) and not changed and not own_image:
        return _gang(spec, worker, worker.program, environment_of(spec), warnings)
    if _has_share(first.resources) or _has_share(worker.resources):
        if first.resources != worker.resources:
            raise BadSpec(
                "must equal spec.compute where a part of a device is requested; leave it out, or ask for whole devices",
                field=f"{MASTERS}.compute",
            )
        if own_image:
            raise BadSpec(
                "must equal spec.image where a part of a device is requested; leave it out, or ask for whole devices",
                field=f"{MASTERS}.image",
            )
        program = chosen_by_rank(first.program, worker.program)
        return _gang(spec, worker, program, common_environment(spec, master), warnings)
    if workers >= MOST_INSTANCES:
        raise BadSpec(
            f"beside a master that differs there are at most {MOST_INSTANCES - 1} workers; ask for fewer, or leave "
            "masterSpec out",
            field="spec.numWorkers",
        )
    leading = first.role(MASTER, world=JOB)
    leading["resource_config"] |= own_image
    own = {name: text for name, text in environment_of(master).items() if name in changed}
    if own:
        leading["training_config"]["environment"] = {name: map_paths(text, place.mounts) for name, text in own.items()}
    # The workload has completed when its master has: what still runs then is stopped, unless it is to be kept.
    others = worker.role(WORKER, world=JOB, **({} if spec.get("cleanPodPolicy") == KEPT else {"sidecar": True}))
    return Pods({}, _limits([first, worker], warnings), environment_of(spec), [leading, others])


def _master(spec: Spec, master: Spec, worker: _Pod, place: CommandContext, warnings: list[str]) -> _Pod:
    """What it leaves out is the workers'."""
    program, resources = worker.program, worker.resources
    if master.get("command") or master.get("args"):
        own = {name: master.get(name) for name in ("command", "args")}
        program = program_of({**spec, **own}, place, MASTERS)
    if master.get("compute"):
        resources = resources_of(master["compute"], warnings, MASTERS)
    return _Pod(1, program, resources, MASTERS)


def _gang(
    spec: Spec, worker: _Pod, program: Mapping[str, list[str]], environment: dict[str, str], warnings: list[str]
) -> Pods:
    if spec.get("cleanPodPolicy") not in (None, KEPT):
        warnings.append(warning("spec.cleanPodPolicy", "pods are equal: the workload ends when all of them have ended"))
    pods = _equal(program, worker.resources, environment)
    return pods._replace(resources={**pods.resources, "node_count": worker.count + 1})


def _equal(program: Mapping[str, list[str]], resources: Part, environment: dict[str, str]) -> Pods:
    once = {"distributed": {"config": _PROCESSES}} if resources["gpu_count"] > 1 else {}
    return Pods({**program, **once}, resources, environment)


def _has_share(resources: Part) -> bool:
    return any(resources.get(name) for name in SHARES)


def _limits(pods: Iterable[_Pod], warnings: list[str]) -> Part:
    """Limits hold for a node, which may have any of the pods: those of all pods together."""
    given = [(pod, pod.resources.get("limits", {})) for pod in pods]
    found: Part = {}
    for native, field in _LIMITS.items():
        having = [pod.part for pod, limits in given if native in limits]
        if len(having) == len(given):
            found[native] = sum(pod.count * limits[native] for pod, limits in given)
            why = "pods on one node share a limit, which is that of all pods together"
        else:
            why = "pods on one node share a limit, and others have none"
        warnings += [warning(f"{part}.compute.{field}", why) for part in having]
    return {"limits": {**found, "required": False}} if found else {}
