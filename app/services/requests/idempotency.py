"""Idempotency keys: the first response to a request, stored in the transaction of its effect."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import IdempotencyConflict
from app.models import IdempotentReply
from app.models.base import utc_now

TTL = timedelta(hours=24)  # stated in the text of the conflict below

# Called by a use case within its transaction, with its result, before the commit.
OnWritten = Callable[[Session, Any], None]


class AlreadyAnswered(Exception):
    """A concurrent request with the same key was faster; nothing of this one was written."""


@dataclass(frozen=True, kw_only=True)
class RequestKey:
    """Key of a request, with a hash of its content to detect reuse for another request."""

    project: str
    key_id: str
    idempotency_key: str
    request_hash: str


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
    if row is None or row.created_at < utc_now() - TTL:
        return None
    if row.request_hash != request.request_hash:
        raise IdempotencyConflict(
            "this Idempotency-Key was used for another request in the last 24 hours; use a new key, or send "
            "the same request again"
        )
    return StoredResponse(status_code=row.status_code, body=row.body, location=row.location)


def remember(session: Session, request: RequestKey, answer: StoredResponse) -> None:
    """Store the response in the caller's transaction. Raises AlreadyAnswered when the key was taken meanwhile."""
    session.flush()
    # Housekeeping deletes old responses only after a while.
    session.execute(delete(IdempotentReply).where(*_same_key(request), IdempotentReply.created_at < utc_now() - TTL))
    session.add(
        IdempotentReply(
            project=request.project,
            key_id=request.key_id,
            idempotency_key=request.idempotency_key,
            request_hash=request.request_hash,
            status_code=answer.status_code,
            body=answer.body,
            location=answer.location,
            created_at=utc_now(),
        )
    )
    try:
        session.flush()
    except IntegrityError as error:
        raise AlreadyAnswered(request.idempotency_key) from error


def _same_key(request: RequestKey) -> tuple[Any, ...]:
    return (
        IdempotentReply.project == request.project,
        IdempotentReply.key_id == request.key_id,
        IdempotentReply.idempotency_key == request.idempotency_key,
    )
