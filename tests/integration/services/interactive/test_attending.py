"""The gateway's side of sessions: tickets, verdicts, reports, and sessions whose gateway has gone."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import Conflict, CredentialsInvalid, Forbidden, SandboxNotOpen
from app.domain.lifecycle.states import JobState
from app.models import ApiKey, AuditEntry, InteractiveEndpoint, InteractiveSession, Job, Project
from app.models.base import utc_now
from app.security import signed_tokens
from app.security.permissions import Role
from app.services.interactive import attending
from app.services.interactive.attending import TICKET_PURPOSE, RedeemedSession, Traffic
from app.services.requests.control_plane import ControlPlane
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.interactive import make_endpoint, make_session
from tests.systems.apps import SECRET_KEY, Api


@pytest.fixture
def plane(api: Api) -> ControlPlane:
    found: ControlPlane = api.app.extensions["trainyard"].plane
    return found


@pytest.fixture
def key_id(api: Api) -> str:
    api.make_key(Role.USER, name="alice")
    with api.db.read() as session:
        return session.scalars(select(ApiKey.id).where(ApiKey.name == "alice")).one()


@pytest.fixture
def job_id(api: Api) -> str:
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job.status = JobState.TRAINING
        session.flush()
        make_endpoint(session, job)
        return job.id


@pytest.fixture
def session_id(api: Api, job_id: str, key_id: str) -> str:
    with api.db.write() as session:
        return make_session(session, job_id, created_by=key_id).id


def ticket_of(session_id: str, *, purpose: str = TICKET_PURPOSE, seconds: int = 60, secret: str = SECRET_KEY) -> str:
    return signed_tokens.issue(secret, purpose, session_id, seconds=seconds)


def redeem(plane: ControlPlane, session_id: str, ticket: str | None = None) -> RedeemedSession:
    return attending.redeem(
        plane, SECRET_KEY, ticket or ticket_of(session_id), session_id=session_id, gateway_id="gateway-1"
    )


def changed(db: Database, model: type[Any], name: Any, **values: Any) -> None:
    with db.write() as session:
        row = session.get_one(model, name)
        for column, value in values.items():
            setattr(row, column, value)


def row_of(db: Database, session_id: str) -> InteractiveSession:
    with db.read() as session:
        return session.get_one(InteractiveSession, session_id)


def ends(db: Database) -> list[AuditEntry]:
    with db.read() as session:
        return list(session.scalars(select(AuditEntry).where(AuditEntry.action == "session.end")))


def test_a_ticket_opens_its_session_once(plane: ControlPlane, api: Api, session_id: str, job_id: str, key_id: str):
    opened = redeem(plane, session_id)

    assert (opened.session_id, opened.job_id, opened.key_id, opened.kind) == (session_id, job_id, key_id, "shell")
    assert (opened.endpoint.port, opened.endpoint.attempt, opened.project) == (4711, 1, "default")
    assert opened.request["type"] == "exec"
    row = row_of(api.db, session_id)
    assert (row.gateway_id, row.started_at is not None, row.seen_at) == ("gateway-1", True, row.started_at)
    with pytest.raises(CredentialsInvalid, match="has been used"):
        redeem(plane, session_id)


@pytest.mark.parametrize(
    "ticket",
    [
        lambda own, _: ticket_of(own, seconds=-1),
        lambda own, _: ticket_of(own, purpose="interactive-port"),
        lambda own, _: ticket_of(own, secret="of another installation"),
        lambda own, _: ticket_of(own)[:-2],
        lambda own, _: own,
        lambda _, other: ticket_of(other),
    ],
    ids=["expired", "port token", "forged", "cut", "no token", "of another session"],
)
def test_other_tickets_open_nothing(
    plane: ControlPlane, api: Api, session_id: str, job_id: str, ticket: Callable[[str, str], str]
):
    with api.db.write() as session:
        other = make_session(session, job_id).id

    with pytest.raises(CredentialsInvalid):
        redeem(plane, session_id, ticket(session_id, other))

    assert row_of(api.db, session_id).started_at is None


def test_a_ticket_ends_with_its_key(plane: ControlPlane, api: Api, session_id: str, key_id: str):
    changed(api.db, ApiKey, key_id, revoked_at=utc_now())

    with pytest.raises(CredentialsInvalid, match="revoked"):
        redeem(plane, session_id)


def test_a_ticket_of_a_viewer_opens_nothing(plane: ControlPlane, api: Api, session_id: str, key_id: str):
    changed(api.db, ApiKey, key_id, role="viewer")

    with pytest.raises(Forbidden, match="manage"):
        redeem(plane, session_id)


def test_a_session_begins_only_in_the_attempt_that_it_was_made_for(
    plane: ControlPlane, api: Api, session_id: str, job_id: str
):
    changed(api.db, Job, job_id, attempt=2)
    with pytest.raises(Conflict, match="attempt 1 of its job has ended"):
        redeem(plane, session_id)
    changed(api.db, Job, job_id, attempt=1, status=JobState.PAUSED)
    with pytest.raises(Conflict, match="was paused"):
        redeem(plane, session_id)
    changed(api.db, Job, job_id, status=JobState.TRAINING)
    changed(api.db, InteractiveEndpoint, (job_id, 0), port=0, message="the shell would be the node's")
    with pytest.raises(SandboxNotOpen, match="would be the node's"):
        redeem(plane, session_id)
    changed(api.db, Project, "default", sessions="off")
    with pytest.raises(Forbidden, match="switched sessions off"):
        redeem(plane, session_id)


@pytest.mark.parametrize(
    ("model", "values", "reason"),
    [
        (InteractiveSession, {"end_requested_at": utc_now()}, "ended on request"),
        (InteractiveSession, {"ended_at": utc_now(), "end_reason": "its gateway"}, "its gateway"),
        (ApiKey, {"revoked_at": utc_now()}, "API key"),
        (ApiKey, {"expires_at": utc_now() - timedelta(seconds=1)}, "API key"),
        (Job, {"status": JobState.FAILED, "status_reason": "the script failed"}, "FAILED: the script failed"),
        (Job, {"status": JobState.PAUSED}, "paused"),
        (Job, {"status": JobState.QUEUED, "status_reason": "node local is lost"}, "QUEUED: node local is lost"),
        (Job, {"attempt": 2}, "attempt 1"),
        (Project, {"sessions": "off"}, "switched sessions off"),
        (Project, {"sessions": "recorded"}, "recorded from now on"),
    ],
)
def test_why_sessions_must_end(
    api: Api, session_id: str, key_id: str, model: type[Any], values: dict[str, Any], reason: str
):
    opened = redeem(api.app.extensions["trainyard"].plane, session_id)
    assert attending.verdicts(api.db, [session_id]) == {}
    names = {InteractiveSession: session_id, ApiKey: key_id, Job: opened.job_id, Project: "default"}

    changed(api.db, model, names[model], **values)

    assert reason in attending.verdicts(api.db, [session_id])[session_id]
    assert reason in attending.why_ended(api.db, session_id)


def test_a_session_of_a_deleted_job_must_end(api: Api):
    unknown = "isession-01930000-0000-7000-8000-000000000000"

    assert attending.verdicts(api.db, [unknown]) == {unknown: attending.DELETED}
    assert attending.verdicts(api.db, []) == {}


def test_forwarded_ports_go_on_where_sessions_are_recorded(plane: ControlPlane, api: Api, job_id: str, key_id: str):
    with api.db.write() as session:
        forwarded = make_session(session, job_id, created_by=key_id, kind="port_forward").id
    redeem(plane, forwarded)

    changed(api.db, Project, "default", sessions="recorded")

    assert attending.verdicts(api.db, [forwarded]) == {}


def test_the_end_is_recorded_once_with_its_audit_line(plane: ControlPlane, api: Api, session_id: str, job_id: str):
    redeem(plane, session_id)
    attending.beat(api.db, {session_id: Traffic(bytes_in=3, bytes_out=40)})
    assert row_of(api.db, session_id).bytes_out == 40

    traffic = Traffic(bytes_in=5, bytes_out=70)
    attending.finish(api.db, session_id, reason="the command has ended", exit_code=3, traffic=traffic)
    attending.finish(api.db, session_id, reason="too late")

    row = row_of(api.db, session_id)
    assert (row.end_reason, row.exit_code, row.bytes_in, row.bytes_out) == ("the command has ended", 3, 5, 70)
    (entry,) = ends(api.db)
    assert (entry.target, entry.actor, entry.project, entry.message) == (
        job_id,
        row.created_by,
        "default",
        "the command has ended",
    )
    assert entry.data | {"seconds": 0} == {
        "session": session_id,
        "kind": "shell",
        "exit_code": 3,
        "seconds": 0,
        "bytes_in": 5,
        "bytes_out": 70,
    }
    attending.beat(api.db, {session_id: Traffic(bytes_in=9, bytes_out=9)})
    assert row_of(api.db, session_id).bytes_in == 5


def test_sessions_whose_gateway_has_gone_are_ended(plane: ControlPlane, api: Api, session_id: str, job_id: str):
    with api.db.write() as session:
        unused = make_session(session, job_id).id
    redeem(plane, session_id)
    assert attending.end_abandoned(api.db) == 0

    assert attending.end_abandoned(api.db, utc_now() + timedelta(seconds=61)) == 1
    assert row_of(api.db, session_id).end_reason == attending.GONE
    assert attending.end_abandoned(api.db, utc_now() + timedelta(seconds=121)) == 1
    assert row_of(api.db, unused).end_reason == attending.NO_CLIENT
    assert len(ends(api.db)) == 2
