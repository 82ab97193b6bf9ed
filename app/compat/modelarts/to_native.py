"""ModelArts' training job → native job document. Pure."""

import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.images import ITS_OWN_PROGRAM, NO_REGISTRIES, native_image
from app.compat.modelarts.fields import (
    FIELDS,
    HANG,
    JUPYTER_LAB,
    RETRY_NUM,
    UNCONDITIONAL,
    check_annotations,
    wants_notebook,
    warnings_of_values,
)
from app.compat.modelarts.flavors import flavor
from app.compat.mounts import OPTIONAL, Mount, map_paths, mount_of_data, native_mounts
from app.compat.naming import Naming
from app.domain.errors import BadSpec
from app.domain.scheduling.resources import NodeCapacity
from app.domain.spec.frameworks.custom import below
from app.domain.spec.locations.code import is_bundle
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import CODE, OUTPUT
from app.domain.spec.rules.training import is_reserved
from app.schemas.spec.field_verdicts import refuse, warning, warnings_of
from app.schemas.spec.training_config import TRAINING_TYPES

DIALECT = "modelarts"
CUSTOM = "CUSTOM"  # the framework of jobs with their own code
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
    "training_config.environment": "algorithm.environments",
    "training_config.packages": "algorithm.code_dir",
    "training_config.max_retries": f"metadata.annotations.{RETRY_NUM}",
    "data_config": "algorithm.inputs",
    "output_config": "algorithm.outputs",
    "resource_config.node_count": "spec.resource.node_count",
    "resource_config.required_node_labels": "spec.resource.pool_id",
    "resource_config": "spec.resource.flavor_id",
    "resource_config.image": "algorithm.engine.image_url",
    "resource_config.image.reference": "algorithm.engine.image_url",
    "scheduling_config.max_runtime_seconds": "spec.auto_stop",
    "scheduling_config": "spec.schedule_policy",
    "interactive_config.notebook": f"metadata.annotations.{JUPYTER_LAB}",
    "training_config.framework.type": "algorithm.parameters.framework",
    "training_config.training_type": "algorithm.id",
}
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
# Environment variables of ModelArts.
_ENVIRONMENT = {
    "MA_JOB_DIR": "$(TRAINYARD_RUN_DIR)/code",
    "MA_NUM_HOSTS": "$(NNODES)",
    "VC_TASK_INDEX": "$(NODE_RANK)",
    "VC_WORKER_NUM": "$(NNODES)",
}
_CODE, _OUTPUT = _ENVIRONMENT["MA_JOB_DIR"], "$(TRAINYARD_OUTPUT_DIR)"
_HOME = "/home/"
_USUAL_CODE = "/home/ma-user/modelarts/user-job-dir"  # parent of the code unless local_code_dir is set


class Native(NamedTuple):
    """A document that is not yet checked by the schema, and the data to return later.

    ``warnings``: `field: reason` of each field that has no effect.
    """

    document: dict[str, Any]
    foreign: dict[str, Any]
    warnings: list[str]


