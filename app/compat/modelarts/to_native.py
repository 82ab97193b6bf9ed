"""A training job of ModelArts → a job document of the native API. Pure."""

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.modelarts.flavors import flavor
from app.compat.mounts import Mount, mount_of_data, placed
from app.domain.errors import BadSpec
from app.domain.locations import NO_MODEL
from app.domain.resources import NodeCapacity
from app.domain.training_rules import is_reserved
from app.schemas.training_config import TRAINING_TYPES

DIALECT = "modelarts"
CUSTOM = "CUSTOM"  # the framework of jobs that bring their code
REST = "algorithm"
RETRY_NUM, UNCONDITIONAL, HANG = (
    f"fault-tolerance/{name}" for name in ("job-retry-num", "job-unconditional-retry", "hang-retry")
)
TENSORBOARD = "tensorboard/enable"
CONSECUTIVE = 3  # unconditional restarts, unless a number of retries is named
PRIORITIES = {1: 3, 2: 5, 3: 8}
METHODS = {each.lower().replace("_", "-"): each for each in TRAINING_TYPES}
NAMES = {
    "name": "metadata.name", "labels": "metadata.annotations",
    "training_config.framework.custom_code_dir": "algorithm.code_dir",
    "training_config.framework.custom_script_path": "algorithm.boot_file",
    "training_config.framework.custom_command": "algorithm.command",
    "training_config.framework.custom_arguments": "algorithm.parameters",
    "training_config.hyperparameters": "algorithm.parameters",
    "training_config.base_model": "algorithm.parameters.base_model",
    "training_config.environment": "algorithm.environments",
    "training_config.max_retries": f"metadata.annotations.{RETRY_NUM}",
    "data_config": "algorithm.inputs", "output_config": "algorithm.outputs",
    "resource_config.node_count": "spec.resource.node_count", "resource_config.node_affinity": "spec.resource.pool_id",
    "resource_config": "spec.resource.flavor_id", "scheduling_config.max_runtime_seconds": "spec.auto_stop",
    "scheduling_config": "spec.schedule_policy",
}  # fmt: skip
_REFUSED = {
    "subscription_id": "there is no gallery; name code_dir and boot_file, or an id",
    "autosearch_config_path": "searching for hyperparameters is not supported",
    "autosearch_framework_path": "searching for hyperparameters is not supported",
    "policies": "searching for hyperparameters is not supported",
}
_UNHEEDED = ("working_dir", "summary", "engine")
# What jobs of ModelArts find in their environment.
_ENVIRONMENT = {
    "MA_JOB_DIR": "$(TRAINYARD_RUN_DIR)/code", "MA_NUM_HOSTS": "$(NNODES)", "VC_TASK_INDEX": "$(NODE_RANK)",
    "VC_WORKER_NUM": "$(NNODES)",
}  # fmt: skip
_OUTPUT = "$(TRAINYARD_OUTPUT_DIR)"


class Native(NamedTuple):
    """A document that no schema has checked yet, what it has no place for, and the fields that nothing comes of."""

    document: dict[str, Any]
    foreign: dict[str, Any]
    unheeded: list[str]


class Channels(NamedTuple):
    """A job's inputs and outputs: its data, where its results go, and what its script is told of both."""

    sources: list[dict[str, Any]]
    output_path: str | None
    mounts: list[Mount]
    arguments: list[str]
    variables: dict[str, str]


