"""Sessions of people in running jobs: opened with a ticket for a gateway, listed, and ended."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import Forbidden, LimitExceeded, NotFound
from app.domain.ids import new_id
from app.domain.interactive import OFF, PORT_FORWARD, RECORDED
from app.models import InteractiveSession, Job, Project
from app.models.base import utc_now
from app.security import signed_tokens
from app.security.permissions import Caller
from app.services.access import projects
from app.services.access.key_names import key_names
from app.services.files import storage_quota
from app.services.interactive import attending
from app.services.interactive.attending import TICKET_PURPOSE, TICKET_SECONDS
from app.services.interactive.opening import endpoint_of, require_running
from app.services.interactive.session_ranks import instances_at, rank_of
from app.services.jobs import lookup
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.requests.pagination import Orders, Page, PageRequest, page_of

MOST_OPEN = 100  # sessions of a project, with those that wait for their clients
RETRY_SECONDS = 10
SESSION_ID = re.compile(r"isession-[0-9a-f-]{36}")
ORDERS: Orders = {"created_at": (InteractiveSession.created_at, InteractiveSession.id)}
WAITING, OPEN, ENDED = "waiting", "open", "ended"


@dataclass(frozen=True, kw_only=True)
class WantedSession:
    """``request``: what the session server is asked for (`trainyard.protocol.interactive`). With a ``role``, ``rank``
    is one within the instance ``index`` of it. ``origin``: of the page whose browser connects, which alone can then use
    the ticket.
    """

    kind: str
    rank: int
    request: dict[str, Any]
    role: str | None = None
    index: int = 0
    origin: str = ""

    def at(self, rank: int) -> "WantedSession":
        """The session beside this rank of the job."""
        request = {**self.request, "rank": rank} if "rank" in self.request else self.request
        return replace(self, rank=rank, request=request, role=None, index=0)


@dataclass(frozen=True, kw_only=True)
class SessionDetails:
    """``role`` and ``index``: the instance whose rank it is beside, of a job that has roles."""

    row: InteractiveSession
    created_by_name: str
    role: str | None
    index: int | None

    @property
    def status(self) -> str:
        if self.row.ended_at is not None:
            return ENDED
        return WAITING if self.row.started_at is None else OPEN

    @property
    def seconds(self) -> float | None:
        """How long it was open, or is."""
        began, ended = self.row.started_at, self.row.ended_at
        return None if began is None else round(((ended or utc_now()) - began).total_seconds(), 3)


@dataclass(frozen=True, kw_only=True)
class NewSession:
    """A session that waits for its client: the first to show the ticket, within ``TICKET_SECONDS``."""

    details: SessionDetails
    ticket: str
    expires_at: datetime


def create(
    plane: ControlPlane,
    secret_key: str,
    caller: Caller,
    job_id: str,
    wanted: WantedSession,
    *,
    waiting: Callable[[], AbstractContextManager[None]],
    on_written: OnWritten = not_stored,
) -> NewSession:
    """Open the sandbox if it is not, and a session in it. ``waiting`` is held while a sandbox is being opened.

    Raises IllegalTransition for a job that does not run, InvalidRequest for a role or rank that it doesn't have,
    Forbidden where the project has switched sessions off, LimitExceeded with too many open ones, StorageQuotaExceeded
    where they are recorded and nothing more may be stored, Conflict and SandboxNotOpen when the sandbox can't be
    reached.
    """
    with plane.db.read() as session:
        job = lookup.find(session, caller, job_id)
        _require_possible(session, session.get_one(Project, job.project), job)
        wanted = wanted.at(rank_of(job, role=wanted.role, index=wanted.index, rank=wanted.rank))
    endpoint = endpoint_of(plane, job_id, rank=wanted.rank, waiting=waiting)
    with plane.db.write() as session:
        project = projects.require(session, job.project, lock=True)
        job = transitions.load_for_change(session, job_id)
        _require_possible(session, project, job)
        recorded = project.sessions == RECORDED and wanted.kind != PORT_FORWARD
        if recorded:
            storage_quota.refuse_more(session, job.project, 1)
        row = _added(session, caller, endpoint.attempt, wanted, job, recorded=recorded)
        subject = attending.ticket_subject(row.id, wanted.origin)
        ticket = signed_tokens.issue(secret_key, TICKET_PURPOSE, subject, seconds=TICKET_SECONDS)
        made = NewSession(
            details=_details(session, job, [row])[0],
            ticket=ticket,
            expires_at=row.created_at + timedelta(seconds=TICKET_SECONDS),
        )
        on_written(session, made)
    return made


def page(session: Session, caller: Caller, job_id: str, request: PageRequest) -> Page[SessionDetails]:
    job = lookup.find(session, caller, job_id)
    query = select(InteractiveSession).where(InteractiveSession.job_id == job.id)
    found = page_of(session, query, ORDERS, request)
    return Page(
        items=_details(session, job, found.items),
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def find(session: Session, caller: Caller, job_id: str, session_id: str) -> SessionDetails:
    """Raises the same NotFound for a session that doesn't exist and one of another job."""
    job = lookup.find(session, caller, job_id)
    return _details(session, job, [_row(session, job, session_id)])[0]