class Channels(NamedTuple):
    """Inputs and outputs of a job: data sources, destination, and arguments and variables with their paths."""

    sources: list[dict[str, Any]]
    output_path: str | None
    mounts: list[Mount]
    arguments: list[str]
    variables: dict[str, str]


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
    annotations = metadata.get("annotations") or {}
    check_annotations(annotations)
    channels = channels_of(algorithm)
    warnings = [*warnings_of(job, FIELDS), *warnings_of_values(job)]
    warnings += _mount_volumes(spec, channels, None if algorithm.get("id") else may_read)
    mounts = [] if algorithm.get("id") else [*channels.mounts, *_code_mounts(algorithm)]
    training = _built_in(algorithm) if algorithm.get("id") else _custom(algorithm, channels, mounts, warnings)
    training["max_retries"] = _retries(annotations)
    if annotations.get(UNCONDITIONAL) == "true":
        training["framework"]["custom_retry_on_error"] = training["framework"]["type"] == CUSTOM
    training |= {"retry_on_hang": False} if annotations.get(HANG) == "false" else {}
    resource, policy = spec.get("resource") or {}, spec.get("schedule_policy") or {}
    _check_affinity(policy, nodes=resource.get("node_count", 1))
    devices = flavor(resource.get("flavor_id"), capacities)
    if training["framework"]["type"] == CUSTOM and devices["gpu_count"] > 1:
        # A task runs its script once for any number of devices.
        training["framework"]["distributed"] = {"config": {"num_proc_per_node": "1"}}
    resources = {**devices, **_nodes(resource), **native_mounts(mounts)}
    document = {
        "name": metadata["name"],
        "training_config": {**training, **_packages(algorithm, uses_images=uses_images)},
        "data_config": {"sources": channels.sources},
        "resource_config": {**resources, **_image(algorithm, warnings, uses_images=uses_images)},
        "scheduling_config": _scheduling(policy, spec.get("auto_stop")),
        **({"output_config": {"output_path": channels.output_path}} if channels.output_path else {}),
        **({"interactive_config": {"notebook": True}} if wants_notebook(job) else {}),
    }
    return Native(document, {DIALECT: stored(job)}, warnings)


def _scheduling(policy: Mapping[str, Any], stop: Mapping[str, Any] | None) -> dict[str, Any]:
    most = {"max_runtime_seconds": stop["duration"] * 3600} if stop else {}
    return {"priority": PRIORITIES[policy.get("priority", 1)], "preemptible": bool(policy.get("preemptible")), **most}


def _nodes(resource: Mapping[str, Any]) -> dict[str, Any]:
    pool = [resource["pool_id"]] if resource.get("pool_id") else []
    return {"node_count": resource.get("node_count", 1), **({"required_node_labels": pool} if pool else {})}


def _image(algorithm: Mapping[str, Any], warnings: list[str], *, uses_images: bool) -> dict[str, Any]:
    """The field ``image`` of ``resource_config``, if the job has an image that is used here. Raises BadSpec."""
    reference = (algorithm.get("engine") or {}).get("image_url")
    if not reference:
        return {}
    if uses_images and not algorithm.get("id"):
        return native_image(reference)
    why = ITS_OWN_PROGRAM if uses_images else NO_REGISTRIES
    warnings.append(warning("algorithm.engine.image_url", why))
    return {}


def _packages(algorithm: Mapping[str, Any], *, uses_images: bool) -> dict[str, Any]:
    """The field ``packages`` of ``training_config``: what ModelArts installs before a script starts, if it is there.

    An image has its packages itself.
    """
    in_image = uses_images and (algorithm.get("engine") or {}).get("image_url")
    if algorithm.get("id") or not algorithm.get("code_dir") or in_image:
        return {}
    return {"packages": {"requirements_file": "pip-requirements.txt", "requirements_file_required": False}}


def channels_of(algorithm: Mapping[str, Any]) -> Channels:
    """Raises BadSpec for an input without a URL, and for outputs without a common directory."""
    found = Channels([], None, [], [], {})
    for number, each in enumerate(algorithm.get("inputs") or []):
        remote = each["remote"]
        if "obs" not in remote:
            raise BadSpec("set remote.obs.obs_url", field=f"algorithm.inputs.{number}")
        location = obs_uri(remote["obs"]["obs_url"])
        found.sources.append({"path": location})
        mount = mount_of_data(each.get("local_dir") or "", location, number)
        _pass_path(found, each, mount.reference)
        if mount.mounted:
            found.mounts.append(mount)
    outputs = algorithm.get("outputs") or []
    place, folders = _common(outputs)
    for each, folder in zip(outputs, folders, strict=True):
        reference = f"{_OUTPUT}/{folder}".rstrip("/")
        _pass_path(found, each, reference)
        if local := (each.get("local_dir") or "").rstrip("/"):
            native = {"type": OUTPUT, **({"sub_path": folder} if folder else {}), **OPTIONAL}
            found.mounts.append(Mount(local, "", reference, native))
    return found._replace(output_path=place)


