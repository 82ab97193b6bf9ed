"""The first answer to a request with an idempotency key, stored in the transaction of what it answers."""

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

KEPT = timedelta(hours=24)  # promised in the text of the conflict below

# Called by a use case inside its transaction with what it made, before the commit.
Remember = Callable[[Session, Any], None]


class AlreadyAnswered(Exception):
    """Another request with the same key was faster; nothing of this one was written."""


@dataclass(frozen=True, kw_only=True)
class RequestKey:
    """Whose request it is and what it asks, so that another body under the same key is noticed."""

    project: str
    key_id: str
    idempotency_key: str
    request_hash: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    status_code: int
    body: dict[str, Any]
    location: str | None = None


def forget(_session: Session, _made: Any) -> None:
    """Remembers nothing: the request has no key."""


def earlier_answer(db: Database, request: RequestKey) -> Answer | None:
    """What the same request was answered. Raises IdempotencyConflict when the key was used for another one."""
    with db.read() as session:
        row = session.scalar(select(IdempotentReply).where(*_same_key(request)))
    if row is None or row.created_at < utc_now() - KEPT:
        return None
    if row.request_hash != request.request_hash:
        raise IdempotencyConflict(
            "this Idempotency-Key was used for another request in the last 24 hours; use a new key, or send "
            "the same request again"
        )
    return Answer(status_code=row.status_code, body=row.body, location=row.location)


def remember(session: Session, request: RequestKey, answer: Answer) -> None:
    """Store the answer in the caller's transaction. Raises AlreadyAnswered when the key was taken meanwhile."""
    session.flush()
    # Housekeeping throws old answers away, but not at once.
    session.execute(delete(IdempotentReply).where(*_same_key(request), IdempotentReply.created_at < utc_now() - KEPT))
    session.add(
        IdempotentReply(
            project=request.project, key_id=request.key_id, idempotency_key=request.idempotency_key,
            request_hash=request.request_hash, status_code=answer.status_code, body=answer.body,
            location=answer.location, created_at=utc_now(),
        )
    )  # fmt: skip
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
