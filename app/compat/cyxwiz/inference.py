"""JobConfig of type INFERENCE → the document of an inference job, as POST /v1/inference takes it, and back. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from app.compat.cyxwiz.messages_pb2 import JobConfig
from app.compat.cyxwiz.to_native import (
    DEFAULT_NAME,
    DEFINED_BY,
    DIALECT,
    PLAIN,
    PRIORITY,
    REST,
    SOURCES,
    TIMEOUT,
    FieldPath,
    Native,
    refuse,
    set_devices,
    set_value,
)
from app.domain.errors import BadSpec
from app.domain.ids import JOB_ID
from app.domain.spec.inference import BATCH, FEATURES, REPLICA
from app.services.inference.listing import InferenceDetails
from app.services.jobs.details import JobDetails

SECTIONS = (
    *("kind", "model", "task", "output", "on_error", "data_config", "resource_config", "scheduling_config"),
    *("environment", "labels"),
)
MAX_SIZE = FieldPath("max_output_size_mb", "output.max_size_mb")
NUMBERS = (PRIORITY, TIMEOUT, MAX_SIZE)
_OF_TRAININGS = ("epochs", "batch_size", "learning_rate")
_NO_MODEL_CONFIG = (
    "must be the id of a job, a model's id or URI, or a JSON object with sections of an inference document"
)


def to_native(config: JobConfig) -> Native:
    """Raises BadSpec for an invalid JobConfig, and for a value that is also set in model_config."""
    refuse(config)
    for field in _OF_TRAININGS:
        if getattr(config, field):
            raise BadSpec("is for TRAINING; omit it with INFERENCE, whose batches are composed by length", field=field)
    sections, form = _sections(config.model_config)
    document: dict[str, Any] = {
        "name": config.job_id or DEFAULT_NAME,
        **sections,
        "data_config": sections.get("data_config", {}),
        "resource_config": sections.get("resource_config", {}),
    }
    for held in NUMBERS:
        if value := getattr(config, held.field):
            set_value(document, held.path, value, held.field)
    set_value(document, SOURCES, [{"path": config.dataset_uri}], "dataset_uri")
    set_devices(document, config)
    foreign = {"job_id": config.job_id, **form}
    return Native(document, {DIALECT: {name: value for name, value in foreign.items() if value}})


def document_of(details: JobDetails) -> dict[str, Any]:
    """The sections with which an inference job would be submitted; of an evaluation its model and benchmarks, of a
    replica what it has of its service.
    """
    shown = InferenceDetails(details)
    kind = details.job.kind
    found: dict[str, Any] = {"kind": kind, "model": shown.model, "data_config": dict(shown.data_config)}
    if kind in (BATCH, FEATURES):
        found |= {"task": dict(shown.task), "output": dict(shown.output), "on_error": dict(shown.on_error)}
    elif details.document.inference is not None:
        part = "serving" if kind == REPLICA else "benchmarks"
        found[part] = details.document.inference.to_json().get(part)
    found |= {name: dict(getattr(shown, name)) for name in ("resource_config", "scheduling_config")}
    if labels := details.stored.get("labels"):
        found["labels"] = labels
    return found


def model_of(foreign: Mapping[str, Any], rest: Mapping[str, Any]) -> str:
    """`model_config` in the form in which it was submitted; for other jobs the sections."""
    if PLAIN.items() <= foreign.items():
        return str(rest["model"].get("job_id") or rest["model"]["model_uri"])
    return json.dumps(rest, sort_keys=True)


def _sections(text: str) -> tuple[dict[str, Any], dict[str, bool]]:
    if not text.lstrip().startswith(("{", "[")):
        name = text.strip()
        return {"model": {"job_id" if JOB_ID.fullmatch(name) else "model_uri": name}}, PLAIN
    try:
        sections = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSpec(_NO_MODEL_CONFIG, field=REST) from error
    if not isinstance(sections, dict):
        raise BadSpec(_NO_MODEL_CONFIG, field=REST)
    if DEFINED_BY in sections:
        raise BadSpec("is a model's definition, which has random weights; name a model or a job", field=REST)
    unknown = sorted(sections.keys() - set(SECTIONS))
    if unknown:
        raise BadSpec(f"{unknown[0][:64]} is unknown; known: {', '.join(SECTIONS)}", field=REST)
    return sections, {}
