"""Maintenance of nodes by administrators: drain, enable, remove."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict, IllegalTransition, NotFound
from app.models import Lease, Node, Reservation
from app.security.permissions import Caller
from app.services.lifecycle import audit
from app.services.nodes import listing, quarantine, registry
from app.services.nodes.listing import NodeDetails
from app.services.requests.control_plane import Rings
from app.services.requests.idempotency import OnWritten, not_stored

_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class DrainedNode(NodeDetails):
    """``requeued_jobs``: number of jobs asked to save and requeue."""

    requeued_jobs: int


def drain(
    db: Database,
    caller: Caller,
    name: str,
    *,
    requeue: bool = False,
    rings: Rings | None = None,
    on_written: OnWritten = not_stored,
) -> DrainedNode:
    """Stop giving the node new jobs; idempotent. Running jobs continue, unless ``requeue`` requests their requeue.

    Raises NotFound.
    """
    asked: Sequence[str] = ()
    with db.write() as session:
        node = lock(session, name)
        before = node.state
        if before not in ("draining", "drained"):
            node.state = "draining"
        asked = registry.request_requeues(session, name) if requeue else ()
        if before != node.state or asked:
            audit.record(
                session,
                actor=caller.actor,
                action="node.drain",
                project=None,
                target=name,
                data={"from": before, "to": node.state, "requeued_jobs": len(asked)},
            )
        session.flush()
        details = listing.find(session, name)
        drained = DrainedNode(**vars(details), requeued_jobs=len(asked))
        on_written(session, drained)
    if rings is not None:
        for job_id in asked:
            rings.nudge(job_id, name)
    return drained


def enable(db: Database, caller: Caller, name: str, *, on_written: OnWritten = not_stored) -> NodeDetails:
    """Let the node accept jobs again; idempotent. Raises NotFound, and IllegalTransition for a lost one."""
    with db.write() as session:
        node = lock(session, name)
        before = node.state
        if before == "lost":
            raise IllegalTransition(
                f"node {name} is lost and cannot be enabled; it is ready again by itself once its worker reports: "
                "check that machine"
            )
        quarantine.forget(session, name)
        node.quarantine_reason = ""
        if before != "ready":
            node.state = "ready"
            audit.record(
                session,
                actor=caller.actor,
                action="node.enable",
                project=None,
                target=name,
                data={"from": before, "to": "ready"},
            )
        session.flush()
        details = listing.find(session, name)
        on_written(session, details)
    return details


def remove(db: Database, caller: Caller, name: str) -> None:
    """Remove a lost node and its devices; it returns if its worker does. The history of its jobs keeps its name.

    Raises NotFound, IllegalTransition for one that is not lost, and Conflict while attempts still hold its devices.
    """
    with db.write() as session:
        node = lock(session, name)
        if node.state != "lost":
            way = "enable it and wait until it counts as lost" if node.state != "ready" else "stop its worker first"
            raise IllegalTransition(f"node {name} is {node.state} and cannot be removed; only a lost one can: {way}")
        held = session.scalar(select(Lease.id).where(Lease.node == name, Lease.released_at.is_(None)).limit(1))
        reserved = session.scalar(select(Reservation.job_id).where(Reservation.node == name).limit(1))
        if held is not None or reserved is not None:
            raise Conflict(f"attempts still hold node {name}; their leases are revoked within seconds: try again then")
        session.delete(node)
        audit.record(session, actor=caller.actor, action="node.remove", project=None, target=name)


def lock(session: Session, name: str) -> Node:
    """The node, locked for a change. Raises NotFound."""
    node = session.get(Node, name, with_for_update=True)
    if node is None:
        known = ", ".join(session.scalars(select(Node.name).order_by(Node.name).limit(_LISTED)))
        raise NotFound(f"no node {name[:63]!r}; known: {known or 'none'}")
    return node
