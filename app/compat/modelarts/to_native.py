"""ModelArts' training job → native job document. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.images import ITS_OWN_PROGRAM, NO_REGISTRIES, OF_MPI, native_image
from app.compat.modelarts.channels import Channels, channels_of, mount_volumes
from app.compat.modelarts.code import CUSTOM, code_mounts, custom
from app.compat.modelarts.fields import (
    FIELDS,
    HANG,
    JUPYTER_LAB,
    RETRY_NUM,
    TEMPLATE,
    UNCONDITIONAL,
    check_annotations,
    wants_notebook,
    warnings_of_values,
)
from app.compat.modelarts.flavors import flavor
from app.compat.modelarts.log_places import FIELD as LOGS
from app.compat.modelarts.log_places import logs_of_all, native_logs, warnings_of_logs
from app.compat.modelarts.mpi import started
from app.compat.modelarts.pairs import pair_of, with_engine
from app.compat.modelarts.tasks import algorithm_of_all, environment_of, have_images, roles_of
from app.compat.modelarts.users import FIELD as RUN_USER
from app.compat.modelarts.users import user_of
from app.compat.mounts import ContainerMount, native_mounts
from app.compat.naming import Naming
from app.domain.errors import BadSpec
from app.domain.scheduling.resources import NodeCapacity
from app.domain.spec.rules.roles import MOST_ROLES
from app.schemas.spec.field_verdicts import refuse, warning, warnings_of
from app.schemas.spec.training_config import TRAINING_TYPES

DIALECT = "modelarts"
BUILT_IN = "HF_TRAINER"  # the framework of built-in methods, unless a parameter names another
REST = "algorithm"
CONSECUTIVE = 3  # restarts if an annotation enables them without a number
PRIORITIES = {1: 3, 2: 5, 3: 8}
METHODS = {each.lower().replace("_", "-"): each for each in TRAINING_TYPES}
NAMES = {
    "name": "metadata.name",
    "labels": "metadata.annotations",
    "training_config.framework.custom_code_dir": "algorithm.code_dir",
    "training_config.framework.custom_script_path": "algorithm.boot_file",
    "training_config.framework.custom_command": "algorithm.command",
    "training_config.framework.custom_arguments": "algorithm.parameters",
    "training_config.hyperparameters": "algorithm.parameters",
    "training_config.base_model": "algorithm.parameters.base_model",
    "training_config.framework.config": "algorithm.command",
    "training_config.framework.distributed.config": "algorithm.command",
    "scheduling_config.required_capabilities": "algorithm.command",  # of mpirun
    "training_config.environment": "algorithm.environments",
    "training_config.packages": "algorithm.code_dir",
    "tasks": "tasks",
    **{f"tasks.{n}.resource_config.image": f"tasks.{n}.algorithm.engine.image_url" for n in range(MOST_ROLES)},
    "training_config.max_retries": f"metadata.annotations.{RETRY_NUM}",
    "data_config": "algorithm.inputs",
    "output_config": "algorithm.outputs",
    "output_config.log_path": f"spec.{LOGS}",
    "resource_config.node_count": "spec.resource.node_count",
    "resource_config.required_node_labels": "spec.resource.pool_id",
    "resource_config": "spec.resource.flavor_id",
    "resource_config.image": "algorithm.engine.image_url",
    "resource_config.image.reference": "algorithm.engine.image_url",
    "resource_config.user": RUN_USER,
    "resource_config.user.uid": RUN_USER,
    "scheduling_config.max_runtime_seconds": "spec.auto_stop",
    "scheduling_config": "spec.schedule_policy",
    "interactive_config.notebook": f"metadata.annotations.{JUPYTER_LAB}",
    "training_config.framework.type": "algorithm.parameters.framework",
    "training_config.training_type": "algorithm.id",
}
# What the roles of a heterogeneous job have, and the job therefore not.
_PROGRAM = ("custom_script_path", "custom_arguments", "custom_command", "distributed")
_OF_ROLES = ("gpu_count", "device_type", "gpu_type", "node_count", "mounts")
_SLOTS = "a flavor of CPU slots (spec.resource.flavor_id)"
NAMING = Naming(
    NAMES,
    REST,
    # A flavor sets them together.
    words={
        "gpu_count": "number of devices",
        "cpu_cores": "number of cores",
        "ram_min_mb": "memory of a node",
        "device_type cpu or auto": _SLOTS,
        "device_type cpu": _SLOTS,
        "device_type cuda": "a flavor of GPUs",
    },
)


class Native(NamedTuple):
    """A document that is not yet checked by the schema, and the data to return later.

    ``warnings``: `field: reason` of each field that has no effect.
    """

    document: dict[str, Any]
    foreign: dict[str, Any]
    warnings: list[str]


def to_native(
    job: Mapping[str, Any],
    capacities: Sequence[NodeCapacity],
    may_read: Callable[[str], bool],
    *,
    uses_images: bool = False,
) -> Native:
    """``capacities``: of the nodes, for flavors; ``may_read``: whether jobs may read a directory. Raises BadSpec."""
    algorithm, spec, metadata = job["algorithm"], job.get("spec") or {}, job["metadata"]
    refuse(job, FIELDS)
    if job.get("tasks"):
        return _heterogeneous(job, capacities, may_read, uses_images=uses_images)
    check_annotations(annotations := metadata.get("annotations") or {})
    channels = channels_of(algorithm)
    warnings = [*warnings_of(job, FIELDS), *warnings_of_values(job), *warnings_of_logs(spec)]
    mounts = _mounts(spec, algorithm, channels, may_read, warnings)
    resource, policy = spec.get("resource") or {}, spec.get("schedule_policy") or {}
    by_mpi = started(algorithm, resource.get("node_count", 1), warnings, uses_images=uses_images)
    training = _built_in(algorithm) if algorithm.get("id") else custom(by_mpi.algorithm, channels, mounts, warnings)
    training |= _restarts(annotations, training["framework"])
    _check_affinity(policy, nodes=resource.get("node_count", 1))
    devices = flavor(resource.get("flavor_id"), capacities)
    training["framework"] |= by_mpi.framework or _once_per_node(training["framework"], devices)
    resources = {**devices, **_nodes(resource), **native_mounts(mounts)}
    no_image = NO_REGISTRIES if not uses_images else OF_MPI if by_mpi.framework else ""
    results = {**({"output_path": channels.output_path} if channels.output_path else {}), **native_logs(spec)}
    document = {
        "name": metadata["name"],
        "training_config": {**training, **_packages(algorithm, uses_images=uses_images)},
        "data_config": {"sources": channels.sources},
        "resource_config": {**resources, **_image(algorithm, warnings, why_not=no_image)},
        "scheduling_config": _scheduling(policy, spec.get("auto_stop")),
        **({"output_config": results} if results else {}),
        **({"interactive_config": {"notebook": True}} if wants_notebook(job) else {}),
    }
    return Native(document, {DIALECT: stored(job)}, warnings)


def _heterogeneous(
    job: Mapping[str, Any], capacities: Sequence[NodeCapacity], may_read: Callable[[str], bool], *, uses_images: bool
) -> Native:
    """A job whose tasks are roles: the usual document of its common code and channels, with the roles' programs."""
    resource = (job.get("spec") or {}).get("resource") or {}
    algorithm, tasks = job["algorithm"], job["tasks"]
    if resource.get("node_count", 1) > 1:
        raise BadSpec("each task has its own, in task_resource", field="spec.resource.node_count")
    warnings: list[str] = []
    if algorithm.get("id"):
        roles, mounts, whole = pair_of(tasks, resource, capacities), list[ContainerMount](), with_engine(algorithm)
    else:
        roles, mounts = roles_of(algorithm, tasks, resource, capacities, warnings, uses_images=uses_images)
        whole = {**algorithm_of_all(algorithm, tasks), "command": ":"}  # the programs are the roles'
    as_one = {name: value for name, value in job.items() if name != "tasks"}
    annotations = (job["metadata"].get("annotations") or {}).items()
    others = {name: value for name, value in annotations if name != TEMPLATE}
    as_one["metadata"] = {**job["metadata"], "annotations": others}
    spec = job.get("spec") or {}
    as_one["spec"] = {**spec, "resource": {**resource, "flavor_id": None}, **logs_of_all(spec, tasks)}
    native = to_native({**as_one, "algorithm": whole}, capacities, may_read, uses_images=uses_images)
    training, resources = native.document["training_config"], native.document["resource_config"]
    if uses_images and not algorithm.get("id") and have_images(algorithm, tasks):
        training = {name: value for name, value in training.items() if name != "packages"}  # the roles' alone
    code = {name: value for name, value in training["framework"].items() if name not in _PROGRAM}
    kept = {name: value for name, value in resources.items() if name not in _OF_ROLES}
    document = {
        **native.document,
        "training_config": {**training, "framework": code},
        "resource_config": {**kept, **user_of(tasks, warnings), **_mounts_of_all(resources, mounts)},
        "tasks": roles,
    }
    own = [*warnings_of(job, FIELDS), *warnings_of_values(job), *warnings_of_logs(spec, tasks)]
    found = [*dict.fromkeys([*own, *native.warnings, *warnings])]
    return Native(document, {DIALECT: stored(job)}, found)


