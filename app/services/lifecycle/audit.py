"""The audit trail: who did, or tried to do, what. Written in the transaction of what it tells of, so that neither is
there without the other.
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

Outcome = Literal["done", "denied"]
_LONGEST = {"actor": 96, "action": 64, "target": 128, "message": 1000, "request_id": 64, "address": 64}


@dataclass(frozen=True)
class Origin:
    """Where what happens now was asked for; both are empty when it was not asked for over HTTP."""

    request_id: str = ""
    address: str = ""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
NOWHERE = Origin()
_origin: ContextVar[Origin] = ContextVar("audit_origin", default=NOWHERE)


@contextmanager
def asked_by(origin: Origin) -> Iterator[None]:
    """Entries that are written inside say where they come from."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


def record(  # noqa: PLR0913  a line of the trail has this many parts
    session: Session,
    *,
    actor: str,
    action: str,
    project: str | None,
    target: str = "",
    outcome: Outcome = "done",
    message: str = "",
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add a line, ``action`` as ``noun.verb``; joins the caller's transaction. ``project`` None: of the cluster."""
    session.add(
        entry(actor=actor, action=action, project=project, target=target, outcome=outcome, message=message, data=data)
    )


def entry(
    *,
    actor: str,
    action: str,
    project: str | None,
    target: str = "",
    outcome: Outcome = "done",
    message: str = "",
    data: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """The same line for whoever writes it along with other rows."""
    origin = _origin.get()
    texts = {
        "actor": actor, "action": action, "target": target, "message": message, "request_id": origin.request_id,
        "address": origin.address,
    }  # fmt: skip
    return AuditEntry(
        id=new_id("audit"), project=project, outcome=outcome, data=dict(data or {}),
        **{name: _storable(text)[: _LONGEST[name]] for name, text in texts.items()},
    )  # fmt: skip


def _storable(text: str) -> str:
    """What callers send may hold what PostgreSQL has no place for, or what a terminal would obey."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
