"""TrainingJob and its runtime → native job document. Pure."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from app.compat.images import ITS_OWN_PROGRAM, NO_REGISTRIES, OF_MPI, native_image
from app.compat.launchers import Launch, parse_launcher
from app.compat.mounts import ContainerMount
from app.compat.naming import Naming
from app.compat.ome import tuning
from app.compat.ome.built_in import data_of, is_for_built_in, training_of
from app.compat.ome.fields import FIELDS, job_warnings
from app.compat.ome.launch_size import launch_size
from app.compat.ome.manifests import TrainerSchema
from app.compat.ome.places import NOT_LOCATED, PlacedModel, mounts_of, place, source_of
from app.compat.ome.pod_files import PodFiles
from app.compat.ome.pod_volumes import pod_volumes_of
from app.compat.ome.resources import resources_of
from app.compat.ome.templates import container_of
from app.domain.errors import BadSpec
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.rules.training import is_reserved
from app.domain.spec.secrets import MASK, is_secret
from app.http.request_body import validated
from app.schemas.jobs import LABEL_KEY
from app.schemas.spec.field_verdicts import refuse, warning
from app.services.access.secret_files import Reference

DIALECT = "ome"
REST = "spec"
NAMES = {
    "name": "metadata.name",
    "training_config.framework.custom_command": "spec.trainer.command",
    "training_config.environment": "spec.trainer.env",
    "training_config.base_model": "spec.modelConfig.inputModel",
    "data_config": "spec.datasets.storageUri",
    "data_config.sources.0.credentials": "spec.datasets.storageKey",
    "data_config.sources.0.storage_options": "spec.datasets.parameters",
    "output_config": "spec.modelConfig.outputModel.storageUri",
    "output_config.credentials": "spec.modelConfig.outputModel.storageKey",
    "output_config.storage_options": "spec.modelConfig.outputModel.parameters",
    "resource_config.node_count": "spec.trainer.numNodes",
    "resource_config": "spec.trainer.resourcesPerNode",
    "resource_config.image": "spec.trainer.image",
    "resource_config.image.reference": "spec.trainer.image",
    "training_config.framework.distributed": "spec.trainer.numProcPerNode",
    "training_config.framework.config": "spec.trainer.command",
    "training_config.framework.custom_code_dir": "spec.trainer.codeUri",
    "training_config.framework.type": "spec.runtimeRef",
    "training_config.training_type": "spec.runtimeRef",
    "training_config.hyperparameters": "spec.trainer.args",
    "scheduling_config.required_capabilities": "spec.trainer.command",  # of mpirun, for example
}
_COMMAND = "spec.trainer.command"
_NO_GPUS = "no GPUs in spec.trainer.resourcesPerNode"
NAMING = Naming(
    NAMES,
    REST,
    words={
        "gpu_count": "nvidia.com/gpu",
        "cpu_cores": "cpu",
        "ram_min_mb": "memory",
        "storage_min_mb": "ephemeral-storage",
        "limits.cpu_cores": "limits.cpu",
        "limits.ram_mb": "limits.memory",
        "mig_profile": "nvidia.com/mig-PROFILE",
        "device_type cpu or auto": _NO_GPUS,
        "device_type cpu": _NO_GPUS,
        "device_type cuda": "nvidia.com/gpu",
    },
)
# Environment of a trainer: locations, and the variables of torchrun.
_ENVIRONMENT = {
    "MODEL_PATH": "$(TRAINYARD_MODEL)",
    "DATASET_PATH": "$(TRAINYARD_DATA_0)",
    "OUTPUT_PATH": "$(TRAINYARD_OUTPUT_DIR)",
    "PET_NNODES": "$(NNODES)",
    "PET_NODE_RANK": "$(NODE_RANK)",
    "PET_NPROC_PER_NODE": "$(LOCAL_WORLD_SIZE)",
    "PET_MASTER_ADDR": "$(MASTER_ADDR)",
    "PET_MASTER_PORT": "$(MASTER_PORT)",
}
_TRAINER = TrainerSchema()


class Native(NamedTuple):
    """A document that is not yet checked by the schema, and a warning for each field without effect."""

    document: dict[str, Any]
    warnings: list[str]
    secrets: dict[str, Reference]  # by environment variable


def to_native(  # noqa: PLR0913  what an object refers to is found by its caller
    name: str,
    spec: Mapping[str, Any],
    runtime: Mapping[str, Any],
    labels: Mapping[str, str],
    *,
    model: PlacedModel = NOT_LOCATED,
    metadata: Mapping[str, Any] = MappingProxyType({}),
    uses_images: bool = False,
    read_files: Callable[[Sequence[PodFiles]], Sequence[ContainerMount]] = lambda _: (),
) -> Native:
    """``model``: that of inputModel; ``read_files`` reads secrets of the job's project. Raises InvalidRequest."""
    tuning.check(spec.get("hyperParameterTuningConfig"))
    template = trainer_of(runtime)
    trainer = {**template, **{key: value for key, value in spec["trainer"].items() if value not in (None, [], {})}}
    refuse(wanted := {"metadata": metadata, "spec": {**spec, "trainer": trainer}}, FIELDS)
    policy, model_config = runtime.get("mlPolicy") or {}, spec.get("modelConfig") or {}
    environment = _environment(template, spec["trainer"])
    launch = Launch([]) if (uses_built_in := is_for_built_in(trainer)) else _launch_of(trainer, environment)
    per_node, nodes = launch_size(trainer, policy, launch)
    image, lost = _image(trainer, policy, launch, runs_command=not uses_built_in, uses_images=uses_images)
    devices = resources_of(trainer, per_node, has_ranks=not uses_built_in)
    volumes = _volumes(runtime, read_files, runs_command=not uses_built_in)
    mounts, unused = _mounts(spec, volumes, model.path, runs_command=not uses_built_in)
    training = training_of(spec, trainer, runtime, per_node) if uses_built_in else {}
    document = {
        "name": name,
        "labels": {key: value for key, value in labels.items() if LABEL_KEY.fullmatch(key)},
        "training_config": {
            **(training or {"training_type": "SFT", "framework": _custom(trainer, policy, launch, per_node)}),
            "base_model": {"model_id": model.location or model_config.get("inputModel") or NO_MODEL},
            "environment": environment,
        },
        "data_config": _data(spec, runtime, runs_command=not uses_built_in),
        "resource_config": {**devices, **mounts, **image, "node_count": nodes},
        **_output(model_config.get("outputModel") or {}),
    }
    secrets = _references(spec["trainer"])
    warnings = job_warnings(wanted, runs_command=not uses_built_in, secrets=secrets, model_path=model.path)
    return Native(document, [*lost, *unused, *(warning(_COMMAND, why) for why in launch.ignored), *warnings], secrets)


