"""Jobs in the states in which users send control requests, and what the API shows of them afterwards."""

from typing import Any

from sqlalchemy import select

from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Job
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.systems.apps import Api

SCRIPT = {
    "training_type": "CUSTOM",
    "framework": {"type": "CUSTOM", "custom_script_path": "/srv/train.py"},
    "hyperparameters": {},
}


def held_job(api: Api, state: str = "TRAINING", *, claimed: bool = True, **document: Any) -> str:
    with api.db.write() as session:
        job = make_job(session, document=make_document(**document))
        make_attempt(session, job, make_node(session), claimed=claimed)
        job.status = state
        return str(job.id)


def paused_job(api: Api, **columns: Any) -> str:
    with api.db.write() as session:
        return str(make_job(session, state=JobState.PAUSED, **columns).id)


def with_checkpoints(
    api: Api, job_id: str, *, best: int | None = 10, steps: tuple[int, ...] = (10, 20)
) -> dict[int, str]:
    """Their ids by step; the last one is the newest."""
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        made = {step: make_checkpoint(session, job, step=step, is_best=step == best).id for step in steps}
        job.latest_checkpoint_id = made[steps[-1]]
        job.best_checkpoint_id = made[best] if best is not None else None
    return made


def verb(api: Api, job_id: str, name: str, body: Any = None, **request: Any) -> Any:
    return api.data(api.post(f"/v1/jobs/{job_id}/{name}", body, **request), 202)


def refused(api: Api, job_id: str, name: str, body: Any = None, status: int = 409) -> dict[str, Any]:
    return api.problem(api.post(f"/v1/jobs/{job_id}/{name}", body), status)


def events(api: Api, job_id: str) -> list[dict[str, Any]]:
    return list(api.get(f"/v1/jobs/{job_id}/events")["events"])


def audited(api: Api, action: str) -> list[tuple[str, dict[str, Any]]]:
    with api.db.read() as session:
        found = session.scalars(select(AuditEntry).where(AuditEntry.action == action).order_by(AuditEntry.id))
        return [(entry.target, entry.data) for entry in found]


def job_of(api: Api, job_id: str) -> Job:
    with api.db.read() as session:
        return session.get_one(Job, job_id)
