"""Rows of interactive access: endpoints of running jobs, and sessions."""

from itertools import count
from typing import Any

from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.domain.interactive import SHELL
from app.models import InteractiveEndpoint, InteractiveSession, Job
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import Api

_numbers = count(1)
SHELL_REQUEST: dict[str, Any] = {
    "type": "exec",
    "rank": 0,
    "command": [],
    "tty": True,
    "rows": 24,
    "columns": 80,
    "term": "xterm-256color",
}


def running_job(api: Api, state: str = "TRAINING", **document: Any) -> str:
    """A job on a node of its own; its sandbox is not open."""
    with api.db.write() as session:
        job = make_job(session, document=make_document(**document))
        make_attempt(session, job, make_node(session, f"node-{next(_numbers)}"))
        job.status = state
        return job.id


def open_job(api: Api, state: str = "TRAINING", **document: Any) -> str:
    """A job whose sandbox is open."""
    job_id = running_job(api, state, **document)
    with api.db.write() as session:
        make_endpoint(session, session.get_one(Job, job_id))
    return job_id


def make_endpoint(session: Session, job: Job, **changes: Any) -> InteractiveEndpoint:
    """Where the running attempt of the job is reached."""
    values = {"part": 0, "first_rank": 0, "ranks": 1, "address": "127.0.0.1", "port": 4711, **changes}
    row = InteractiveEndpoint(job_id=job.id, attempt=job.attempt, fence=job.fence, **values)
    session.add(row)
    session.flush()
    return row


def make_session(session: Session, job_id: str, **changes: Any) -> InteractiveSession:
    values: dict[str, Any] = {"attempt": 1, "kind": SHELL, "request": SHELL_REQUEST, "created_by": "key-0", **changes}
    row = InteractiveSession(id=new_id("isession"), job_id=job_id, **values)
    session.add(row)
    session.flush()
    return row