def to_native(job: Mapping[str, Any], capacities: Sequence[NodeCapacity]) -> Native:
    """`capacities`: of the nodes that flavors are of. Raises BadSpec."""
    algorithm, spec, metadata = job["algorithm"], job.get("spec") or {}, job["metadata"]
    if job.get("tasks"):
        raise BadSpec("all tasks of a job are alike here; describe them by algorithm and spec", field="tasks")
    for field, why in _REFUSED.items():
        if algorithm.get(field):
            raise BadSpec(f"is refused: {why}", field=f"algorithm.{field}")
    channels = channels_of(algorithm)
    training = _built_in(algorithm) if algorithm.get("id") else _custom(algorithm, channels)
    annotations = metadata.get("annotations") or {}
    training["max_retries"] = _retries(annotations)
    if annotations.get(UNCONDITIONAL) == "true":
        training["framework"]["custom_retry_on_error"] = training["framework"]["type"] == CUSTOM
    resource, policy = spec.get("resource") or {}, spec.get("schedule_policy") or {}
    devices = flavor(resource.get("flavor_id"), capacities)
    if training["framework"]["type"] == CUSTOM and devices["gpu_count"] > 1:
        # A task runs its script once, however many devices it has.
        training["framework"]["distributed"] = {"config": {"num_proc_per_node": "1"}}
    scheduling = {"priority": PRIORITIES[policy.get("priority", 1)], "preemptible": bool(policy.get("preemptible"))}
    if stop := spec.get("auto_stop"):
        scheduling["max_runtime_seconds"] = stop["duration"] * 3600
    pool = [resource["pool_id"]] if resource.get("pool_id") else []
    document = {
        "name": metadata["name"],
        "training_config": training,
        "data_config": {"sources": channels.sources},
        "resource_config": {
            **devices,
            "node_count": resource.get("node_count", 1),
            **({"node_affinity": pool} if pool else {}),
        },
        "scheduling_config": scheduling,
        **({"output_config": {"output_path": channels.output_path}} if channels.output_path else {}),
    }
    return Native(document, {DIALECT: _kept(job)}, _unheeded(job))


def channels_of(algorithm: Mapping[str, Any]) -> Channels:
    """Raises BadSpec for an input without a place, and for outputs that have no directory in common."""
    found = Channels([], None, [], [], {})
    for number, each in enumerate(algorithm.get("inputs") or []):
        remote = each["remote"]
        if "obs" not in remote:
            raise BadSpec("there are no data sets here; name its place as obs_url", field=f"algorithm.inputs.{number}")
        location = obs_uri(remote["obs"]["obs_url"])
        found.sources.append({"path": location})
        mount = mount_of_data(each.get("local_dir") or "", location, number)
        _tell(found, each, mount.reference)
        if mount.mounted:
            found.mounts.append(mount)
    outputs = algorithm.get("outputs") or []
    place, folders = _common(outputs)
    for each, folder in zip(outputs, folders, strict=True):
        reference = f"{_OUTPUT}/{folder}".rstrip("/")
        _tell(found, each, reference)
        if each.get("local_dir"):
            found.mounts.append(Mount(each["local_dir"].rstrip("/"), "", reference))
    return found._replace(output_path=place)


def obs_uri(place: str) -> str:
    """`/bucket/directory/` is the same as `obs://bucket/directory/`."""
    return place if "://" in place else f"obs://{place.lstrip('/')}"


def _tell(channels: Channels, channel: Mapping[str, Any], reference: str) -> None:
    if channel.get("access_method") == "env":
        channels.variables[channel["name"]] = reference
    else:
        channels.arguments.append(f"--{channel['name']}={reference}")


def _common(outputs: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[str]]:
    """The one place that results are copied to, and the folder of each output in it."""
    if not outputs:
        return None, []
    for number, each in enumerate(outputs):
        if "obs" not in each["remote"]:
            raise BadSpec("name its place as obs_url", field=f"algorithm.outputs.{number}")
    places = [obs_uri(each["remote"]["obs"]["obs_url"]).rstrip("/") for each in outputs]
    scheme, _, _ = places[0].partition("://")
    paths = [place.partition("://")[2] for place in places]
    common = paths[0] if len(paths) == 1 else posixpath.commonpath(paths)
    if "/" not in common or any(not place.startswith(f"{scheme}://") for place in places):
        raise BadSpec("several outputs must lie in one directory of one bucket", field="algorithm.outputs")
    return f"{scheme}://{common}", [path.removeprefix(common).strip("/") for path in paths]


