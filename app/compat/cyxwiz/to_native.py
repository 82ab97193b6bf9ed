"""JobConfig → native job document. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.cyxwiz.messages_pb2 import CPU, CUDA, OPENCL, JobConfig
from app.compat.naming import Naming
from app.domain.errors import BadSpec
from app.domain.ids import JOB_ID
from app.domain.spec.locations.paths import NO_MODEL
from app.schemas.strict_fields import NAME

DIALECT = "cyxwiz"
REST = "model_config"  # the field for all that JobConfig has no other field for
SECTIONS = ("training_config", "data_config", "resource_config", "output_config", "scheduling_config", "labels")
PLAIN, DEFINED = {"plain_model": True}, {"defined_model": True}  # stored form of `model_config`
DEFINED_BY, TOKENIZER = "model_type", "tokenizer_id"
DEFAULT_NAME = "cyxwiz"
_NO_MODEL_CONFIG = "must be a model's id or URI, or a JSON object: a model's definition, or sections of a job document"
_MOST_URGENT = 10
_TRAINING = {"training_type": "SFT", "framework": {"type": "HF_TRAINER"}}


class FieldPath(NamedTuple):
    """The path of a field in the native document; ``as_text``: hyperparameters are strings there."""

    field: str
    path: str
    as_text: bool = False


EPOCHS = FieldPath("epochs", "training_config.hyperparameters.num_train_epochs", as_text=True)
RATE = FieldPath("learning_rate", "training_config.hyperparameters.learning_rate", as_text=True)
BATCH = FieldPath("batch_size", "data_config.batch_size")
PRIORITY = FieldPath("priority", "scheduling_config.priority")
TIMEOUT = FieldPath("timeout_seconds", "scheduling_config.max_runtime_seconds")
OUTPUT_SIZE = FieldPath("max_output_size_mb", "output_config.max_output_size_mb")
NUMBERS = (EPOCHS, BATCH, RATE, PRIORITY, TIMEOUT, OUTPUT_SIZE)
SOURCES, DEVICE = "data_config.sources", "resource_config.device_type"
GPU_MEMORY, RAM = "resource_config.gpu_memory_min_mb", "resource_config.ram_min_mb"
NAMES = {
    **{held.path: held.field for held in NUMBERS},
    SOURCES: "dataset_uri",
    DEVICE: "required_device",
    GPU_MEMORY: "min_memory_mb",
    RAM: "min_memory_mb",
    "name": "job_id",
    "training_config.base_model.model_id": REST,
    "training_config.base_model.from_config": REST,
    "training_config.base_model.tokenizer_id": f"{REST}.{TOKENIZER}",
    "model.model_uri": REST,
    "output.max_size_mb": OUTPUT_SIZE.field,
}
NAMING = Naming(
    NAMES,
    REST,
    holds_native=True,
    words={
        "device_type cuda": "required_device CUDA",
        "device_type cpu or auto": "required_device CPU",
        "device_type cpu": "required_device CPU",
        "device_type is cpu": "required_device is CPU",
    },
)
_DEVICES = {CPU: "cpu", CUDA: "cuda"}


class Native(NamedTuple):
    """A document that is not yet checked by the schema, and the data to return later."""

    document: dict[str, Any]
    foreign: dict[str, Any]


def to_native(config: JobConfig) -> Native:
    """Of type TRAINING. Raises BadSpec for an invalid JobConfig, and for a value that is also set in model_config."""
    refuse(config)
    _refuse_training(config)
    sections, form = _sections(config.model_config)
    document: dict[str, Any] = {
        "name": config.job_id or DEFAULT_NAME,
        "training_config": {},
        "data_config": {},
        "resource_config": {"gpu_count": 1},
    }
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section} if isinstance(section, Mapping) else section
    if isinstance(document["training_config"], dict):
        document["training_config"] = {**_TRAINING, **document["training_config"]}
    for held in NUMBERS:
        if value := getattr(config, held.field):
            set_value(document, held.path, str(value) if held.as_text else value, held.field)
    set_value(document, SOURCES, [{"path": config.dataset_uri}], "dataset_uri")
    set_devices(document, config)
    foreign = {"job_id": config.job_id, **form}
    return Native(document, {DIALECT: {name: value for name, value in foreign.items() if value}})


def set_devices(document: dict[str, Any], config: JobConfig) -> None:
    """Set the kind of device, and the memory of a GPU or of the node."""
    if config.required_device in _DEVICES:
        set_value(document, DEVICE, _DEVICES[config.required_device], "required_device")
    if config.min_memory_mb:
        path = GPU_MEMORY if config.required_device == CUDA else RAM
        set_value(document, path, config.min_memory_mb, "min_memory_mb")


def alias_of(project: str, job_id: str) -> str:
    """The alias of a job with the client's job_id."""
    return f"{DIALECT}:{project}:{job_id}"