def _mount_volumes(
    spec: Mapping[str, Any], channels: Channels, may_read: Callable[[str], bool] | None
) -> Iterator[str]:
    """Adds NFS directories that the operator has mounted to the data of the job; yields a warning for each other one.

    ``may_read`` is None for a built-in method.
    """
    for number, volume in enumerate(spec.get("volumes") or []):
        nfs, field = volume.get("nfs"), f"spec.volumes.{number}.nfs"
        if not nfs:
            continue
        server, _, path = nfs["nfs_server_path"].partition(":")
        location = f"nfs/{server}/{path.strip('/')}".rstrip("/")
        if may_read is None:
            yield warning(field, "a built-in method reads its inputs alone")
        elif not may_read(location):
            yield warning(field, f"jobs may not read {location}: it must lie below a storage root of the operator")
        else:
            channels.mounts.append(mount_of_data(nfs["local_path"], location, len(channels.sources)))
            channels.sources.append({"path": location})
            if nfs.get("read_only") is False:
                yield warning(f"{field}.read_only", "volumes are read-only: write to an output")


def obs_uri(place: str) -> str:
    """`/bucket/directory/` is the same as `obs://bucket/directory/`."""
    return place if "://" in place else f"obs://{place.lstrip('/')}"


def _pass_path(channels: Channels, channel: Mapping[str, Any], reference: str) -> None:
    if channel.get("access_method") == "env":
        channels.variables[channel["name"]] = reference
    else:
        channels.arguments.append(f"--{channel['name']}={reference}")


def _common(outputs: Sequence[Mapping[str, Any]]) -> tuple[str | None, list[str]]:
    """The common destination of the outputs, and the folder of each output in it."""
    if not outputs:
        return None, []
    for number, each in enumerate(outputs):
        if "obs" not in each["remote"]:
            raise BadSpec("set remote.obs.obs_url", field=f"algorithm.outputs.{number}")
    places = [obs_uri(each["remote"]["obs"]["obs_url"]).rstrip("/") for each in outputs]
    scheme, _, _ = places[0].partition("://")
    paths = [place.partition("://")[2] for place in places]
    common = paths[0] if len(paths) == 1 else posixpath.commonpath(paths)
    if "/" not in common or any(not place.startswith(f"{scheme}://") for place in places):
        raise BadSpec("several outputs must be in one directory of one bucket", field="algorithm.outputs")
    return f"{scheme}://{common}", [path.removeprefix(common).strip("/") for path in paths]


def _custom(
    algorithm: Mapping[str, Any], channels: Channels, mounts: Sequence[Mount], warnings: list[str]
) -> dict[str, Any]:
    """`training_config` of a job with its own code. Raises BadSpec."""
    given = [(each["name"], map_paths(each["value"], mounts)) for each in algorithm.get("parameters") or []]
    named = [name for name, _ in given]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise BadSpec(f"{twice} is set twice", field="algorithm.parameters")
    arguments = [f"--{name}={value}" for name, value in given] + channels.arguments
    framework: dict[str, Any] = {"type": CUSTOM}
    if code := algorithm.get("code_dir"):
        framework["custom_code_dir"] = _place(code)
    start = _start(algorithm, mounts, warnings)
    if command := algorithm.get("command"):
        words = " ".join([map_paths(command, mounts), *map(shlex.quote, arguments)])
        framework["custom_command"] = ["bash", "-c", f"cd {shlex.quote(start)} || exit\n{words}" if start else words]
    else:
        framework |= _script(algorithm, arguments, start)
    variables = {name: map_paths(value, mounts) for name, value in (algorithm.get("environments") or {}).items()}
    environment = {**_ENVIRONMENT, **channels.variables, **variables}
    return {
        "training_type": "SFT",
        "base_model": {"model_id": NO_MODEL},
        "framework": framework,
        "environment": {name: value for name, value in environment.items() if not is_reserved(name)},
    }


