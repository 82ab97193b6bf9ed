"""The gateway's side of sessions: tickets are redeemed once, sessions are watched, reported and ended."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session, defer, load_only

from app.database.engine import Database
from app.domain.errors import Conflict, CredentialsInvalid, Forbidden, SandboxNotOpen
from app.domain.interactive import OFF, PORT_FORWARD, RECORDED
from app.domain.lifecycle.states import RUNNING, TERMINAL, JobState
from app.models import ApiKey, InteractiveSession, Job, Project
from app.models.base import utc_now
from app.security import signed_tokens
from app.security.api_key_format import is_live
from app.security.permissions import Caller, Permission
from app.services.access import api_keys
from app.services.attempts import interactive_endpoints
from app.services.attempts.interactive_endpoints import SandboxEndpoint
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane

TICKET_PURPOSE = "interactive-session"
TICKET_SECONDS = 60
BEAT_SECONDS = 10.0  # after which a gateway reports its sessions again
SILENT = timedelta(seconds=60)  # after which a gateway that reports nothing has gone
_UNUSED = timedelta(seconds=2 * TICKET_SECONDS)
GONE = "its gateway has stopped answering"
NO_CLIENT = f"no client connected within {TICKET_SECONDS} seconds"
ASKED = "ended on request"
KEY_GONE = "the API key that opened it has been revoked or has expired"
DELETED = "its job has been deleted"
OTHER_ORIGIN = (
    "a ticket is used by who got it: one of the dashboard by pages of its own origin, as a subprotocol, and one of the "
    "API by programs, in the header Authorization"
)
SWITCHED_OFF = "an administrator has switched sessions off in the project"
TO_BE_RECORDED = "an administrator has the project's sessions recorded from now on; open another one"


# What a verdict needs: documents of jobs are large, and gateways ask every second.
_READ = (
    defer(InteractiveSession.request),
    load_only(Job.status, Job.status_reason, Job.attempt, Job.project),
    load_only(Project.sessions),
    load_only(ApiKey.revoked_at, ApiKey.expires_at),
)


@dataclass(frozen=True, kw_only=True)
class RedeemedSession:
    """A session whose ticket was redeemed: what the session server is asked for, and where it is reached."""

    session_id: str
    job_id: str
    project: str
    key_id: str
    attempt: int
    kind: str
    rank: int
    request: Mapping[str, Any]
    endpoint: SandboxEndpoint
    recorded: bool


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes of a session so far: to the job, and from it."""

    bytes_in: int = 0
    bytes_out: int = 0


def ticket_subject(session_id: str, origin: str) -> str:
    """What a ticket is signed for: a session, and the origin of the page that may use it; empty for clients."""
    return f"{session_id} {origin}" if origin else session_id


def redeem(
    plane: ControlPlane, secret_key: str, ticket: str, *, session_id: str, gateway_id: str, origin: str = ""
) -> RedeemedSession:
    """The session of a ticket, from now on open at this gateway. ``origin``: of the page that shows it.

    Raises CredentialsInvalid for a ticket that is forged, expired, used or of another session, and for one whose key
    has been revoked meanwhile; Forbidden for one of a page of another origin, and where the project has switched
    sessions off; Conflict when the session or the attempt has ended, SandboxNotOpen when the sandbox is not reached any
    more.
    """
    _refuse_other_tickets(signed_tokens.subject_of(secret_key, TICKET_PURPOSE, ticket), session_id, origin)
    with plane.db.write() as session:
        row = session.get(InteractiveSession, session_id, with_for_update=True, populate_existing=True)
        if row is None:
            raise CredentialsInvalid("the session of this ticket does not exist any more; open another one")
        if row.started_at is not None:
            raise CredentialsInvalid("the ticket has been used; open another session for another connection")
        job, project = _of(session, row)
        _refuse_key(session, row, job)
        if project.sessions == OFF:
            raise Forbidden(SWITCHED_OFF)
        if why := _why(row, job, project):
            raise Conflict(f"the session can't begin: {why}")
        endpoint = interactive_endpoints.of(session, row.job_id, rank=row.rank)
        if endpoint is None or not endpoint.port:
            raise SandboxNotOpen(endpoint.message if endpoint is not None else "the job's sandbox is not open yet")
        row.started_at = row.seen_at = utc_now()
        row.gateway_id = gateway_id
        return RedeemedSession(
            session_id=row.id,
            job_id=row.job_id,
            project=job.project,
            key_id=row.created_by,
            attempt=row.attempt,
            kind=row.kind,
            rank=row.rank,
            request=row.request,
            endpoint=endpoint,
            recorded=row.recorded,
        )


def _refuse_other_tickets(subject: str, session_id: str, origin: str) -> None:
    of_session, _, of_origin = subject.partition(" ")
    if of_session != session_id:
        raise CredentialsInvalid("the ticket is of another session; send the one that came with this session's address")
    if of_origin != origin:
        raise Forbidden(OTHER_ORIGIN)


def verdicts(db: Database, session_ids: Collection[str]) -> dict[str, str]:
    """By id, why sessions must end, for those that must. One query, so that a gateway can ask every second."""
    if not session_ids:
        return {}
    now = utc_now()
    query = (
        select(InteractiveSession, Job, Project, ApiKey)
        .join(Job, Job.id == InteractiveSession.job_id)
        .join(Project, Project.name == Job.project)
        .outerjoin(ApiKey, ApiKey.id == InteractiveSession.created_by)
        .where(InteractiveSession.id.in_(session_ids))
        .options(*_READ)
    )
    with db.read() as session:
        found = {row.id: _verdict(row, job, project, key, now) for row, job, project, key in session.execute(query)}
    return {each: found.get(each, DELETED) for each in session_ids if found.get(each, DELETED)}


