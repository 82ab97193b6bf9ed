"""Training → native job document. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.mounts import OPTIONAL, Mount, location_of, map_paths, native_mounts
from app.compat.naming import Naming
from app.compat.quantities import amount_of
from app.compat.runai.fields import without_effect
from app.compat.runai.programs import image_of, in_directory, program_of
from app.compat.runai.reaching import interactive_of
from app.compat.runai.security import user_of
from app.compat.runai.volumes import Volumes, volumes_of
from app.domain.errors import BadSpec
from app.domain.names import EITHER
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import CODE
from app.domain.spec.rules.training import is_reserved
from app.domain.spec.secrets import MASK, is_secret
from app.schemas.spec.field_verdicts import warning
from app.services.access.secret_files import Reference

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
    "resource_config.node_count": "spec.numWorkers",
    "training_config.framework.custom_command": "spec.command",
    "training_config.framework.custom_code_dir": "spec.workingDir",
    "training_config.environment": "spec.environmentVariables",
    "training_config.max_retries": "spec.backoffLimit",
    "training_config.framework.custom_arguments": "spec.args",
    "resource_config": "spec.compute",
    "resource_config.image.reference": "spec.image",
    "resource_config.image.pull_policy": "spec.imagePullPolicy",
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
}
_NO_DEVICES = "spec.compute.gpuDevicesRequest 0"
_WORDS = {
    "node_count": "number of nodes",  # the workers' and the master's
    "device_type cpu or auto": _NO_DEVICES,
    "device_type cpu": _NO_DEVICES,
}
DISTRIBUTED = "distributed"  # the kind of a workload; else it is a training
PYTORCH = "PyTorch"
# gpuRequestType → field with the requested part of a device.
PARTS = {"portion": "gpuPortionRequest", "memory": "gpuMemoryRequest", "migProfile": "migProfile"}


class Native(NamedTuple):
    """A document that is not yet checked by the schema, the data to return later, and warnings of ignored fields."""

    document: dict[str, Any]
    foreign: dict[str, Any]
    warnings: list[str]


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
    volumes = volumes_of(spec.get("storage") or {}, may_read)
    warnings = [*volumes.warnings, *_reserved(spec, REST), *_reserved(master, "masterSpec")]
    image = image_of(spec, warnings, uses_images=uses_images)
    framework = _program(spec, master, volumes, warnings, has_image=bool(image))
    framework |= _directory(spec, framework, volumes, may_read, warnings, has_image=bool(image))
    start = [Mount(spec["workingDir"], "", "", {"type": CODE, **OPTIONAL})] if "custom_code_dir" in framework else []
    resources = _resources(spec.get("compute") or {}, warnings) | user_of(spec.get("security") or {}, warnings)
    resources |= {**_affinity(spec, warnings), **({"node_count": _nodes(spec, master)} if distributed else {})}
    if resources["gpu_count"] > 1:
        # A pod runs its command once for any number of devices.
        framework["distributed"] = {"config": {"num_proc_per_node": "1"}}
    document = {
        "name": name,
        "labels": _labels(spec),
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": NO_MODEL},
            "framework": framework,
            "environment": {key: map_paths(text, volumes.found) for key, text in _environment(spec, master).items()},
            "max_retries": spec.get("backoffLimit", DEFAULT_BACKOFF),
        },
        "data_config": {"sources": [{"path": volume.location} for volume in volumes.found]},
        "resource_config": {**resources, **image, **native_mounts([*volumes.mounts, *start])},
        "scheduling_config": _scheduling(spec),
        **interactive_of(spec, master, warnings, knows_groups=knows_groups),
    }
    foreign = {DIALECT: _stored(training, distributed=distributed)}
    return Native(document, foreign, [*without_effect(training), *warnings])


def _program(
    spec: Mapping[str, Any], master: Mapping[str, Any], volumes: Volumes, warnings: list[str], *, has_image: bool
) -> dict[str, Any]:
    """`framework` of the native document. Raises BadSpec."""
    program = program_of(spec, master, has_image=has_image)
    if spec.get("stdin") and "custom_command" not in program:
        warnings.append(warning("spec.stdin", "without a command the image decides; set command"))
    return {
        "type": "CUSTOM",
        "custom_retry_on_error": True,  # as Kubernetes counts failures
        **{field: [map_paths(word, volumes.found) for word in words] for field, words in program.items()},
    }


def _labels(spec: Mapping[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in spec.get("labels") or [] if not each["exclude"]}


def _stored(training: Mapping[str, Any], *, distributed: bool) -> dict[str, Any]:
    stored = {
        "requested_name": training["name"],
        "cluster_id": training["clusterId"],
        "spec": _without_secrets(training.get("spec") or {}),
    }
    if isinstance(training["projectId"], int):
        stored["numbered"] = True
    if distributed:
        stored["kind"] = DISTRIBUTED
        if master := training.get("masterSpec"):
            stored["master_spec"] = _without_secrets(master)
    return stored


def _directory(
    spec: Mapping[str, Any],
    framework: Mapping[str, Any],
    volumes: Volumes,
    may_read: Callable[[str], bool],
    warnings: list[str],
    *,
    has_image: bool,
) -> dict[str, Any]:
    """The working directory, if it exists on the nodes or may be in the image."""
    directory = spec.get("workingDir")
    if not directory:
        return {}
    found = location_of(volumes.found, directory) or (directory if may_read(directory) else None)
    if found is not None:
        return {"custom_code_dir": found}
    if has_image:
        return in_directory(directory, framework, warnings)
    warnings.append(warning("spec.workingDir", "is neither readable for jobs nor in a volume"))
    return {}


def _nodes(spec: Mapping[str, Any], master: Mapping[str, Any]) -> int:
    """The number of nodes with the master. Raises BadSpec for unsupported frameworks and different nodes."""
    framework = spec.get("distributedFramework") or PYTORCH
    if framework != PYTORCH:
        raise BadSpec(f"only {PYTORCH} is supported; ranks connect to MASTER_ADDR", field="spec.distributedFramework")
    if master.get("compute") and master["compute"] != spec.get("compute"):
        raise BadSpec(
            "must equal spec.compute: all nodes have the same resources; leave it out", field="masterSpec.compute"
        )
    return int(spec.get("numWorkers") or 1) + 1


def _environment(spec: Mapping[str, Any], master: Mapping[str, Any]) -> dict[str, str]:
    """The environment of all ranks. Raises BadSpec where the master's differs."""
    common = environment_of(spec)
    for name, value in environment_of(master).items():
        if common.setdefault(name, value) != value:
            raise BadSpec(f"{name} must be the same for all ranks", field="masterSpec.environmentVariables")
    return common


