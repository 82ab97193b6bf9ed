"""What a vocabulary stores with a job: notes that only its own routes read, and that the job is deleted for them."""

from typing import Any

from app.domain.errors import Conflict
from app.domain.lifecycle.states import TERMINAL
from app.models import Job
from app.security.permissions import Caller
from app.services.jobs import lookup
from app.services.jobs.control import requests as control_requests
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane


def withdraw(plane: ControlPlane, caller: Caller, job_id: str, *, dialect: str) -> None:
    """Deletion in dialects that allow it for running jobs: cancel the job if needed, and hide it in the dialect."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = transitions.load_for_change(session, job_id)
        if job.state not in TERMINAL:
            job = control_requests.request_cancel(session, job_id, actor=caller.actor, reason="deleted")
        _store_foreign(job, dialect, deleted=True)
        audit.record(
            session,
            actor=caller.actor,
            action="job.withdraw",
            project=job.project,
            target=job_id,
            data={"dialect": dialect},
        )
        if job.alias is not None and job.alias.startswith(f"{dialect}:"):
            job.alias = None  # its name is free again, for clients of the vocabulary that gave it
    if job.requested == "cancel":
        plane.nudge(job)


def note(
    plane: ControlPlane, caller: Caller, job_id: str, *, dialect: str, expected_version: int | None = None, **kept: Any
) -> None:
    """Store further data of a dialect with a job. Raises Conflict when the job does not have the expected version."""
    with plane.db.write() as session:
        lookup.find(session, caller, job_id)
        job = transitions.load_for_change(session, job_id)
        if expected_version not in (None, job.version):
            raise Conflict("the job was changed meanwhile; read it again")
        _store_foreign(job, dialect, **kept)
        audit.record(session, actor=caller.actor, action="job.patch", project=job.project, target=job_id, data=kept)


def _store_foreign(job: Job, dialect: str, **kept: Any) -> None:
    job.foreign = {**job.foreign, dialect: {**job.foreign.get(dialect, {}), **kept}}
    job.mark_changed()
