"""A training job of OME with its runtime → a job document of the native API. Pure."""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from app.compat.ome import tuning
from app.compat.ome.launch_words import Launch, unlaunched
from app.compat.ome.manifests import TrainerSchema
from app.compat.quantities import amount_of
from app.domain.errors import BadSpec, NotSupportedYet
from app.domain.locations import NO_MODEL
from app.domain.masking import MASK, is_secret
from app.domain.training_rules import is_reserved
from app.http.request_body import validated
from app.schemas.jobs import LABEL_KEY
from app.services.secret_files import Reference

DIALECT = "ome"
REST = "spec"
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
NAMES = {
    "name": "metadata.name", "training_config.framework.custom_command": "spec.trainer.command",
    "training_config.environment": "spec.trainer.env", "training_config.base_model": "spec.modelConfig.inputModel",
    "data_config": "spec.datasets.storageUri", "output_config": "spec.modelConfig.outputModel.storageUri",
    "resource_config.node_count": "spec.trainer.numNodes", "resource_config": "spec.trainer.resourcesPerNode",
    "training_config.framework.distributed": "spec.trainer.numProcPerNode",
    "training_config.framework.config": "spec.trainer.command",
}  # fmt: skip
# What a trainer finds in its environment: places, and what torchrun would be told.
_ENVIRONMENT = {
    "MODEL_PATH": "$(TRAINYARD_MODEL)", "DATASET_PATH": "$(TRAINYARD_DATA_0)", "OUTPUT_PATH": "$(TRAINYARD_OUTPUT_DIR)",
    "PET_NNODES": "$(NNODES)", "PET_NODE_RANK": "$(NODE_RANK)", "PET_NPROC_PER_NODE": "$(LOCAL_WORLD_SIZE)",
    "PET_MASTER_ADDR": "$(MASTER_ADDR)", "PET_MASTER_PORT": "$(MASTER_PORT)",
}  # fmt: skip
_TRAINER = TrainerSchema()
_BUCKET_FORM = re.compile(r"oci://n/[^/]+/b/([^/]+)/o/(.+)")


class Native(NamedTuple):
    """A document that no schema has checked yet, and the fields that nothing comes of."""

    document: dict[str, Any]
    unheeded: list[str]
    secrets: dict[str, Reference]  # by the variable that is to hold it


def to_native(name: str, spec: Mapping[str, Any], runtime: Mapping[str, Any], labels: Mapping[str, str]) -> Native:
    """`runtime`: the spec of what runtimeRef names. Raises InvalidRequest."""
    if config := spec.get("hyperParameterTuningConfig"):
        tuning.check(config)
        raise NotSupportedYet("it is in order, but there are no sweeps yet; leave it out", field=tuning.FIELD)
    template = trainer_of(runtime)
    trainer = {**template, **{key: value for key, value in spec["trainer"].items() if value not in (None, [], {})}}
    launch = unlaunched([*(trainer.get("command") or []), *(trainer.get("args") or [])])
    if not launch.words:
        raise BadSpec("is needed: neither the job nor its runtime says what runs", field="spec.trainer.command")
    policy = runtime.get("mlPolicy") or {}
    per_node = _per_node(trainer, policy, launch)
    by_mpi = launch.by_mpi or "mpi" in policy
    nodes = trainer.get("numNodes") or launch.nodes or policy.get("numNodes") or _nodes_of(launch, per_node)
    framework: dict[str, Any] = {"type": "CUSTOM", "custom_command": launch.words}
    framework["distributed"] = {"config": {"num_proc_per_node": per_node}}
    if by_mpi:
        framework["config"] = {"launcher": "mpi"}
    models = spec.get("modelConfig") or {}
    sources = [{"path": place(uri)}] if (uri := (spec.get("datasets") or {}).get("storageUri")) else []
    output = (models.get("outputModel") or {}).get("storageUri")
    document = {
        "name": name,
        "labels": {key: value for key, value in labels.items() if LABEL_KEY.fullmatch(key)},
        "training_config": {
            "training_type": "SFT",
            "base_model": {"model_id": models.get("inputModel") or NO_MODEL},
            "framework": framework,
            "environment": _environment(template, spec["trainer"]),
        },
        "data_config": {"sources": sources},
        "resource_config": {**resources_of(trainer, per_node), "node_count": nodes},
        **({"output_config": {"output_path": place(output)}} if output else {}),
    }
    return Native(document, _unheeded(spec, trainer), _references(spec["trainer"]))


def shown(spec: Mapping[str, Any]) -> dict[str, Any]:
    """As it is told again: values that are secret the native document has, encrypted."""
    trainer = dict(spec["trainer"])
    if variables := trainer.get("env"):
        trainer["env"] = [
            {**each, "value": MASK} if is_secret(each["name"], each["value"]) else each for each in variables
        ]
    return {**spec, "trainer": trainer}


