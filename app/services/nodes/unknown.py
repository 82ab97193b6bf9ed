"""The error for a node that is not registered."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.suggestions import did_you_mean
from app.models import Node

MOST_COMPARED = 2000  # names of nodes


def no_node(session: Session, name: str) -> NotFound:
    """With the node that may be meant: every caller sees all nodes."""
    meant = did_you_mean(name, session.scalars(select(Node.name).order_by(Node.name).limit(MOST_COMPARED)).all())
    return NotFound(f"no node {name[:63]!r}{meant}; GET /v1/nodes lists them")
