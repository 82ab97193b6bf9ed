"""Labels that administrators set on a node, besides those of its node.toml, which only that file can remove."""

from collections.abc import Callable, Collection, Sequence

from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Conflict
from app.models import Node
from app.security.permissions import Caller
from app.services.lifecycle import audit
from app.services.nodes import listing, maintenance
from app.services.nodes.listing import NodeDetails
from app.services.requests.idempotency import OnWritten, not_stored

Labels = Sequence[str]


def replace(db: Database, caller: Caller, name: str, new_labels: Labels) -> NodeDetails:
    """Set all labels of the node; effective for planning at once, running jobs continue.

    Raises NotFound, and Conflict when a label of node.toml is missing.
    """
    with db.write() as session:
        return _change(session, caller, name, lambda _: new_labels)


def add_and_remove(
    db: Database, caller: Caller, name: str, *, add: Labels, remove: Collection[str], on_written: OnWritten = not_stored
) -> NodeDetails:
    """Change labels. Raises NotFound, and Conflict for removing one that is absent or comes from node.toml."""

    def changed(before: Labels) -> Labels:
        for label in remove:
            if label not in before:
                raise Conflict(f"node {name} is not labelled {label!r}; it has: {', '.join(before) or 'no labels'}")
        return [label for label in [*before, *add] if label not in remove]

    with db.write() as session:
        details = _change(session, caller, name, changed)
        on_written(session, details)
        return details


def _change(session: Session, caller: Caller, name: str, labels: Callable[[Labels], Labels]) -> NodeDetails:
    node = maintenance.lock(session, name)
    new_labels = labels(node.all_labels)
    _keep_those_of_the_file(node, new_labels)
    before = node.admin_labels
    after = [label for label in dict.fromkeys(new_labels) if label in before or label not in node.labels]
    if sorted(after) != sorted(before):
        node.admin_labels = after
        audit.record(
            session,
            actor=caller.actor,
            action="node.label",
            project=None,
            target=name,
            data={"from": before, "to": after},
        )
    session.flush()
    return listing.find(session, name)


def _keep_those_of_the_file(node: Node, new_labels: Labels) -> None:
    missing = [label for label in node.labels if label not in new_labels]
    if missing:
        raise Conflict(
            f"{', '.join(missing)} is set in the node.toml of {node.name} and can't be removed here: remove it in that "
            "file and restart the node's worker, or keep it among the labels"
        )