def _code_mounts(algorithm: Mapping[str, Any]) -> list[Mount]:
    """The mounts of the code directory. Raises BadSpec."""
    code, local = algorithm.get("code_dir") or "", (algorithm.get("local_code_dir") or "").rstrip("/")
    if local and not posixpath.normpath(local).startswith(_HOME):
        raise BadSpec("must be a directory below /home", field="algorithm.local_code_dir")
    if not code:
        return []
    place = code.removeprefix("file://").rstrip("/")
    paths = [local or f"{_USUAL_CODE}/{posixpath.basename(place)}", *([place] if code.startswith("file://") else [])]
    return [Mount(path, "", _CODE, {"type": CODE, **OPTIONAL}) for path in paths if path]


def _start(algorithm: Mapping[str, Any], mounts: Sequence[Mount], warnings: list[str]) -> str:
    """The directory of `working_dir`; empty for the default. Raises BadSpec."""
    directory = (algorithm.get("working_dir") or "").rstrip("/")
    if not directory:
        return ""
    if not directory.startswith("/"):
        raise BadSpec("must be an absolute path", field="algorithm.working_dir")
    found = map_paths(posixpath.normpath(directory), mounts)
    if found.startswith("/"):
        warnings.append(warning("algorithm.working_dir", "is not in the code, an input or an output of the job"))
        return ""
    return found


def _script(algorithm: Mapping[str, Any], arguments: Sequence[str], start: str) -> dict[str, Any]:
    code, script = algorithm.get("code_dir"), algorithm.get("boot_file")
    if not code:
        raise BadSpec("is required, with boot_file, without id and command", field="algorithm.code_dir")
    if not script:
        raise BadSpec("is required: the script in code_dir", field="algorithm.boot_file")
    if not start:
        return {"custom_script_path": _boot_file(script, code)} | (
            {"custom_arguments": [*arguments]} if arguments else {}
        )
    inner = below(_boot_file(script, code), _place(code))
    if not inner:
        raise BadSpec("must be in code_dir", field="algorithm.boot_file")
    return {"custom_command": ["bash", "-c", 'cd "$0" && exec python "$@"', start, f"{_CODE}/{inner}", *arguments]}


def _boot_file(script: str, code: str) -> str:
    """The script's place, or its path in code that is uploaded or a commit of a repository."""
    return script if is_bundle(code) else _place(script)


def _place(path: str) -> str:
    """A path without a scheme is in OBS; code that is uploaded, or a commit, is named as it is."""
    if is_bundle(path):
        return path
    return path.removeprefix("file://") if path.startswith("file://") else obs_uri(path)


def _built_in(algorithm: Mapping[str, Any]) -> dict[str, Any]:
    """`training_config` of a built-in method. Raises BadSpec."""
    method = METHODS.get(algorithm["id"].lower())
    if method is None:
        raise BadSpec(f"algorithm not found; known: {', '.join(METHODS)}", field="algorithm.id")
    values = {each["name"]: each["value"] for each in algorithm.get("parameters") or []}
    model = values.pop("base_model", "")
    if not model:
        raise BadSpec("the parameter base_model is required", field="algorithm.parameters.base_model")
    environment = algorithm.get("environments") or {}
    return {
        "training_type": method,
        "base_model": {"model_id": model},
        "framework": {"type": values.pop("framework", BUILT_IN)},
        "hyperparameters": values,
        "environment": {name: value for name, value in environment.items() if not is_reserved(name)},
    }


def alias_of(project: str, name: str) -> str:
    return f"{DIALECT}:{project}:{name}"


def _check_affinity(policy: Mapping[str, Any], *, nodes: int) -> None:
    """Raises BadSpec."""
    size = (policy.get("required_affinity") or {}).get("affinity_group_size", 1)
    if size > nodes:
        field = "spec.schedule_policy.required_affinity.affinity_group_size"
        raise BadSpec(f"must be at most spec.resource.node_count, {nodes}", field=field)


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
    return {**found, **({"key_pair_names": keys} if keys else {})}
