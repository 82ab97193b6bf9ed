"""Sign-ins at the dashboard: a random secret in a cookie, stored as its hash, that stands for a key until it ends."""

import contextlib
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import CredentialsInvalid, NotFound
from app.domain.ids import new_id
from app.models import ApiKey, WebSession
from app.models.base import utc_now
from app.security.permissions import Caller
from app.services.access import api_keys
from app.services.access.key_names import key_names
from app.services.lifecycle import audit
from app.services.requests.pagination import Orders, Page, PageRequest, page_of
from config.settings import Settings

_TOUCH_AFTER = timedelta(minutes=1)
_SECRET_BYTES = 32
MOST = 100
ORDERS: Orders = {"created_at": (WebSession.created_at, WebSession.id)}


@dataclass(frozen=True, kw_only=True)
class Lifetime:
    """How long a sign-in lasts: at most ``most`` in all, and ``idle`` without a request."""

    most: timedelta
    idle: timedelta

    def has_ended(self, row: WebSession, now: datetime) -> bool:
        return now - row.created_at > self.most or now - row.last_seen_at > self.idle


def lifetime(settings: Settings) -> Lifetime:
    return Lifetime(
        most=timedelta(seconds=settings.web.session_seconds), idle=timedelta(seconds=settings.web.idle_seconds)
    )


@dataclass(frozen=True, kw_only=True)
class SignedIn:
    """A sign-in that counts, with the caller that it stands for."""

    session_id: str
    caller: Caller
    key_name: str


def sign_in(db: Database, caller: Caller, *, address: str, user_agent: str) -> str:
    """The secret of a new session for a caller who has shown a key."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    row = WebSession(
        id=new_id("session"),
        secret_hash=_hash(secret),
        key_id=caller.key_id,
        address=address[:64],
        user_agent=user_agent[:200],
    )
    with db.write() as session:
        session.add(row)
        audit.record(
            session, actor=caller.actor, action="session.create", project=caller.project, target=row.id, data={}
        )
    return secret


def find(db: Database, secret: str, lifetime: Lifetime, *, is_used: bool) -> SignedIn:
    """The session of a cookie. Raises CredentialsInvalid, the same for an unknown, ended and revoked one.

    ``is_used`` False: the request is no sign of a person, such as a stream, and does not extend the session.
    """
    now = utc_now()
    with db.read() as session:
        row = session.scalar(select(WebSession).where(WebSession.secret_hash == _hash(secret)))
        names = key_names(session, [row.key_id] if row is not None else [])
    if row is None or lifetime.has_ended(row, now):
        raise _ended()
    caller = api_keys.of_id(db, row.key_id)
    if is_used and row.last_seen_at < now - _TOUCH_AFTER:
        _touch(db, row.id, now)
    return SignedIn(session_id=row.id, caller=caller, key_name=names.get(row.key_id, ""))


def of_key(db: Database, caller: Caller, lifetime: Lifetime) -> Sequence[WebSession]:
    """The sessions of the caller's key that count, the newest first, `MOST` of them."""
    now = utc_now()
    query = (
        select(WebSession)
        .where(
            WebSession.key_id == caller.key_id,
            WebSession.created_at >= now - lifetime.most,
            WebSession.last_seen_at >= now - lifetime.idle,
        )
        .order_by(WebSession.created_at.desc(), WebSession.id.desc())
        .limit(MOST)
    )
    with db.read() as session:
        return session.scalars(query).all()


def page(session: Session, caller: Caller, lifetime: Lifetime, request: PageRequest) -> Page[WebSession]:
    """The sessions that count, of the keys that the caller sees."""
    now = utc_now()
    query = (
        select(WebSession)
        .join(ApiKey, ApiKey.id == WebSession.key_id)
        .where(
            WebSession.created_at >= now - lifetime.most,
            WebSession.last_seen_at >= now - lifetime.idle,
            ApiKey.revoked_at.is_(None),
            ApiKey.expires_at.is_(None) | (ApiKey.expires_at > now),
        )
    )
    if caller.project is not None:
        query = query.where(ApiKey.project == caller.project)
    return page_of(session, query, ORDERS, request)


def end_visible(db: Database, caller: Caller, session_id: str) -> None:
    """End a session of a key that the caller sees. Raises NotFound."""
    missing = f"no session {session_id[:64]}; it may have ended"
    with db.write() as session:
        row = session.get(WebSession, session_id)
        if row is None:
            raise NotFound(missing)
        project = session.scalar(select(ApiKey.project).where(ApiKey.id == row.key_id))
        caller.require_sight(project, missing)
        session.delete(row)
        audit.record(session, actor=caller.actor, action="session.delete", project=project, target=row.id, data={})


def end(db: Database, caller: Caller, session_id: str) -> None:
    """End one of the caller's own sessions. Raises NotFound."""
    with db.write() as session:
        row = session.get(WebSession, session_id)
        if row is None or row.key_id != caller.key_id:
            raise NotFound(f"no session {session_id[:64]} of this key; it may have ended")
        session.delete(row)
        audit.record(
            session, actor=caller.actor, action="session.delete", project=caller.project, target=row.id, data={}
        )


def end_of_browser(db: Database, secret: str) -> None:
    """End the session of a cookie that another takes the place of, if there is one."""
    if not secret:
        return
    with db.write() as session:
        row = session.scalar(select(WebSession).where(WebSession.secret_hash == _hash(secret)))
        if row is not None:
            project = session.scalar(select(ApiKey.project).where(ApiKey.id == row.key_id))
            session.delete(row)
            audit.record(session, actor=row.key_id, action="session.delete", project=project, target=row.id, data={})


def drop_ended(db: Database, lifetime: Lifetime) -> None:
    """Delete the rows of sessions that have ended by time."""
    now = utc_now()
    with db.write() as session:
        session.execute(
            delete(WebSession).where(
                (WebSession.created_at < now - lifetime.most) | (WebSession.last_seen_at < now - lifetime.idle)
            )
        )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _touch(db: Database, session_id: str, now: datetime) -> None:
    # Informational until the session would end: a busy database must not fail the request.
    with contextlib.suppress(SQLAlchemyError), db.write() as session:
        row = session.get(WebSession, session_id)
        if row is not None:
            row.last_seen_at = now


def _ended() -> CredentialsInvalid:
    return CredentialsInvalid("the sign-in has ended; sign in again")
