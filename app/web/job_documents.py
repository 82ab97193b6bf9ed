"""Documents of jobs as people write them: read as the API reads a body, and filled in from recipes and other jobs."""

import json
import re
from collections.abc import Mapping
from typing import Any

from app.domain.errors import InvalidRequest
from app.domain.spec.inference import TRAINING
from app.domain.spec.model import JobDocument
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import refuse, warnings_of
from app.schemas.spec.job_fields import FIELDS
from app.services.jobs.details import JobDetails

_SCHEMA = SubmitJobSchema()
_COPY = re.compile(r"(.+)-([2-9]|[1-9]\d)")
_LONGEST_NAME = 128
EMPTY: Mapping[str, Any] = {
    "name": "my-job",
    "training_config": {
        "training_type": "LORA",
        "base_model": {"model_id": ""},
        "framework": {"type": "HF_TRAINER"},
        "hyperparameters": {},
    },
    "data_config": {"sources": []},
    "resource_config": {"gpu_count": 1},
}


def read(document: dict[str, Any]) -> tuple[JobDocument, list[str]]:
    """The typed document, and what has no effect in it. Raises InvalidRequest or BadShape with every problem."""
    found: JobDocument = validated(_SCHEMA, document)
    submitted = found.to_json()
    refuse(submitted, FIELDS)
    return found, warnings_of(submitted, FIELDS)


def text_of(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def copy_of(job: JobDetails) -> dict[str, Any]:
    """The document to submit the job's work once more. Raises InvalidRequest for a job that trains nothing."""
    if job.document.kind != TRAINING:
        raise InvalidRequest(
            f"{job.job.id} is of kind {job.document.kind}, and this form is for trainings; retry it on its page instead"
        )
    found = {**job.stored, "labels": dict(job.job.labels)}
    if found.get("name"):
        found["name"] = _next_name(found["name"])
    return {name: value for name, value in found.items() if name in _SCHEMA.fields and value not in ({}, None)}


def _next_name(name: str) -> str:
    """NAME-2 for a copy of NAME, and NAME-3 for a copy of that."""
    found = _COPY.fullmatch(name)
    end = f"-{int(found[2]) + 1}" if found else "-2"
    return (found[1] if found else name)[: _LONGEST_NAME - len(end)] + end