def trainer_of(runtime: Mapping[str, Any]) -> dict[str, Any]:
    """What the container `trainer` of a runtime's template says: image, command, args, env, resources.

    Raises BadShape for what is none.
    """
    jobs = ((runtime.get("template") or {}).get("spec") or {}).get("replicatedJobs") or []
    for job in jobs if isinstance(jobs, list) else []:
        found = _container(job)
        if found is not None:
            kept = {key: found[key] for key in ("image", "command", "args", "env") if found.get(key)}
            resources = {"resourcesPerNode": found["resources"]} if found.get("resources") else {}
            return validated(_TRAINER, {**kept, **resources})
    return {}


def place(uri: str) -> str:
    """`oci://n/NAMESPACE/b/BUCKET/o/OBJECT` is `oci://BUCKET/OBJECT`; all others are what they are."""
    found = _BUCKET_FORM.fullmatch(uri)
    return f"oci://{found[1]}/{found[2]}" if found else uri


def resources_of(trainer: Mapping[str, Any], per_node: str) -> dict[str, Any]:
    """Of each node. GPUs are whatever there is, CPU slots where no node has any. Raises BadSpec."""
    asked = trainer.get("resourcesPerNode") or {}
    amounts = {**(asked.get("limits") or {}), **(asked.get("requests") or {})}
    gpus = next((amounts[name] for name in GPUS if name in amounts), "0")
    devices = math.ceil(_amount(gpus))
    found: dict[str, Any] = {"gpu_count": devices} if devices else {"gpu_count": 1, "device_type": "cpu"}
    if not devices and per_node in ("auto", "gpu"):
        found["gpu_count"] = 1
    if cores := math.ceil(_amount(amounts.get("cpu", "0"))):
        found["cpu_cores"] = cores
    if ram := math.ceil(_amount(amounts.get("memory", "0")) / 2**20):
        found["ram_min_mb"] = ram
    return found


def _amount(quantity: str) -> Decimal:
    try:
        return amount_of(quantity)
    except ValueError as error:
        raise BadSpec(str(error), field="spec.trainer.resourcesPerNode") from error


def _container(job: Any) -> Mapping[str, Any] | None:
    """The trainer of a replicated job of a JobSet; the first container if none is called so."""
    found = job
    for key in ("template", "spec", "template", "spec"):
        found = found.get(key) if isinstance(found, Mapping) else None
    containers = (found or {}).get("containers") if isinstance(found, Mapping) else None
    if not isinstance(containers, Sequence) or not containers:
        return None
    named = [each for each in containers if isinstance(each, Mapping)]
    return next((each for each in named if each.get("name") == "trainer"), named[0] if named else None)


def _per_node(trainer: Mapping[str, Any], policy: Mapping[str, Any], launch: Launch) -> str:
    said = trainer.get("numProcPerNode") or launch.per_node
    of_runtime = (policy.get("torch") or policy.get("mpi") or {}).get("numProcPerNode")
    return str(said or of_runtime or "auto")


def _nodes_of(launch: Launch, per_node: str) -> int:
    """Of a command that says how many processes there are in all."""
    if launch.processes is None or not per_node.isdecimal():
        return 1
    return max(1, math.ceil(launch.processes / max(1, int(per_node[:9]))))


def _environment(template: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, str]:
    """The job's variables win over the runtime's."""
    given = [*(template.get("env") or []), *(trainer.get("env") or [])]
    named = {each["name"]: each.get("value", "") for each in given if isinstance(each, Mapping) and "name" in each}
    return {name: value for name, value in {**_ENVIRONMENT, **named}.items() if not is_reserved(name)}


def _references(trainer: Mapping[str, Any]) -> dict[str, Reference]:
    """Of variables that are keys of secrets; of a runtime's there are none, as it may be everybody's."""
    found = {}
    for number, each in enumerate(trainer.get("env") or []):
        wanted = (each.get("valueFrom") or {}).get("secretKeyRef") or {}
        name, key = (wanted.get(part) for part in ("name", "key")) if isinstance(wanted, Mapping) else (None, None)
        if isinstance(name, str) and isinstance(key, str) and not is_reserved(each["name"]):
            found[each["name"]] = Reference(name, key, f"spec.trainer.env.{number}.valueFrom.secretKeyRef")
    return found


def _unheeded(spec: Mapping[str, Any], trainer: Mapping[str, Any]) -> list[str]:
    found = ["spec.trainer.image"] if trainer.get("image") else []
    variables = trainer.get("env") or []
    known = _references(trainer)
    lost = (
        each["name"]
        for each in variables
        if is_reserved(each["name"]) or (each.get("valueFrom") and each["name"] not in known)
    )
    found += [f"spec.trainer.env.{name}" for name in lost]
    places = {
        "spec.datasets": spec.get("datasets") or {},
        "spec.modelConfig.outputModel": (spec.get("modelConfig") or {}).get("outputModel") or {},
    }
    kept = ("path", "schemaPath", "storageKey", "key", "nodeSelector", "nodeAffinity")
    found += [f"{name}.{field}" for name, storage in places.items() for field in kept if storage.get(field)]
    return sorted(found + (["spec.compartmentID"] if spec.get("compartmentID") else []))
