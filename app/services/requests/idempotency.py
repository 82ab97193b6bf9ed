"""Idempotency keys: the first response to a request, stored in the transaction of its effect.

Some clients send no such key, but say when they send a request again. Their requests have a derived key, which
identifies the whole content: a repeated one gets the stored response, any other one replaces it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, delete, select, true
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import IdempotencyConflict
from app.models import IdempotentReply
from app.models.base import utc_now

TTL = timedelta(hours=24)  # stated in the text of the conflict below
TTL_OF_DERIVED_KEYS = timedelta(minutes=10)
_MOST_TWINS = 20  # equal requests at the same moment

# Called by a use case within its transaction, with its result, before the commit.
OnWritten = Callable[[Session, Any], None]


class AlreadyAnswered(Exception):
    """A concurrent request with the same key was faster; nothing of this one was written."""


class Sent(StrEnum):
    """How a request with a derived key was sent; stored in place of the hash, which the key contains."""

    FIRST = "first"
    AGAIN = "again"


@dataclass(frozen=True, kw_only=True)
class RequestKey:
    """Key of a request, with a hash of its content to detect reuse for another request.

    ``sent``: for derived keys. ``earlier``: when the response was stored that was there before the request, if any.
    ``runs_again``: the request is carried out even if it is repeated, so its response replaces any other.
    """

    project: str
    key_id: str
    idempotency_key: str
    request_hash: str
    sent: Sent | None = None
    earlier: datetime | None = None
    runs_again: bool = False

    @property
    def ttl(self) -> timedelta:
        return TTL if self.sent is None else TTL_OF_DERIVED_KEYS


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    status_code: int
    body: dict[str, Any]
    location: str | None = None


def not_stored(_session: Session, _made: object) -> None:
    """For a request without a key: stores nothing."""


def stored_response(db: Database, request: RequestKey) -> StoredResponse | None:
    """The stored response to the same request. Raises IdempotencyConflict when the key was used for another one."""
    with db.read() as session:
        row = session.scalar(select(IdempotentReply).where(*_same_key(request)))
    if row is None or row.created_at < utc_now() - request.ttl:
        return None
    if request.sent is None and row.request_hash != request.request_hash:
        raise IdempotencyConflict(
            "this Idempotency-Key was used for another request in the last 24 hours; use a new key, or send "
            "the same request again"
        )
    if request.sent is Sent.FIRST and not _was_sent_again(row, request):
        return None
    return StoredResponse(status_code=row.status_code, body=row.body, location=row.location)


def stored_at(db: Database, request: RequestKey) -> datetime | None:
    """When the response to an earlier request with this key was stored."""
    with db.read() as session:
        return session.scalar(select(IdempotentReply.created_at).where(*_same_key(request)))


def remember(session: Session, request: RequestKey, answer: StoredResponse) -> None:
    """Store the response in the caller's transaction. Raises AlreadyAnswered when the key was taken meanwhile."""
    session.flush()
    if request.sent is Sent.FIRST:
        _replace(session, request, answer)
        return
    # Housekeeping deletes old responses only after a while.
    is_old = IdempotentReply.created_at < utc_now() - request.ttl
    replaced = true() if request.runs_again else is_old
    session.execute(delete(IdempotentReply).where(*_same_key(request), replaced))
    session.add(_row(request, answer))
    try:
        session.flush()
    except IntegrityError as error:
        raise AlreadyAnswered(request.idempotency_key) from error


def _replace(session: Session, request: RequestKey, answer: StoredResponse) -> None:
    """Store in place of what other requests stored, unless this one was sent again since it began, and answered."""
    is_other = (IdempotentReply.request_hash == Sent.FIRST) | (IdempotentReply.created_at == request.earlier)
    for _ in range(_MOST_TWINS):
        session.execute(delete(IdempotentReply).where(*_same_key(request), is_other))
        try:
            with session.begin_nested():
                session.add(_row(request, answer))
                session.flush()
        except IntegrityError:
            row = session.scalar(select(IdempotentReply).where(*_same_key(request)))
            if row is not None and _was_sent_again(row, request):
                break
        else:
            return
    raise AlreadyAnswered(request.idempotency_key)


def _was_sent_again(row: IdempotentReply, request: RequestKey) -> bool:
    return row.request_hash == Sent.AGAIN and row.created_at != request.earlier


def _row(request: RequestKey, answer: StoredResponse) -> IdempotentReply:
    return IdempotentReply(
        project=request.project,
        key_id=request.key_id,
        idempotency_key=request.idempotency_key,
        request_hash=request.request_hash if request.sent is None else request.sent,
        status_code=answer.status_code,
        body=answer.body,
        location=answer.location,
        created_at=utc_now(),
    )


def _same_key(request: RequestKey) -> tuple[ColumnElement[bool], ...]:
    return (
        IdempotentReply.project == request.project,
        IdempotentReply.key_id == request.key_id,
        IdempotentReply.idempotency_key == request.idempotency_key,
    )
