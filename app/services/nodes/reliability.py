"""How far each node can be relied on, kept with the end of every attempt."""

from collections.abc import Collection

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.domain.nodes.reliability import SHARE, Verdict
from app.models import NodeRecord


def begin(session: Session, node: str) -> None:
    """A node has registered; one that was here before goes on with its history."""
    if session.get(NodeRecord, node) is None:
        session.add(NodeRecord(node=node))


def count(session: Session, node: str, verdict: Verdict) -> None:
    """In one statement, so that attempts that end at the same time are all counted."""
    row = NodeRecord
    deed = {"completions": row.completions, "disconnects": row.disconnects, "faults": row.faults}[verdict.deed]
    session.execute(
        update(row)
        .where(row.node == node)
        .values({row.reputation: row.reputation + SHARE * (verdict.towards - row.reputation), deed: deed + 1})
        .execution_options(synchronize_session=False)
    )


def reputations(session: Session, names: Collection[str] | None = None) -> dict[str, float]:
    """Node → reputation, of these nodes or of all that were ever here."""
    query = select(NodeRecord.node, NodeRecord.reputation)
    if names is not None:
        query = query.where(NodeRecord.node.in_(names))
    return {row.node: row.reputation for row in session.execute(query)}
