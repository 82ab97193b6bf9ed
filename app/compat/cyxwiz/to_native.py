"""JobConfig → a job document of the native API. Pure."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from app.compat.cyxwiz.messages_pb2 import CPU, CUDA, INFERENCE, OPENCL, JobConfig
from app.domain.errors import BadSpec
from app.domain.ids import JOB_ID
from app.domain.spec.locations.paths import NO_MODEL
from app.schemas.strict_fields import NAME

DIALECT = "cyxwiz"
REST = "model_config"  # the field that holds all for which JobConfig has none
SECTIONS = ("training_config", "data_config", "resource_config", "output_config", "scheduling_config", "labels")
PLAIN, DEFINED = {"plain_model": True}, {"defined_model": True}  # what is kept of the form of `model_config`
DEFINED_BY, TOKENIZER = "model_type", "tokenizer_id"
_DEFAULT_NAME = "cyxwiz"
_NO_MODEL_CONFIG = "neither a model's id or URI nor a JSON object: a model's definition, or parts of a job document"
_MOST_URGENT = 10
_TRAINING = {"training_type": "SFT", "framework": {"type": "HF_TRAINER"}}


class Held(NamedTuple):
    """Where the native document has what a field says; `as_text`: hyperparameters are texts there."""

    field: str
    path: str
    as_text: bool = False


EPOCHS = Held("epochs", "training_config.hyperparameters.num_train_epochs", as_text=True)
RATE = Held("learning_rate", "training_config.hyperparameters.learning_rate", as_text=True)
BATCH = Held("batch_size", "data_config.batch_size")
PRIORITY = Held("priority", "scheduling_config.priority")
TIMEOUT = Held("timeout_seconds", "scheduling_config.max_runtime_seconds")
OUTPUT_SIZE = Held("max_output_size_mb", "output_config.max_output_size_mb")
NUMBERS = (EPOCHS, BATCH, RATE, PRIORITY, TIMEOUT, OUTPUT_SIZE)
SOURCES, DEVICE = "data_config.sources", "resource_config.device_type"
GPU_MEMORY, RAM = "resource_config.gpu_memory_min_mb", "resource_config.ram_min_mb"
NAMES = {
    **{held.path: held.field for held in NUMBERS}, SOURCES: "dataset_uri", DEVICE: "required_device",
    GPU_MEMORY: "min_memory_mb", RAM: "min_memory_mb", "name": "job_id",
    "training_config.base_model.model_id": REST, "training_config.base_model.from_config": REST,
    "training_config.base_model.tokenizer_id": f"{REST}.{TOKENIZER}",
}  # fmt: skip
_DEVICES = {CPU: "cpu", CUDA: "cuda"}


class Native(NamedTuple):
    """A document that no schema has checked yet, and what it has no place for."""

    document: dict[str, Any]
    foreign: dict[str, Any]


def to_native(config: JobConfig) -> Native:
    """Raises BadSpec for what a node refuses before it accepts a job, and for what is said twice."""
    _refuse(config)
    sections, form = _sections(config.model_config)
    document: dict[str, Any] = {"name": config.job_id or _DEFAULT_NAME, "training_config": {}, "data_config": {},
                                "resource_config": {"gpu_count": 1}}  # fmt: skip
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section} if isinstance(section, Mapping) else section
    if isinstance(document["training_config"], dict):
        document["training_config"] = {**_TRAINING, **document["training_config"]}
    for held in NUMBERS:
        if value := getattr(config, held.field):
            _say(document, held.path, str(value) if held.as_text else value, held.field)
    _say(document, SOURCES, [{"path": config.dataset_uri}], "dataset_uri")
    if config.required_device in _DEVICES:
        _say(document, DEVICE, _DEVICES[config.required_device], "required_device")
    if config.min_memory_mb:
        _say(document, GPU_MEMORY if config.required_device == CUDA else RAM, config.min_memory_mb, "min_memory_mb")
    foreign = {"job_id": config.job_id, **form}
    return Native(document, {DIALECT: {name: value for name, value in foreign.items() if value}})


def alias_of(project: str, job_id: str) -> str:
    """By which a job is found that a client named."""
    return f"{DIALECT}:{project}:{job_id}"


def _refuse(config: JobConfig) -> None:
    if config.job_id and (NAME.fullmatch(config.job_id) is None or JOB_ID.fullmatch(config.job_id)):
        raise BadSpec(
            "a name of 1 to 128 letters, digits, '.', '_', '-' and spaces that is none of our own ids, or nothing: "
            "then the answer has one",
            field="job_id",
        )
    if config.job_type == INFERENCE:
        raise BadSpec("Trainyard trains; take TRAINING, and serve the model that comes out elsewhere", field="job_type")
    if config.required_device == OPENCL:
        raise BadSpec("no trainer here computes by OpenCL; take CUDA, CPU or DEVICE_UNKNOWN", field="required_device")
    for field in ("dataset_uri", "model_config"):
        if not getattr(config, field).strip():
            raise BadSpec("must not be empty", field=field)
    for field in ("epochs", "batch_size"):
        if getattr(config, field) <= 0:
            raise BadSpec("must be greater than 0", field=field)
    for field in ("learning_rate", "min_memory_mb", "priority", "timeout_seconds", "max_output_size_mb"):
        if getattr(config, field) < 0:
            raise BadSpec("must be greater than 0, or left out", field=field)
    _refuse_priority(config.priority)


def _refuse_priority(priority: int) -> None:
    if priority > _MOST_URGENT:
        raise BadSpec(f"must be 1 to {_MOST_URGENT}, or left out", field="priority")


def _sections(text: str) -> tuple[dict[str, Any], dict[str, bool]]:
    """The parts of a native document in `model_config`, and its form where it is something else than such parts."""
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
    """A configuration of transformers, and in it the tokenizer, of which it says nothing by itself."""
    tokenizer = definition.pop(TOKENIZER, None)
    if not isinstance(tokenizer, str) or not tokenizer.strip():
        raise BadSpec(
            f"a model's definition names the tokenizer it reads by: add {TOKENIZER}, a directory or a model of the hub",
            field=f"{REST}.{TOKENIZER}",
        )
    base = {"model_id": NO_MODEL, "from_config": definition, TOKENIZER: tokenizer}
    return {"training_config": {"base_model": base}}


def _say(document: dict[str, Any], path: str, value: Any, field: str) -> None:
    """Put the value where the path says. What is there already was said in model_config, too."""
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            return  # the schema says so better
    if last in place:
        raise BadSpec(f"{path} is what {field} says; leave it out of model_config", field=f"{REST}.{path}")
    place[last] = value
