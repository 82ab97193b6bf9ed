"""Nodes that fail one job after the other get no more until a person has looked at them.

The end of an attempt only leaves a row: it has its job locked, and a drain locks node before job. A coordinator counts
the rows and turns the node's state, in a transaction of its own.
"""

import logging
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.domain.quarantine import Fault, QuarantineRule, reason_for
from app.extensions import Database
from app.models import Node, NodeFault
from app.models.base import database_now
from app.services import audit
from config.settings import Settings

logger = logging.getLogger(__name__)


def rule_of(settings: Settings) -> QuarantineRule:
    return QuarantineRule(faults=settings.quarantine.faults, window_seconds=settings.quarantine.window_seconds)


def note(session: Session, node: str, *, job_id: str, attempt: int, cause: str) -> None:
    """An attempt has ended by the doing of its node."""
    session.add(NodeFault(node=node, job_id=job_id, attempt=attempt, cause=cause, at=database_now(session)))


def look(db: Database, rule: QuarantineRule, *, actor: str) -> list[str]:
    """Quarantine the ready nodes that have had too many faults; returns their names. What runs there goes on."""
    if not rule.faults:
        return []
    with db.read() as session:
        names = session.scalars(
            select(Node.name).join(NodeFault, NodeFault.node == Node.name).where(Node.state == "ready").distinct()
        ).all()
        suspects = [name for name in names if reason_for(_faults(session, name, rule), rule)]
    return [name for name in suspects if _quarantine(db, name, rule, actor)]


def forget(session: Session, node: str) -> None:
    """A person wants it to have jobs again: only what comes from now on counts."""
    session.execute(delete(NodeFault).where(NodeFault.node == node))


def drop_old(db: Database, rule: QuarantineRule) -> None:
    """Forget what is too long ago to count."""
    with db.write() as session:
        session.execute(delete(NodeFault).where(NodeFault.at <= _since(session, rule)))


def _quarantine(db: Database, name: str, rule: QuarantineRule, actor: str) -> bool:
    with db.write() as session:
        node = session.get(Node, name, with_for_update=True, populate_existing=True)
        if node is None or node.state != "ready":
            return False
        reason = reason_for(_faults(session, name, rule), rule)  # somebody may have enabled it since the look
        if not reason:
            return False
        node.state, node.quarantine_reason = "quarantined", reason
        audit.record(session, actor=actor, action="node.quarantine", project=None, target=name, message=reason)
    logger.warning("node %s is quarantined: %s", name, reason)
    return True


def _faults(session: Session, name: str, rule: QuarantineRule) -> list[Fault]:
    rows = session.scalars(select(NodeFault).where(NodeFault.node == name, NodeFault.at > _since(session, rule)))
    return [Fault(job_id=row.job_id, cause=row.cause, at=row.at) for row in rows]


def _since(session: Session, rule: QuarantineRule) -> datetime:
    return database_now(session) - timedelta(seconds=rule.window_seconds)