def _mounts_of_all(resources: Mapping[str, Any], mounts: Sequence[ContainerMount]) -> dict[str, Any]:
    """The mounts of the common code, channels and volumes, and of each task."""
    found = [*(resources.get("mounts") or []), *(native_mounts(mounts).get("mounts") or [])]
    by_path = {each["path"]: each for each in found}
    return {"mounts": [*by_path.values()]} if by_path else {}


def _scheduling(policy: Mapping[str, Any], stop: Mapping[str, Any] | None) -> dict[str, Any]:
    most = {"max_runtime_seconds": stop["duration"] * 3600} if stop else {}
    return {"priority": PRIORITIES[policy.get("priority", 1)], "preemptible": bool(policy.get("preemptible")), **most}


def _nodes(resource: Mapping[str, Any]) -> dict[str, Any]:
    pool = [resource["pool_id"]] if resource.get("pool_id") else []
    return {"node_count": resource.get("node_count", 1), **({"required_node_labels": pool} if pool else {})}


def _image(algorithm: Mapping[str, Any], warnings: list[str], *, why_not: str) -> dict[str, Any]:
    """The field ``image`` of ``resource_config``, if the job has one, and no reason not to use it. Raises BadSpec."""
    reference = (algorithm.get("engine") or {}).get("image_url")
    if not reference:
        return {}
    if why_not or algorithm.get("id"):
        warnings.append(warning("algorithm.engine.image_url", why_not or ITS_OWN_PROGRAM))
        return {}
    return native_image(reference)