def _data(spec: Mapping[str, Any], runtime: Mapping[str, Any], *, runs_command: bool) -> dict[str, Any]:
    sources = source_of(spec.get("datasets") or {}, runs_command=runs_command)
    return {**({} if runs_command else data_of(runtime)), "sources": sources}


def _output(storage: Mapping[str, Any]) -> dict[str, Any]:
    uri = storage.get("storageUri")
    return {"output_config": {"output_path": place(uri)}} if uri else {}


def without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with secret values masked; the native document holds them encrypted."""
    trainer = dict(spec["trainer"])
    if variables := trainer.get("env"):
        trainer["env"] = [
            {**each, "value": MASK} if is_secret(each["name"], each["value"]) else each for each in variables
        ]
    return {**spec, "trainer": trainer}


def trainer_of(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """Image, command, args, env and resources of the container `trainer` of a runtime's template.

    Raises BadShape for an invalid container.
    """
    found = container_of(runtime)
    if not found:
        return {}
    parts = {key: found[key] for key in ("image", "command", "args", "env") if found.get(key)}
    resources = {"resourcesPerNode": found["resources"]} if found.get("resources") else {}
    trainer: dict[str, Any] = validated(_TRAINER, {**parts, **resources})
    return trainer


def _custom(trainer: Mapping[str, Any], policy: Mapping[str, Any], launch: Launch, per_node: str) -> dict[str, Any]:
    """`framework` of a job that runs a command."""
    if not launch.command:
        raise BadSpec("has a launcher without a program to start", field=_COMMAND)
    found: dict[str, Any] = {"type": "CUSTOM", "custom_command": launch.command}
    found["distributed"] = {"config": {"num_proc_per_node": per_node}}
    if launch.by_mpi or "mpi" in policy:
        found["config"] = {"launcher": "mpi"}
    if code := trainer.get("codeUri"):
        found["custom_code_dir"] = place(code)
    return found


def _image(
    trainer: Mapping[str, Any], policy: Mapping[str, Any], launch: Launch, *, runs_command: bool, uses_images: bool
) -> tuple[dict[str, Any], list[str]]:
    """The field ``image`` of ``resource_config``, and a warning of an image without effect. Raises BadSpec."""
    if not trainer.get("image"):
        return {}, []
    if uses_images and runs_command and not (launch.by_mpi or "mpi" in policy):
        return native_image(trainer["image"]), []
    why = NO_REGISTRIES if not uses_images else OF_MPI if runs_command else ITS_OWN_PROGRAM
    return {}, [warning("spec.trainer.image", why)]


def _volumes(
    runtime: Mapping[str, Any],
    read_files: Callable[[Sequence[PodFiles]], Sequence[ContainerMount]],
    *,
    runs_command: bool,
) -> Sequence[ContainerMount]:
    """Volumes of the runtime; secrets are read only for what mounts them. Raises BadSpec."""
    found = pod_volumes_of(runtime.get("template") or {})
    if not runs_command:
        return [*found.mounts, *(ContainerMount(each.mounted, "", "") for each in found.files)]
    return [*found.mounts, *read_files(found.files)]


def _mounts(
    spec: Mapping[str, Any], volumes: Sequence[ContainerMount], model_path: str, *, runs_command: bool
) -> tuple[dict[str, Any], list[str]]:
    """The field ``mounts`` of ``resource_config``, and a warning of volumes without effect. Raises BadSpec."""
    found = mounts_of(spec, model_path, volumes, runs_command=runs_command)
    if volumes and not runs_command:
        return found, [warning("spec.runtimeRef", "the built-in trainer uses no volumes of the runtime")]
    hidden = [each.mounted for each in volumes if {"path": each.mounted, **each.native} not in found["mounts"]]
    why = "has no effect: the job's data, output or model lies there"
    return found, [warning("spec.runtimeRef", f"the runtime's volume at {path} {why}") for path in hidden]


def _launch_of(trainer: Mapping[str, Any], environment: Mapping[str, str]) -> Launch:
    return parse_launcher([*(trainer.get("command") or []), *(trainer.get("args") or [])], _COMMAND, environment)


def _environment(template: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, str]:
    """The job's variables override the runtime's."""
    given = [*(template.get("env") or []), *(trainer.get("env") or [])]
    named = {each["name"]: each.get("value", "") for each in given if isinstance(each, Mapping) and "name" in each}
    return {name: value for name, value in {**_ENVIRONMENT, **named}.items() if not is_reserved(name)}


def _references(trainer: Mapping[str, Any]) -> dict[str, Reference]:
    """The job's variables with secretKeyRef. Runtimes have none, as other projects may use them."""
    found = {}
    for number, each in enumerate(trainer.get("env") or []):
        wanted = (each.get("valueFrom") or {}).get("secretKeyRef") or {}
        name, key = (wanted.get(part) for part in ("name", "key")) if isinstance(wanted, Mapping) else (None, None)
        if isinstance(name, str) and isinstance(key, str) and not is_reserved(each["name"]):
            found[each["name"]] = Reference(name, key, f"spec.trainer.env.{number}.valueFrom.secretKeyRef")
    return found
