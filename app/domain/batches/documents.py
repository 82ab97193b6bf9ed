"""The document of the job that answers those requests of a batch that name one model. Pure."""

import hashlib
from collections.abc import Mapping
from typing import Any

from app.domain.spec.inference import BATCH, RECORD, REQUESTS, TRANSFORMERS, TYPES
from app.domain.spec.model import JobDocument

LABEL = "batch"  # of its jobs: the batch's id


def job_document(
    batch_id: str,
    number: int,
    *,
    input_file_id: str,
    task: Mapping[str, Any],
    serving: Mapping[str, Any],
    parts: Mapping[str, Any],
) -> JobDocument:
    """Without the sections of the model. Requests that can't be answered never end the job: each has its error.

    ``task`` names the endpoint, the model and the time of the batch. ``serving``: limits and defaults of the service
    that the model is of; empty: it is of none.
    """
    given = {name: parts[name] for name in ("resource_config", "scheduling_config") if name in parts}
    made = JobDocument.from_json(
        {
            "name": f"{batch_id}-{number}",
            "labels": {LABEL: batch_id},
            "kind": BATCH,
            "training_config": {"training_type": TYPES[BATCH], "framework": {"type": TRANSFORMERS}},
            "data_config": {"sources": [{"path": input_file_id, "format": "jsonl"}]},
            "inference": {
                "task": {"type": REQUESTS, "seed": seed_of(batch_id), **task},
                "output": {"format": "jsonl", **parts.get("output", {})},
                "on_error": {"action": RECORD, "max_share": 1.0},
                **({"serving": dict(serving)} if serving else {}),
            },
            **given,
        }
    )
    scheduling = made.scheduling_config
    if scheduling.preemptible and "on_preemption" not in scheduling.given:
        # What was answered is kept, so that there is no reason to end.
        made = made.changed(scheduling_config=scheduling.changed(on_preemption="requeue"))
    return made


def seed_of(batch_id: str) -> int:
    """Of requests that name none: the same each time."""
    return int.from_bytes(hashlib.sha256(batch_id.encode()).digest()[:4])
