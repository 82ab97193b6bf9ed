"""The audit trail: who did, or tried to do, what. Each entry is written in the transaction of its action, so that
neither exists without the other.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.models import AuditEntry
from app.models.insertion import new_row

AuditOutcome = Literal["done", "denied"]
_LONGEST = {"actor": 96, "action": 64, "target": 128, "message": 1000, "request_id": 64, "address": 64}


@dataclass(frozen=True)
class RequestOrigin:
    """Origin of the current action; both fields are empty when it is not an HTTP request."""

    request_id: str = ""
    address: str = ""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
NO_ORIGIN = RequestOrigin()
_origin: ContextVar[RequestOrigin] = ContextVar("audit_origin", default=NO_ORIGIN)


@contextmanager
def with_origin(origin: RequestOrigin) -> Iterator[None]:
    """Set the origin of the entries written within the context."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


def record(  # noqa: PLR0913  an entry has this many fields
    session: Session,
    *,
    actor: str,
    action: str,
    project: str | None,
    target: str = "",
    outcome: AuditOutcome = "done",
    message: str = "",
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry within the caller's transaction; ``action`` is ``noun.verb``, ``project`` None means the cluster."""
    session.add(
        entry(actor=actor, action=action, project=project, target=target, outcome=outcome, message=message, data=data)
    )


def entry(
    *,
    actor: str,
    action: str,
    project: str | None,
    target: str = "",
    outcome: AuditOutcome = "done",
    message: str = "",
    data: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Build an entry that the caller inserts together with other rows."""
    origin = _origin.get()
    texts = {
        "actor": actor,
        "action": action,
        "target": target,
        "message": message,
        "request_id": origin.request_id,
        "address": origin.address,
    }
    return new_row(
        AuditEntry,
        id=new_id("audit"),
        project=project,
        outcome=outcome,
        data=dict(data or {}),
        **{name: _storable(text)[: _LONGEST[name]] for name, text in texts.items()},
    )


def _storable(text: str) -> str:
    """Replace characters that PostgreSQL can't store or that terminals interpret."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