def refuse(config: JobConfig, needed: Sequence[str] = ("dataset_uri", REST)) -> None:
    """Raise BadSpec for what no job of any type has."""
    if config.job_id and (NAME.fullmatch(config.job_id) is None or JOB_ID.fullmatch(config.job_id)):
        raise BadSpec(
            "must be a name of 1 to 128 letters, digits, '.', '_', '-' and spaces that is not a native job id; "
            "leave it empty to get one",
            field="job_id",
        )
    if config.required_device == OPENCL:
        raise BadSpec("OpenCL is not supported; set CUDA, CPU or DEVICE_UNKNOWN", field="required_device")
    for field in needed:
        if not getattr(config, field).strip():
            raise BadSpec("must not be empty", field=field)
    for field in ("learning_rate", "min_memory_mb", "priority", "timeout_seconds", "max_output_size_mb"):
        if getattr(config, field) < 0:
            raise BadSpec("must be greater than 0, or omitted", field=field)
    _refuse_priority(config.priority)


def _refuse_training(config: JobConfig) -> None:
    for field in ("epochs", "batch_size"):
        if getattr(config, field) <= 0:
            raise BadSpec("must be greater than 0", field=field)


def _refuse_priority(priority: int) -> None:
    if priority > _MOST_URGENT:
        raise BadSpec(f"must be 1 to {_MOST_URGENT}, or omitted", field="priority")


def _sections(text: str) -> tuple[dict[str, Any], dict[str, bool]]:
    """The sections of the native document in `model_config`, and its form unless it is such sections."""
    if not text.lstrip().startswith(("{", "[")):
        return {"training_config": {"base_model": {"model_id": text.strip()}}}, PLAIN
    try:
        sections = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSpec(_NO_MODEL_CONFIG, field=REST) from error
    if not isinstance(sections, dict):
        raise BadSpec(_NO_MODEL_CONFIG, field=REST)
    if DEFINED_BY in sections:
        return _from_scratch(sections), DEFINED
    unknown = sorted(sections.keys() - set(SECTIONS))
    if unknown:
        known = f"{', '.join(SECTIONS)}; a model's definition has {DEFINED_BY}"
        raise BadSpec(f"{unknown[0][:64]} is unknown; known: {known}", field=REST)
    return sections, {}


def _from_scratch(definition: dict[str, Any]) -> dict[str, Any]:
    """A configuration of transformers with `tokenizer_id`, which transformers' own format lacks."""
    tokenizer = definition.pop(TOKENIZER, None)
    if not isinstance(tokenizer, str) or not tokenizer.strip():
        raise BadSpec(
            f"a model's definition needs {TOKENIZER}: a directory or a model of the hub", field=f"{REST}.{TOKENIZER}"
        )
    base = {"model_id": NO_MODEL, "from_config": definition, TOKENIZER: tokenizer}
    return {"training_config": {"base_model": base}}


def set_value(document: dict[str, Any], path: str, value: object, field: str) -> None:
    """Set the value at the path. Raises BadSpec where model_config has set it, too."""
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            return  # the schema refuses it
    if last in place:
        raise BadSpec(f"{path} is set by {field}; leave it out of model_config", field=f"{REST}.{path}")
    place[last] = value
