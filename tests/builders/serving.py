"""Rows of services and of the jobs that are their replicas."""

from typing import Any

from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.names import DEFAULT_PROJECT
from app.models import Job, Replica, Service
from tests.builders.factories import make_job, make_project


def replica_document(service: str = "support", **model: Any) -> dict[str, Any]:
    """The document of a replica; ``model`` is its reference to what a job of the project has made."""
    return {
        "name": f"{service}-0",
        "kind": "replica",
        "training_config": {
            "training_type": "REPLICA",
            "base_model": {"model_id": "" if model else "/srv/models/tiny"},
            "framework": {"type": "TRANSFORMERS"},
            "max_retries": 0,
        },
        "data_config": {"sources": []},
        "resource_config": {"gpu_count": 1, "device_type": "cpu"},
        "inference": {"model": model, "task": {"type": "generate"}, "serving": {"name": service}},
    }


def make_service(
    session: Session, name: str = "support", *, model_key: str = "/srv/models/tiny", **columns: Any
) -> Service:
    """A live service without replicas."""
    project = columns.pop("project", DEFAULT_PROJECT)
    make_project(session, project)
    values: dict[str, Any] = {
        "submits_as": "key-1",
        "spec": {"name": name},
        "base": replica_document(name),
        "task": "generate",
        **columns,
    }
    service = Service(
        id=new_id("service"), project=project, name=name, created_by="key-1", model_key=model_key, **values
    )
    session.add(service)
    session.flush()
    return service


def make_replica(
    session: Session, service: Service, *, state: JobState = JobState.QUEUED, number: int = 0, **columns: Any
) -> Job:
    """A job that is a replica of the service."""
    job = make_job(session, state=state, document=replica_document(service.name), project=service.project, **columns)
    session.add(Replica(job_id=job.id, service_id=service.id, number=number, revision=service.revision))
    session.flush()
    return job