def _packages(algorithm: Mapping[str, Any], *, uses_images: bool) -> dict[str, Any]:
    """The field ``packages`` of ``training_config``: what ModelArts installs before a script starts, if it is there.

    An image has its packages itself.
    """
    in_image = uses_images and (algorithm.get("engine") or {}).get("image_url")
    if algorithm.get("id") or not algorithm.get("code_dir") or in_image:
        return {}
    return {"packages": {"requirements_file": "pip-requirements.txt", "requirements_file_required": False}}


def _built_in(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """`training_config` of a built-in method. Raises BadSpec."""
    method = METHODS.get(algorithm["id"].lower())
    if method is None:
        raise BadSpec(f"algorithm not found; known: {', '.join(METHODS)}", field="algorithm.id")
    values = {each["name"]: each["value"] for each in algorithm.get("parameters") or []}
    model = values.pop("base_model", "")
    if not model:
        raise BadSpec("the parameter base_model is required", field="algorithm.parameters.base_model")
    return {
        "training_type": method,
        "base_model": {"model_id": model},
        "framework": {"type": values.pop("framework", BUILT_IN)},
        "hyperparameters": values,
        "environment": environment_of(algorithm),
    }


def alias_of(project: str, name: str) -> str:
    return f"{DIALECT}:{project}:{name}"


def _check_affinity(policy: Mapping[str, Any], *, nodes: int) -> None:
    """Raises BadSpec."""
    size = (policy.get("required_affinity") or {}).get("affinity_group_size", 1)
    if size > nodes:
        field = "spec.schedule_policy.required_affinity.affinity_group_size"
        raise BadSpec(f"must be at most spec.resource.node_count, {nodes}", field=field)


def _once_per_node(framework: Mapping[str, Any], devices: Mapping[str, Any]) -> dict[str, Any]:
    """A task runs its script once for any number of devices."""
    is_custom = framework["type"] == CUSTOM and devices["gpu_count"] > 1
    return {"distributed": {"config": {"num_proc_per_node": "1"}}} if is_custom else {}


def _mounts(
    spec: Mapping[str, Any],
    algorithm: Mapping[str, Any],
    channels: Channels,
    may_read: Callable[[str], bool],
    warnings: list[str],
) -> list[ContainerMount]:
    """What lies at paths of containers, and the volumes as data. Raises BadSpec."""
    if algorithm.get("id"):  # a built-in method has no paths of its own
        warnings += mount_volumes(spec, channels, [], None)
        return []
    code = code_mounts(algorithm)
    warnings += mount_volumes(spec, channels, code, may_read)
    return [*channels.mounts, *code]


def _restarts(annotations: Mapping[str, str], framework: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``training_config``. Raises BadSpec."""
    found: dict[str, Any] = {"max_retries": _retries(annotations)}
    if annotations.get(UNCONDITIONAL) == "true":
        found["framework"] = {**framework, "custom_retry_on_error": framework["type"] == CUSTOM}
    if annotations.get(HANG) == "false":
        found["retry_on_hang"] = False
    return found


def _retries(annotations: Mapping[str, str]) -> int:
    """Raises BadSpec."""
    number = annotations.get(RETRY_NUM)
    if number is None:
        return CONSECUTIVE if "true" in (annotations.get(UNCONDITIONAL), annotations.get(HANG)) else 0
    if not number.isdecimal() or not 1 <= int(number) <= 100:
        raise BadSpec("must be a number from 1 to 100", field=f"metadata.annotations.{RETRY_NUM}")
    return int(number)


def stored(job: Mapping[str, Any]) -> dict[str, Any]:
    """The request as it is returned later; values of variables come from the native document, with secrets masked."""
    algorithm = {name: value for name, value in job["algorithm"].items() if name != "environments"}
    metadata = {
        "description": job["metadata"].get("description", ""),
        "workspace_id": job["metadata"].get("workspace_id", "0"),
        "annotations": job["metadata"].get("annotations") or {},
    }
    variables = sorted(job["algorithm"].get("environments") or {})
    found = {"metadata": metadata, "algorithm": algorithm, "spec": job.get("spec") or {}, "variables": variables}
    keys = ((job.get("endpoints") or {}).get("ssh") or {}).get("key_pair_names")
    if keys:
        found["key_pair_names"] = keys
    return found | ({"tasks": [*map(_stored_task, job["tasks"])]} if job.get("tasks") else {})


def _stored_task(task: Mapping[str, Any]) -> dict[str, Any]:
    algorithm = {name: value for name, value in task["algorithm"].items() if name != "environments"}
    variables = sorted(task["algorithm"].get("environments") or {})
    return {**task, "algorithm": algorithm, "variables": variables}
