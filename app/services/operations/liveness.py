"""The counters that processes raise while they live; one that stands still belongs to a process that is gone."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.nodes.limits import limits_of
from app.models import Node, ProcessBeat

Counters = dict[str, int]


def interval_of_node(session: Session, name: str) -> float | None:
    """In seconds, where its node.toml has one of its own."""
    limits = session.scalar(select(Node.limits).where(Node.name == name))
    return None if limits is None else limits_of(limits).heartbeat_seconds


def of_node(session: Session, name: str) -> Counters:
    """Empty for a node that never registered."""
    counter = session.scalar(select(Node.heartbeat).where(Node.name == name))
    return {} if counter is None else {name: counter}


def of_coordinators(session: Session, prefix: str) -> Counters:
    """Of all whose names begin so; earlier ones of the same machine are among them."""
    query = select(ProcessBeat.name, ProcessBeat.counter).where(
        ProcessBeat.kind == "coordinator", ProcessBeat.name.startswith(prefix, autoescape=True)
    )
    return dict(session.execute(query).tuples().all())
