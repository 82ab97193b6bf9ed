"""Bodies of `POST /v1/inference`, and jobs that have made a model."""

from typing import Any

from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job
from tests.builders.factories import make_document, make_job


def make_batch(**changes: Any) -> dict[str, Any]:
    """A body whose top-level fields are replaced by ``changes``."""
    body = {
        "name": "labels",
        "model": {"model_uri": "/srv/models/tiny"},
        "data_config": {"sources": [{"path": "/srv/data/prompts.jsonl"}]},
        "resource_config": {"device_type": "cpu"},
    }
    return {**body, **changes}


def make_features(**changes: Any) -> dict[str, Any]:
    return make_batch(**{"name": "vectors", "kind": "features", **changes})


def make_trained(
    session: Session,
    *,
    adapter: bool = False,
    state: JobState = JobState.COMPLETED,
    project: str = "default",
    **parts: Any,
) -> Job:
    """A training job with the files of its result, if it has ended; ``parts`` are merged into its training_config."""
    job = make_job(session, state=state, project=project, document=make_document(training_config=parts))
    if state is JobState.COMPLETED:
        weights = "adapter_model.safetensors" if adapter else "model.safetensors"
        for path in (weights, "adapter_config.json" if adapter else "config.json", "tokenizer.json"):
            session.add(Artifact(job_id=job.id, path=path, size_bytes=1, sha256="0" * 64))
        session.flush()
    return job
