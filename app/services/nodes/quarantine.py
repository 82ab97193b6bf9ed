"""Quarantine: nodes that cause job after job to fail get no more jobs until an administrator enables them.

The completion of an attempt only inserts a row: it has its job locked, and a drain locks node before job. A coordinator
counts the rows and changes the node's state in a transaction of its own.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, select, update
from sqlalchemy.orm import Session, aliased

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.nodes.quarantine import Fault, QuarantineRule, Reached, did_better, reason_for
from app.domain.nodes.reliability import NodeEffect, counter_of
from app.models import Attempt, Job, Node, NodeFault
from app.models.base import database_now
from app.services.lifecycle import audit
from app.services.nodes import reliability
from config.settings import Settings

# How long a suspicion may wait for an attempt on another node to prove it, for the node's reputation.
SUSPECTED = timedelta(days=1)

# A fault that is not proven, with the attempt that failed and a later one, as `_decided` reads them.
_Suspicion = Row[*tuple[Any, ...]]

logger = logging.getLogger(__name__)


def rule_of(settings: Settings) -> QuarantineRule:
    return QuarantineRule(faults=settings.quarantine.faults, window_seconds=settings.quarantine.window_seconds)


def note(session: Session, node: str, *, job_id: str, attempt: int, cause: str, is_proven: bool) -> None:
    """Record a fault of the node, or a suspicion if it is not proven."""
    at = database_now(session)
    session.add(NodeFault(node=node, job_id=job_id, attempt=attempt, cause=cause, at=at, is_proven=is_proven))


def evaluate(db: Database, rule: QuarantineRule, *, actor: str) -> list[str]:
    """Quarantine the ready nodes with too many faults; returns their names. Running jobs continue.

    Suspicions whose jobs have made progress since are decided first.
    """
    with db.query() as connection:
        decided = _decided(connection)
    for row in decided:
        _settle(db, row)
    if not rule.faults:
        return []
    with db.query() as connection:
        names = connection.scalars(
            select(Node.name).join(NodeFault, NodeFault.node == Node.name).where(Node.state == "ready").distinct()
        ).all()
    if not names:
        return []
    with db.read() as session:
        suspects = [name for name in names if reason_for(_faults(session, name, rule), rule)]
    return [name for name in suspects if _quarantine(db, name, rule, actor)]


def forget(session: Session, node: str) -> None:
    """An administrator enabled the node: only future faults count."""
    session.execute(delete(NodeFault).where(NodeFault.node == node))


def drop_old(db: Database, rule: QuarantineRule) -> None:
    """Delete faults that are too old to count."""
    with db.write() as session:
        too_old = NodeFault.at <= _since(session, rule)
        waits = ~NodeFault.is_proven & (NodeFault.at > database_now(session) - SUSPECTED)
        session.execute(delete(NodeFault).where(too_old, ~waits))


def suspected(session: Session, rule: QuarantineRule) -> dict[str, list[Fault]]:
    """Node → recent faults that may be due to the node or to the jobs."""
    found: dict[str, list[Fault]] = {}
    query = select(NodeFault).where(~NodeFault.is_proven, NodeFault.at > _since(session, rule))
    for row in session.scalars(query.order_by(NodeFault.node)):
        found.setdefault(row.node, []).append(_fault(row))
    return found


def _decided(connection: Connection) -> list[_Suspicion]:
    """The suspicions whose jobs made progress since, each with the first attempt that did."""
    failed, later = aliased(Attempt), aliased(Attempt)
    rows = connection.execute(
        select(
            NodeFault.node,
            NodeFault.job_id,
            NodeFault.attempt,
            NodeFault.cause,
            failed.trained_at,
            failed.end_step,
            later.node_names,
            later.number,
            later.end_step.label("later_step"),
            Job.current_step,
            Job.status,
            Job.attempt.label("newest"),
        )
        .join(failed, and_(failed.job_id == NodeFault.job_id, failed.number == NodeFault.attempt))
        .join(later, and_(later.job_id == NodeFault.job_id, later.number > NodeFault.attempt))
        .join(Job, Job.id == NodeFault.job_id)
        .where(~NodeFault.is_proven, later.trained_at.is_not(None))
        .order_by(NodeFault.node, NodeFault.job_id, NodeFault.attempt, later.number)
    )
    first: dict[tuple[str, str, int], _Suspicion] = {}
    for row in rows:
        if did_better(*_reached(row)):
            first.setdefault((row.node, row.job_id, row.attempt), row)
    return list(first.values())


def _reached(row: _Suspicion) -> tuple[Reached, Reached]:
    """Progress of the later attempt and of the failed one."""
    is_newest = row.number == row.newest
    step = row.later_step if row.later_step is not None else row.current_step if is_newest else 0
    later = Reached(trained=True, step=step, completed=is_newest and row.status == JobState.COMPLETED)
    return later, Reached(trained=row.trained_at is not None, step=row.end_step or 0)


def _settle(db: Database, row: _Suspicion) -> None:
    """Confirm a suspicion whose job made progress on another node, once; drop it if that was on the same node.

    One transaction each: with the records of two nodes locked it could deadlock with the completion of a gang.
    """
    this = (NodeFault.node == row.node) & (NodeFault.job_id == row.job_id) & (NodeFault.attempt == row.attempt)
    with db.write() as session:
        if row.node in row.node_names:
            session.execute(delete(NodeFault).where(this, ~NodeFault.is_proven))
            return
        proven = update(NodeFault).where(this, ~NodeFault.is_proven).values(is_proven=True).returning(NodeFault.node)
        if session.execute(proven).first() is None:
            return  # another coordinator has done it
        reliability.count(session, row.node, NodeEffect(counter=counter_of(row.cause), towards=0.0))
    logger.warning(
        "node %s: attempt %s of %s ended there by %s, and the job made progress elsewhere",
        row.node,
        row.attempt,
        row.job_id,
        row.cause,
    )


def _quarantine(db: Database, name: str, rule: QuarantineRule, actor: str) -> bool:
    with db.write() as session:
        node = session.get(Node, name, with_for_update=True, populate_existing=True)
        if node is None or node.state != "ready":
            return False
        reason = reason_for(_faults(session, name, rule), rule)  # it may have been enabled since
        if not reason:
            return False
        node.state, node.quarantine_reason = "quarantined", reason
        audit.record(session, actor=actor, action="node.quarantine", project=None, target=name, message=reason)
    logger.warning("node %s is quarantined: %s", name, reason)
    return True


def _faults(session: Session, name: str, rule: QuarantineRule) -> list[Fault]:
    of_late = (NodeFault.at > _since(session, rule)) & NodeFault.is_proven
    return [_fault(row) for row in session.scalars(select(NodeFault).where(NodeFault.node == name, of_late))]


def _fault(row: NodeFault) -> Fault:
    return Fault(job_id=row.job_id, cause=row.cause, at=row.at)


def _since(session: Session, rule: QuarantineRule) -> datetime:
    return database_now(session) - timedelta(seconds=rule.window_seconds)