def end(
    plane: ControlPlane, caller: Caller, job_id: str, session_id: str, *, on_written: OnWritten = not_stored
) -> SessionDetails:
    """Have the session's gateway end it within a second, or end it at once where none has it; idempotent."""
    with plane.db.write() as session:
        job = lookup.find(session, caller, job_id)
        row = _row(session, job, session_id, lock=True)
        if row.ended_at is None and row.end_requested_at is None:
            row.end_requested_at = utc_now()
            audit.record(
                session,
                actor=caller.actor,
                action="session.end_request",
                project=job.project,
                target=job.id,
                data={"session": row.id},
            )
            if row.started_at is None:
                attending.end_now(session, row, attending.ASKED)
        session.flush()
        found = _details(session, job, [row])[0]
        on_written(session, found)
    return found


def recorded(session: Session, caller: Caller, job_id: str, session_id: str) -> InteractiveSession:
    """The session, which is recorded. Raises NotFound for one that isn't."""
    job = lookup.find(session, caller, job_id)
    row = _row(session, job, session_id)
    if not row.recorded:
        raise NotFound(
            f"the session {row.id} is not recorded; those of a project are once an administrator sets its sessions to "
            f"{RECORDED}, and forwarded ports never are"
        )
    return row


def _require_possible(session: Session, project: Project, job: Job) -> None:
    _require_allowed(project)
    require_running(job)
    _refuse_one_too_many(session, project.name)


def _require_allowed(project: Project) -> None:
    if project.sessions == OFF:
        raise Forbidden(
            f"sessions are switched off in the project {project.name}; an administrator of this installation sets "
            "`sessions` of the project to allowed or recorded"
        )


def _refuse_one_too_many(session: Session, project: str) -> None:
    if attending.count_open(session, project) >= MOST_OPEN:
        raise LimitExceeded(
            f"the project {project} has {MOST_OPEN} open sessions, as many as it may; end one (DELETE "
            "/v1/jobs/JOB/sessions/SESSION), or wait until one ends",
            retry_after_seconds=RETRY_SECONDS,
        )


def _added(
    session: Session, caller: Caller, attempt: int, wanted: WantedSession, job: Job, *, recorded: bool
) -> InteractiveSession:
    row = InteractiveSession(
        id=new_id("isession"),
        job_id=job.id,
        attempt=attempt,
        kind=wanted.kind,
        rank=wanted.rank,
        request=wanted.request,
        created_by=caller.key_id,
        recorded=recorded,
        created_at=utc_now(),
    )
    session.add(row)
    what = {name: wanted.request[name] for name in ("command", "port") if wanted.request.get(name)}
    instance = instances_at(job.document, [wanted.rank]).get(wanted.rank)
    if instance is not None:
        what |= {"role": instance[0], "index": instance[1]}
    data = {"session": row.id, "kind": wanted.kind, "rank": wanted.rank, "attempt": attempt, "recorded": recorded}
    audit.record(
        session, actor=caller.actor, action="session.start", project=job.project, target=job.id, data={**data, **what}
    )
    session.flush()
    return row


def _row(session: Session, job: Job, session_id: str, *, lock: bool = False) -> InteractiveSession:
    known = SESSION_ID.fullmatch(session_id) is not None
    row = session.get(InteractiveSession, session_id, with_for_update=True if lock else None) if known else None
    if row is None or row.job_id != job.id:
        raise NotFound(f"job {job.id} has no session {session_id[:64]}")
    return row


def _details(session: Session, job: Job, rows: Sequence[InteractiveSession]) -> list[SessionDetails]:
    names = key_names(session, {row.created_by for row in rows})
    instances = instances_at(job.document, {row.rank for row in rows})
    found = []
    for row in rows:
        role, index = instances.get(row.rank, (None, None))
        name = names.get(row.created_by, "")
        found.append(SessionDetails(row=row, created_by_name=name, role=role, index=index))
    return found