def naming_of(spec: Mapping[str, Any]) -> Naming:
    """The names for a training: node labels come from nodeType or from nodePools."""
    return Naming({**NAMES, _LABELS: "spec.nodeType" if spec.get("nodeType") else NAMES[_LABELS]}, REST, _WORDS)


def _affinity(spec: Mapping[str, Any], warnings: list[str]) -> dict[str, list[str]]:
    pools = spec.get("nodePools") or []
    if len(pools) > 1:
        warnings.append(warning("spec.nodePools", "the order of the pools has no effect"))
    labels = [spec["nodeType"]] if spec.get("nodeType") else []
    if pools and ALL_NODES not in pools:
        labels.append(EITHER.join(pools))
    return {"required_node_labels": labels} if labels else {}


def environment_of(spec: Mapping[str, Any]) -> dict[str, str]:
    given = spec.get("environmentVariables") or []
    return {
        each["name"]: each["value"]
        for each in given
        if "value" in each and not each["exclude"] and not is_reserved(each["name"])
    }


def megabytes(quantity: str) -> int:
    """Rounded up to whole MiB. Raises BadSpec."""
    try:
        return math.ceil(amount_of(quantity) / 2**20)
    except ValueError as error:
        raise BadSpec(str(error), field="spec.compute") from error


def _resources(compute: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Of the native document. Raises BadSpec."""
    devices, kind = compute.get("gpuDevicesRequest"), compute.get("gpuRequestType")
    found: dict[str, Any] = {"gpu_count": max(1, devices or 0)}
    if not devices:
        found["device_type"] = "cpu"
    part = _part(kind, compute) if devices else {}
    if part and devices and devices > 1:
        raise BadSpec("a part of a device needs gpuDevicesRequest 1", field="spec.compute.gpuRequestType")
    for of_kind, field in PARTS.items():
        if compute.get(field) and not devices:
            warnings.append(warning(f"spec.compute.{field}", "has no effect without gpuDevicesRequest"))
        elif compute.get(field) and kind != of_kind:
            warnings.append(warning(f"spec.compute.{field}", f"has no effect unless gpuRequestType is {of_kind}"))
    if cores := compute.get("cpuCoreRequest"):
        found["cpu_cores"] = math.ceil(cores)
        if cores != found["cpu_cores"]:
            warnings.append(warning("spec.compute.cpuCoreRequest", f"{cores:g} is rounded up to whole cores"))
    if compute.get("cpuMemoryRequest"):
        found["ram_min_mb"] = megabytes(compute["cpuMemoryRequest"])
    if limits := limits_of(compute.get("cpuCoreLimit"), compute.get("cpuMemoryLimit")):
        found["limits"] = limits
    return found | part


def limits_of(cores: float | None, memory: str | None) -> dict[str, Any]:
    """The section ``limits`` of a native document. Raises BadSpec."""
    found: dict[str, Any] = {"cpu_cores": cores} if cores else {}
    if memory:
        found["ram_mb"] = megabytes(memory)
    return {**found, "required": False} if found else {}


def _part(kind: str | None, compute: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "portion" and (portion := compute.get("gpuPortionRequest", 1)) < 1:
        return {"gpu_fraction": portion}
    if kind == "memory" and compute.get("gpuMemoryRequest"):
        return {"gpu_memory_request_mb": megabytes(compute["gpuMemoryRequest"])}
    if kind == "migProfile" and compute.get("migProfile"):
        return {"mig_profile": compute["migProfile"]}
    return {}


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


def _reserved(spec: Mapping[str, Any], part: str) -> list[str]:
    given: Sequence[Mapping[str, Any]] = spec.get("environmentVariables") or []
    return [
        warning(f"{part}.environmentVariables.{each['name']}", "the platform sets this variable")
        for each in given
        if not each["exclude"] and is_reserved(each["name"])
    ]


def secrets_of(training: Mapping[str, Any]) -> dict[str, Reference]:
    """Environment variable → the secret that it refers to."""
    return {
        each["name"]: Reference(**each["secret"], field=f"{part}.environmentVariables.{number}.secret")
        for part in ("masterSpec", "spec")
        for number, each in enumerate((training.get(part) or {}).get("environmentVariables") or [])
        if each.get("secret") and not each["exclude"] and not is_reserved(each["name"])
    }


def _without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with secret values masked; the native document holds them encrypted."""
    shown = dict(spec)
    if "environmentVariables" in spec:
        shown["environmentVariables"] = [
            {**each, "value": MASK} if is_secret(each["name"], each.get("value", "")) and "value" in each else each
            for each in spec["environmentVariables"]
        ]
    return shown
