"""Job documents as the schema hands them on: a good one, the same with changes, and what the rules say about it."""

import copy
from typing import Any

from app.domain.errors import InvalidRequest
from app.domain.spec.job_spec import JobSpec, from_document
from app.domain.spec.locations.paths import ReadingRules
from app.domain.spec.model import JobDocument

RULES = ReadingRules(roots=("/ty/files", "/srv"), data_dir="/ty", shared_claims=("all",))
GOOD: dict[str, Any] = {
    "name": "a",
    "labels": {"team": "x"},
    "training_config": {
        "training_type": "SFT",
        "base_model": {"model_id": "org/model"},
        "framework": {"type": "HF_TRAINER"},
        "hyperparameters": {},
        "environment": {},
    },
    "data_config": {"sources": [{"path": "/srv/train.jsonl"}], "validation_split": 0.0},
    "resource_config": {"gpu_count": 1, "device_type": "auto"},
    "output_config": {"checkpoint": {"save_steps": 500, "save_total_limit": 3}},
    "scheduling_config": {"queue": "default"},
}
SCRIPT = {"framework": {"type": "CUSTOM", "custom_script_path": "/srv/train.py"}}


def changed(*changes: tuple[str, Any], start: dict[str, Any] | None = None) -> dict[str, Any]:
    """The good document with the values at these dotted paths replaced."""
    document = copy.deepcopy(start or GOOD)
    for path, value in changes:
        node: Any = document
        *parents, last = path.split(".")
        for name in parents:
            node = node[int(name)] if isinstance(node, list) else node.setdefault(name, {})
        node[last] = value
    return document


def custom(*changes: tuple[str, Any], **training: Any) -> dict[str, Any]:
    """The same for a custom script."""
    script = changed(("training_config", {**GOOD["training_config"], **SCRIPT, **training}))
    return changed(*changes, start=script)


def spec_of(document: dict[str, Any], **forwarded: str) -> JobSpec:
    return from_document(JobDocument.from_json(document), RULES, forwarded)


def refusal(document: dict[str, Any], **forwarded: str) -> InvalidRequest:
    """What the rules have against it."""
    try:
        spec_of(document, **forwarded)
    except InvalidRequest as error:
        return error
    raise AssertionError("nothing was refused")
