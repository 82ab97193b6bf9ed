"""Heartbeat counters: a live process increments its counter, a stalled one belongs to a dead process."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.nodes.limits import limits_of
from app.models import Node, ProcessBeat

Counters = dict[str, int]


def interval_of_node(session: Session, name: str) -> float | None:
    """The heartbeat interval in seconds from node.toml; None if unset or unknown."""
    limits = session.scalar(select(Node.limits).where(Node.name == name))
    return None if limits is None else limits_of(limits).heartbeat_seconds


def of_node(session: Session, name: str) -> Counters:
    """The counter of a node; empty for an unregistered one."""
    counter = session.scalar(select(Node.heartbeat).where(Node.name == name))
    return {} if counter is None else {name: counter}


def of_coordinators(session: Session, prefix: str) -> Counters:
    """The counters of coordinators whose names start with the prefix, including earlier ones of the same machine."""
    query = select(ProcessBeat.name, ProcessBeat.counter).where(
        ProcessBeat.kind == "coordinator", ProcessBeat.name.startswith(prefix, autoescape=True)
    )
    return dict(session.execute(query).tuples().all())
