"""Training → native job document. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.images import NO_REGISTRIES, OF_MPI
from app.compat.mounts import ContainerMount, location_of, map_paths, native_mounts
from app.compat.naming import Naming
from app.compat.runai.buckets import StorageBucket, keys_without_secret
from app.compat.runai.fields import without_effect
from app.compat.runai.mpi import mpi_distributed, mpi_training, starts_by_mpi
from app.compat.runai.pods import MASTER, WORKER, Pods, of_distributed, of_training
from app.compat.runai.programs import MASTERS, CommandContext, image_of, image_of_master
from app.compat.runai.reaching import interactive_of
from app.compat.runai.repositories import REPOSITORIES, Repository, code_mount, not_cloned, repository_of
from app.compat.runai.security import user_of
from app.compat.runai.variables import reserved, without_secrets
from app.compat.runai.volumes import Volumes, volumes_of
from app.domain.errors import BadSpec
from app.domain.names import EITHER
from app.domain.spec.locations.paths import NO_MODEL
from app.schemas.spec.field_verdicts import warning

DIALECT = "runai"
REST = "spec"
DEFAULT_BACKOFF = 6
ALL_NODES = "default"  # the pool of all nodes, with any labels
# Class → (priority, preemptible); `preemptibility` overrides the latter.
PRIORITIES: dict[str, tuple[int, bool]] = {
    "build": (8, False),
    "interactive-preemptible": (6, True),
    "train": (5, True),
    "very-low": (1, True),
    "low": (2, True),
    "medium-low": (4, True),
    "medium": (5, True),
    "medium-high": (6, True),
    "high": (8, True),
    "very-high": (10, True),
}
_LABELS = "resource_config.required_node_labels"
NAMES = {
    "name": "name",
    "labels": "spec.labels",
    "data_config": "spec.storage",
    "resource_config.mounts": "spec.storage",
    "resource_config.node_count": "spec.numWorkers",
    "training_config.framework.custom_command": "spec.command",
    "training_config.framework.custom_code_dir": "spec.workingDir",
    "training_config.framework.custom_code_credentials": REPOSITORIES,
    "training_config.environment": "spec.environmentVariables",
    "training_config.max_retries": "spec.backoffLimit",
    "training_config.framework.custom_arguments": "spec.args",
    "training_config.framework.config": "spec.command",
    "training_config.framework.distributed.config": "spec.command",
    "scheduling_config.required_capabilities": "spec.command",  # of mpirun
    "resource_config": "spec.compute",
    "resource_config.image.reference": "spec.image",
    "resource_config.image.pull_policy": "spec.imagePullPolicy",
    "resource_config.registry_logins": "spec.imagePullSecrets",
    "resource_config.image.read_only": "spec.security.readOnlyRootFilesystem",
    "resource_config.user.uid": "spec.security.runAsUid",
    "resource_config.user.gid": "spec.security.runAsGid",
    _LABELS: "spec.nodePools",
    "resource_config.gpu_count": "spec.compute.gpuDevicesRequest",
    "resource_config.gpu_fraction": "spec.compute.gpuPortionRequest",
    "resource_config.gpu_memory_request_mb": "spec.compute.gpuMemoryRequest",
    "resource_config.mig_profile": "spec.compute.migProfile",
    "resource_config.cpu_cores": "spec.compute.cpuCoreRequest",
    "resource_config.ram_min_mb": "spec.compute.cpuMemoryRequest",
    "resource_config.limits.cpu_cores": "spec.compute.cpuCoreLimit",
    "resource_config.limits.ram_mb": "spec.compute.cpuMemoryLimit",
    "scheduling_config.priority": "spec.priorityClass",
    "interactive_config.ports": "spec.exposedUrls",
    "interactive_config.readiness_probe": "spec.probes.readiness",
    "interactive_config.terminal": "spec.tty",
}
# Of a role: fields after tasks.NUMBER, and those after the part of the request that its pods are from.
_OF_ROLES = {
    "": "",
    ".training_config.custom_command": ".command",
    ".training_config.custom_arguments": ".args",
    ".training_config.environment": ".environmentVariables",
    ".resource_config.image": ".image",
    ".resource_config.image.pull_policy": ".imagePullPolicy",
    **{f".{native}": name.removeprefix(REST) for native, name in NAMES.items() if name.startswith("spec.compute")},
}
_NO_DEVICES = "spec.compute.gpuDevicesRequest 0"
_WORDS = {
    "node_count": "number of nodes",  # the workers' and the master's
    "device_type cpu or auto": _NO_DEVICES,
    "device_type cpu": _NO_DEVICES,
}
DISTRIBUTED = "distributed"  # the kind of a workload; else it is a training
PYTORCH, MPI = "PyTorch", "MPI"  # distributedFramework


class Native(NamedTuple):
    """A document that is not yet checked by the schema, the data to return later, warnings of ignored fields, and data
    sources whose credentials are to be found.
    """

    document: dict[str, Any]
    foreign: dict[str, Any]
    warnings: list[str]
    buckets: Sequence[StorageBucket] = ()


def to_native(
    training: Mapping[str, Any],
    name: str,
    *,
    may_read: Callable[[str], bool],
    uses_images: bool = False,
    knows_groups: bool = False,
    distributed: bool = False,
) -> Native:
    """``name``: the final one of the workload; ``may_read``: whether jobs may read a directory. Raises BadSpec."""
    spec: Mapping[str, Any] = training.get("spec") or {}
    master: Mapping[str, Any] = (training.get("masterSpec") or {}) if distributed else {}
    repository = repository_of(spec)
    volumes = volumes_of(spec.get("storage") or {}, may_read, name, repository.number if repository else None)
    warnings = [*volumes.warnings, *not_cloned(spec, repository), *keys_without_secret(spec.get("storage") or {})]
    warnings += [*reserved(spec, REST), *reserved(master, MASTERS)]
    has_image = uses_images and bool(spec.get("image"))
    by_mpi = _framework_of(spec) == MPI if distributed else starts_by_mpi(spec, has_image=has_image)
    why_not = NO_REGISTRIES if not uses_images else OF_MPI if by_mpi else ""
    image = image_of(spec, warnings, why_not=why_not)
    own_image = image_of_master(spec, master, warnings, why_not=why_not)
    code, place = _place(spec, volumes, repository, may_read, has_image=bool(image))
    pods = _pods(spec, master, place, warnings, own_image, by_mpi=by_mpi, distributed=distributed)
    warnings += _without_command(spec, pods, place, is_found=code is not None)
    start = [repository.mount if repository else code_mount(spec["workingDir"])] if code else []
    devices = {**pods.resources, **user_of(spec.get("security") or {}, warnings), **_affinity(spec, warnings)}
    document = {
        "name": name,
        "labels": _labels(spec),
        "training_config": _training(spec, pods, place, code),
        "data_config": {"sources": [{"path": volume.location} for volume in volumes.found]},
        "resource_config": {**devices, **image, **native_mounts([*volumes.mounts, *start])},
        **({"tasks": list(pods.tasks)} if pods.tasks else {}),
        "scheduling_config": _scheduling(spec),
        **interactive_of(
            spec, master, warnings, knows_groups=knows_groups, worker=WORKER if pods.tasks and distributed else ""
        ),
    }
    foreign = {DIALECT: _stored(training, distributed=distributed)}
    return Native(document, foreign, [*without_effect(training), *warnings], volumes.buckets)


def _pods(
    spec: Mapping[str, Any],
    master: Mapping[str, Any],
    place: CommandContext,
    warnings: list[str],
    own_image: dict[str, Any],
    *,
    by_mpi: bool,
    distributed: bool,
) -> Pods:
    """Raises BadSpec."""
    if not distributed:
        return mpi_training(spec, place, warnings) if by_mpi else of_training(spec, place, warnings)
    if by_mpi:
        return mpi_distributed(spec, master, place, warnings)
    if spec.get("slotsPerWorker"):
        warnings.append(warning("spec.slotsPerWorker", "slots are those of MPI: the command runs once on each node"))
    return of_distributed(spec, master, place, warnings, own_image)


def _training(spec: Mapping[str, Any], pods: Pods, place: CommandContext, code: str | None) -> dict[str, Any]:
    return {
        "training_type": "SFT",
        "base_model": {"model_id": NO_MODEL},
        "framework": {
            "type": "CUSTOM",
            "custom_retry_on_error": True,  # as Kubernetes counts failures
            **pods.framework,
            **({"custom_code_dir": code} if code else {}),
        },
        "environment": {key: map_paths(text, place.mounts) for key, text in pods.environment.items()},
        "max_retries": spec.get("backoffLimit", DEFAULT_BACKOFF),
    }


def _labels(spec: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in spec.get("labels") or [] if not each["exclude"]}


def _stored(training: Mapping[str, Any], *, distributed: bool) -> dict[str, Any]:
    stored = {
        "requested_name": training["name"],
        "cluster_id": training["clusterId"],
        "spec": without_secrets(training.get("spec") or {}),
    }
    if isinstance(training["projectId"], int):
        stored["numbered"] = True
    if distributed:
        stored["kind"] = DISTRIBUTED
        if master := training.get("masterSpec"):
            stored["master_spec"] = without_secrets(master)
    return stored


def _place(
    spec: Mapping[str, Any],
    volumes: Volumes,
    repository: Repository | None,
    may_read: Callable[[str], bool],
    *,
    has_image: bool,
) -> tuple[str | None, CommandContext]:
    """A repository, or else the working directory, as the job's code, if nodes have it; and where commands run.

    One in a claim that the workload writes to, or in a bucket, is there, and no code.
    """
    if repository is not None:
        mounts = [*volumes.found, repository.mount]
        return repository.location, CommandContext(mounts, repository.directory(spec.get("workingDir")), has_image)
    directory = spec.get("workingDir") or None
    if directory and any(_lies_in(directory, claim) for claim in volumes.claims):
        return None, CommandContext(volumes.found, directory, has_image)
    if directory and any(_lies_in(directory, volumes.found[bucket.source]) for bucket in volumes.buckets):
        return None, CommandContext(volumes.found, map_paths(directory, volumes.found), has_image)
    code = location_of(volumes.found, directory) or (directory if may_read(directory) else None) if directory else None
    return code, CommandContext(volumes.found, directory if has_image and code is None else None, has_image)


def _lies_in(directory: str, mount: ContainerMount) -> bool:
    return f"{directory}/".startswith(f"{mount.mounted}/")


def _without_command(spec: Mapping[str, Any], pods: Pods, place: CommandContext, *, is_found: bool) -> Iterator[str]:
    """Warnings of what needs a command here, or a directory on the nodes."""
    programs = [task["training_config"] for task in pods.tasks] or [pods.framework]
    is_of_image = any("custom_command" not in each for each in programs)
    if spec.get("stdin") and is_of_image:
        yield warning("spec.stdin", "without a command the image decides; set command")
    if place.directory and is_of_image:
        yield warning("spec.workingDir", "without a command the image decides; set command")
    if spec.get("workingDir") and not (is_found or place.has_image or place.directory):
        yield warning("spec.workingDir", "is neither readable for jobs nor in a volume")


def _framework_of(spec: Mapping[str, Any]) -> str:
    """Raises BadSpec for an unsupported one."""
    framework: str = spec.get("distributedFramework") or PYTORCH
    if framework not in (PYTORCH, MPI):
        raise BadSpec(
            f"only {PYTORCH} and {MPI} are supported: ranks connect to MASTER_ADDR, or mpirun starts them",
            field="spec.distributedFramework",
        )
    return framework


def naming_of(spec: Mapping[str, Any], roles: Sequence[str] = ()) -> Naming:
    """The names for a training: node labels come from nodeType or from nodePools, ``roles`` from pods that differ."""
    names = {**NAMES, _LABELS: "spec.nodeType" if spec.get("nodeType") else NAMES[_LABELS]}
    if roles:
        names["tasks"] = "spec.numWorkers" if roles[0] == MASTER else "spec.parallelism"
    for number, role in enumerate(roles):
        names |= {f"tasks.{number}{native}": f"{_part_of(role)}{own}" for native, own in _OF_ROLES.items()}
    if repository_of(spec) is not None:
        names["training_config.framework.custom_code_dir"] = REPOSITORIES
    return Naming(names, REST, _WORDS)


def _part_of(role: str) -> str:
    return MASTERS if role == MASTER else REST


def _affinity(spec: Mapping[str, Any], warnings: list[str]) -> dict[str, list[str]]:
    pools = spec.get("nodePools") or []
    if len(pools) > 1:
        warnings.append(warning("spec.nodePools", "the order of the pools has no effect"))
    labels = [spec["nodeType"]] if spec.get("nodeType") else []
    if pools and ALL_NODES not in pools:
        labels.append(EITHER.join(pools))
    return {"required_node_labels": labels} if labels else {}


def _scheduling(spec: Mapping[str, Any]) -> dict[str, Any]:
    name = spec.get("priorityClass") or "train"
    if name not in PRIORITIES:
        raise BadSpec(f"must be one of {', '.join(PRIORITIES)}", field="spec.priorityClass")
    priority, preemptible = PRIORITIES[name]
    preemptibility = spec.get("preemptibility")
    return {
        "priority": priority,
        "preemptible": preemptible if preemptibility is None else preemptibility == "preemptible",
        "on_preemption": "terminate" if spec.get("terminateAfterPreemption") else "requeue",
        "wait_for_node": True,  # as in Kubernetes, where pods stay Pending without a suitable node
    }
