"""Reliability records of nodes, updated with the completion of every attempt."""

from collections.abc import Collection

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.domain.nodes.reliability import SHARE, NodeEffect
from app.models import NodeRecord


def begin(session: Session, node: str) -> None:
    """Create the record of a new node; a returning node keeps its history."""
    if session.get(NodeRecord, node) is None:
        session.add(NodeRecord(node=node))


def count(session: Session, node: str, verdict: NodeEffect) -> None:
    """Count an attempt in one statement, so that concurrent completions are all counted."""
    row = NodeRecord
    counter = {"completions": row.completions, "disconnects": row.disconnects, "faults": row.faults}[verdict.counter]
    session.execute(
        update(row)
        .where(row.node == node)
        .values({row.reputation: row.reputation + SHARE * (verdict.towards - row.reputation), counter: counter + 1})
        .execution_options(synchronize_session=False)
    )


def reputations(session: Session, names: Collection[str] | None = None) -> dict[str, float]:
    """Node → reputation, of these nodes or of all that ever registered."""
    query = select(NodeRecord.node, NodeRecord.reputation)
    if names is not None:
        query = query.where(NodeRecord.node.in_(names))
    return {row.node: row.reputation for row in session.execute(query)}
