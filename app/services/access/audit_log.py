"""Reads the audit log: pages, single entries, and complete exports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import NotFound
from app.models import AuditEntry, Project
from app.models.audit_entry import DENIED, FREQUENT_ACTIONS, NOT_FREQUENT_ACTIONS
from app.security.permissions import Caller
from app.services.access import projects
from app.services.requests.pagination import Orders, Page, PageRequest, page_by_id

ORDERS: Orders = {"created_at": (AuditEntry.at, AuditEntry.id)}
EXPORT_PAGE = 1000
_FREQUENT_NOUNS = {action.partition(".")[0] for action in FREQUENT_ACTIONS}


def _of_action(action: str) -> ColumnElement[bool]:
    """A filter by one action, or by all actions on a noun."""
    same = AuditEntry.action == action
    if action in FREQUENT_ACTIONS:
        return same
    if "." not in action:
        same = or_(same, AuditEntry.action.startswith(f"{action}.", autoescape=True))
    return same if action in _FREQUENT_NOUNS else and_(same, NOT_FREQUENT_ACTIONS)


def _of_outcome(outcome: str) -> ColumnElement[bool]:
    return and_(DENIED) if outcome == "denied" else AuditEntry.outcome == outcome


FILTERS: dict[str, Callable[[Any], ColumnElement[bool]]] = {
    "project": lambda project: AuditEntry.project == project,
    "actor": lambda actor: AuditEntry.actor == actor,
    "action": _of_action,
    "target": lambda target: AuditEntry.target == target,
    "outcome": _of_outcome,
    "after": lambda moment: AuditEntry.at > moment,
    "before": lambda moment: AuditEntry.at < moment,
}


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> Page[AuditEntry]:
    """A page of the visible entries that match every filter. Raises NotFound for a foreign project."""
    if "project" in filters and caller.project is not None:
        projects.visible(session, caller, filters["project"])  # super admins may also filter by deleted projects
    return page_by_id(session, AuditEntry, _chosen(caller, filters), ORDERS, request)


def has_any(session: Session, caller: Caller, actions: Sequence[str], since: datetime) -> bool:
    """Whether a visible or cluster-wide entry has one of these actions since the given time."""
    query = select(AuditEntry.id).where(AuditEntry.action.in_(actions), NOT_FREQUENT_ACTIONS, AuditEntry.at >= since)
    if caller.project is not None:
        query = query.where(or_(AuditEntry.project == caller.project, AuditEntry.project.is_(None)))
    return session.scalar(query.limit(1)) is not None


def everything(session: Session, caller: Caller, filters: Mapping[str, Any]) -> Iterator[AuditEntry]:
    """All entries that match every filter, oldest first, read in batches."""
    request = PageRequest(size=EXPORT_PAGE, order="created_at")
    while True:
        found = page(session, caller, filters, request)
        yield from found.items
        session.expunge_all()
        if found.next_after is None:
            return
        request = PageRequest(size=EXPORT_PAGE, order="created_at", after=found.next_after)


def batches(db: Database, caller: Caller, filters: Mapping[str, Any]) -> Iterator[Sequence[AuditEntry]]:
    """All entries that match every filter, oldest first; each batch is read in a transaction of its own."""
    request: PageRequest | None = PageRequest(size=EXPORT_PAGE, order="created_at")
    while request is not None:
        with db.read() as session:
            found = page(session, caller, filters, request)
        yield found.items
        request = replace(request, after=found.next_after) if found.next_after is not None else None


def find(session: Session, caller: Caller, entry_id: str) -> AuditEntry:
    """The entry. Raises the same NotFound for an unknown and an invisible one."""
    missing = f"no audit entry {entry_id[:64]}"
    entry = session.get(AuditEntry, entry_id)
    if entry is None:
        raise NotFound(missing)
    caller.require_sight(entry.project, missing)
    if session.scalar(_seen(select(AuditEntry.id).where(AuditEntry.id == entry_id), caller)) is None:
        raise NotFound(missing)
    return entry


def _chosen(caller: Caller, filters: Mapping[str, Any]) -> Select[Any]:
    query = _seen(select(AuditEntry.id), caller)
    for name, value in filters.items():
        if name in FILTERS:
            query = query.where(FILTERS[name](value))
    return query


def _seen(query: Select[Any], caller: Caller) -> Select[Any]:
    if caller.project is None:
        return query
    # Exclude entries of a deleted project with the same name, which may have had other owners.
    made_at = select(Project.created_at).where(Project.name == caller.project).scalar_subquery()
    return query.where(AuditEntry.project == caller.project, AuditEntry.at >= made_at)