def _custom(algorithm: Mapping[str, Any], channels: Channels) -> dict[str, Any]:
    """`training_config` of a job that brings its code. Raises BadSpec."""
    mounts = [*channels.mounts]
    if local := algorithm.get("local_code_dir"):
        mounts.append(Mount(local.rstrip("/"), "", _ENVIRONMENT["MA_JOB_DIR"]))
    given = [(each["name"], placed(each["value"], mounts)) for each in algorithm.get("parameters") or []]
    named = [name for name, _ in given]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise BadSpec(f"{twice} is named twice", field="algorithm.parameters")
    arguments = [f"--{name}={value}" for name, value in given] + channels.arguments
    framework: dict[str, Any] = {"type": CUSTOM}
    if code := algorithm.get("code_dir"):
        framework["custom_code_dir"] = _place(code)
    if command := algorithm.get("command"):
        words = " ".join([placed(command, mounts), *map(shlex.quote, arguments)])
        framework["custom_command"] = ["bash", "-c", words]
    else:
        framework |= _script(algorithm) | ({"custom_arguments": arguments} if arguments else {})
    variables = {name: placed(value, mounts) for name, value in (algorithm.get("environments") or {}).items()}
    environment = {**_ENVIRONMENT, **channels.variables, **variables}
    return {
        "training_type": "SFT",
        "base_model": {"model_id": NO_MODEL},
        "framework": framework,
        "environment": {name: value for name, value in environment.items() if not is_reserved(name)},
    }


def _script(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    code, script = algorithm.get("code_dir"), algorithm.get("boot_file")
    if not code:
        raise BadSpec(
            "is needed, with boot_file, where neither id nor command says what runs", field="algorithm.code_dir"
        )
    if not script:
        raise BadSpec("is needed: the script in code_dir that is to run", field="algorithm.boot_file")
    return {"custom_script_path": _place(script)}


def _place(path: str) -> str:
    """`file://` and URIs are what they are; else a path is one of OBS."""
    return path.removeprefix("file://") if path.startswith("file://") else obs_uri(path)


def _built_in(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """`training_config` of one of our methods. Raises BadSpec."""
    method = METHODS.get(algorithm["id"].lower())
    if method is None:
        raise BadSpec(f"algorithm not found; there are {', '.join(METHODS)}", field="algorithm.id")
    values = {each["name"]: each["value"] for each in algorithm.get("parameters") or []}
    model = values.pop("base_model", "")
    if not model:
        raise BadSpec("the parameter base_model is needed: what is trained", field="algorithm.parameters.base_model")
    environment = algorithm.get("environments") or {}
    return {
        "training_type": method,
        "base_model": {"model_id": model},
        "framework": {"type": values.pop("framework", "HF_TRAINER")},
        "hyperparameters": values,
        "environment": {name: value for name, value in environment.items() if not is_reserved(name)},
    }


def wants_tensorboard(metadata: Mapping[str, Any]) -> bool:
    return (metadata.get("annotations") or {}).get(TENSORBOARD) == "true"


def _retries(annotations: Mapping[str, str]) -> int:
    """Raises BadSpec."""
    said = annotations.get(RETRY_NUM)
    if said is None:
        return CONSECUTIVE if annotations.get(UNCONDITIONAL) == "true" else 0
    if not said.isdecimal() or not 1 <= int(said) <= 100:
        raise BadSpec("must be a number from 1 to 100", field=f"metadata.annotations.{RETRY_NUM}")
    return int(said)


def _unheeded(job: Mapping[str, Any]) -> list[str]:
    algorithm, spec = job["algorithm"], job.get("spec") or {}
    found = [f"algorithm.{field}" for field in _UNHEEDED if algorithm.get(field)]
    found += [f"algorithm.environments.{name}" for name in algorithm.get("environments") or {} if is_reserved(name)]
    found += [f"spec.{field}" for field in ("volumes", "log_export_path", "notification") if spec.get(field)]
    if (spec.get("schedule_policy") or {}).get("required_affinity"):
        found.append("spec.schedule_policy.required_affinity")
    heeded = (RETRY_NUM, UNCONDITIONAL, HANG, TENSORBOARD)
    annotations = job["metadata"].get("annotations") or {}
    found += [f"metadata.annotations.{name}" for name in annotations if name not in heeded]
    return sorted(found + (["endpoints"] if job.get("endpoints") else []))


def _kept(job: Mapping[str, Any]) -> dict[str, Any]:
    """As it is told again; values of variables are told from the native document, where secrets are masked."""
    algorithm = {name: value for name, value in job["algorithm"].items() if name != "environments"}
    metadata = {
        "description": job["metadata"].get("description", ""),
        "workspace_id": job["metadata"].get("workspace_id", "0"),
        "annotations": job["metadata"].get("annotations") or {},
    }
    kept = {"metadata": metadata, "algorithm": algorithm, "spec": job.get("spec") or {}}
    kept["variables"] = sorted(job["algorithm"].get("environments") or {})
    return kept