def why_ended(db: Database, session_id: str) -> str:
    """Why the session must end; empty while nothing is known: a sandbox may be gone before its job's row says so."""
    return verdicts(db, [session_id]).get(session_id, "")


def beat(db: Database, counts: Mapping[str, Traffic]) -> None:
    """Report that these sessions are open, and their bytes so far. Rows are locked in the order of their ids."""
    now = utc_now()
    with db.write() as session:
        for session_id in sorted(counts):
            session.execute(
                update(InteractiveSession)
                .where(InteractiveSession.id == session_id, InteractiveSession.ended_at.is_(None))
                .values(seen_at=now, bytes_in=counts[session_id].bytes_in, bytes_out=counts[session_id].bytes_out)
            )


def recorded_more(db: Database, session_id: str, size_bytes: int) -> None:
    """Count bytes of a recording that was stored, for the project's storage quota."""
    with db.write() as session:
        session.execute(
            update(InteractiveSession)
            .where(InteractiveSession.id == session_id)
            .values(recording_bytes=InteractiveSession.recording_bytes + size_bytes)
        )


def finish(
    db: Database, session_id: str, *, reason: str, exit_code: int | None = None, traffic: Traffic | None = None
) -> None:
    """Record the end of a session, with its line in the audit trail; the first end counts."""
    with db.write() as session:
        row = session.get(InteractiveSession, session_id, with_for_update=True, populate_existing=True)
        if row is None:
            return
        if traffic is not None:
            row.bytes_in, row.bytes_out = traffic.bytes_in, traffic.bytes_out
        if row.ended_at is None:
            end_now(session, row, reason, exit_code=exit_code)


def end_abandoned(db: Database, now: datetime | None = None) -> int:
    """End sessions whose gateway has gone, and those to which no client connected; returns how many."""
    now = now or utc_now()
    unused = InteractiveSession.started_at.is_(None) & (InteractiveSession.created_at < now - _UNUSED)
    silent = InteractiveSession.started_at.is_not(None) & (InteractiveSession.seen_at < now - SILENT)
    query = select(InteractiveSession.id).where(InteractiveSession.ended_at.is_(None), unused | silent)
    with db.query() as connection:
        if connection.scalar(query.limit(1)) is None:
            return 0
    with db.write() as session:
        locked = select(InteractiveSession).where(InteractiveSession.ended_at.is_(None), unused | silent)
        rows = session.scalars(locked.order_by(InteractiveSession.id).with_for_update()).all()
        for row in rows:
            end_now(session, row, NO_CLIENT if row.started_at is None else GONE)
        return len(rows)


def end_now(session: Session, row: InteractiveSession, reason: str, *, exit_code: int | None = None) -> None:
    """End a session in the caller's transaction, which has locked it."""
    now = utc_now()
    row.ended_at, row.end_reason, row.exit_code = now, reason, exit_code
    project = session.scalar(select(Job.project).where(Job.id == row.job_id))
    seconds = (now - row.started_at).total_seconds() if row.started_at is not None else 0.0
    data = {
        "session": row.id,
        "kind": row.kind,
        "exit_code": exit_code,
        "seconds": round(seconds, 1),
        "bytes_in": row.bytes_in,
        "bytes_out": row.bytes_out,
    }
    audit.record(
        session,
        actor=row.created_by,
        action="session.end",
        project=project,
        target=row.job_id,
        message=reason,
        data=data,
    )


def _of(session: Session, row: InteractiveSession) -> tuple[Job, Project]:
    job = session.get_one(Job, row.job_id)
    return job, session.get_one(Project, job.project)


def _refuse_key(session: Session, row: InteractiveSession, job: Job) -> None:
    """Raises CredentialsInvalid unless the key that opened the session still may."""
    key = session.get(ApiKey, row.created_by)
    if key is None or not is_live(key, now=utc_now()):
        raise CredentialsInvalid(KEY_GONE)
    caller: Caller = api_keys.caller_of(key)
    caller.require(Permission.MANAGE)
    caller.require_sight(job.project, "no such session")


def _verdict(row: InteractiveSession, job: Job, project: Project, key: ApiKey | None, now: datetime) -> str:
    if key is None or not is_live(key, now=now):
        return KEY_GONE
    return _why(row, job, project)


def _why(row: InteractiveSession, job: Job, project: Project) -> str:
    """Why it must end, or can't begin; empty if it need not."""
    if row.ended_at is not None:
        return row.end_reason or "it has ended"
    if row.end_requested_at is not None:
        return ASKED
    if job.attempt != row.attempt or job.state not in RUNNING:
        return attempt_ended(job, row.attempt)
    if project.sessions == OFF:
        return SWITCHED_OFF
    if project.sessions == RECORDED and not row.recorded and row.kind != PORT_FORWARD:
        return TO_BE_RECORDED
    return ""


def attempt_ended(job: Job, attempt: int) -> str:
    """In words for people, why an attempt of the job is over."""
    because = f": {job.status_reason}" if job.status_reason else ""
    if job.attempt == attempt and job.state in TERMINAL:
        return f"its job has ended, {job.status}{because}"
    if job.attempt == attempt and job.state is JobState.PAUSED:
        return "its job was paused"
    return f"attempt {attempt} of its job has ended, and the job is {job.status}{because}"


def count_open(session: Session, project: str) -> int:
    """Open sessions of a project."""
    query = (
        select(func.count())
        .select_from(InteractiveSession)
        .join(Job, Job.id == InteractiveSession.job_id)
        .where(InteractiveSession.ended_at.is_(None), Job.project == project)
    )
    return session.scalar(query) or 0
