"""Takes the own nodes out of service while `trainyard up` stops, and puts them back for the next start."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from app.database.engine import Database
from app.domain.errors import NotFound
from app.services.attempts import leases
from app.services.nodes import registry


class NodesDrain:
    """All nodes of one `trainyard up`."""

    def __init__(self, db: Database, nodes: Sequence[str], directory: Path) -> None:
        self._drains = [NodeDrain(db, node, directory) for node in nodes]

    def begin(self) -> int:
        """As ``NodeDrain.begin``, of all of them."""
        return sum(drain.begin() for drain in self._drains)

    def is_busy(self) -> bool:
        return any(drain.is_busy() for drain in self._drains)

    def undo(self, *, stopped: bool = False) -> None:
        """As ``NodeDrain.undo``, of all of them."""
        for drain in self._drains:
            drain.undo(stopped=stopped)


class NodeDrain:
    """A marker file remembers that the drain was ours, should we die in the middle: an administrator's stays."""

    def __init__(self, db: Database, node: str, directory: Path) -> None:
        self._db = db
        self._node = node
        self._marker = directory / f"draining-{node}"

    def begin(self) -> int:
        """No new work for the node, and its running jobs are asked to save; returns how many."""
        try:
            with self._db.read() as session:
                states = {node.name: node.state for node in registry.list_nodes(session)}
            before = states.get(self._node, "ready")
            if before not in ("draining", "drained"):
                self._marker.write_text("quarantined" if before == "quarantined" else "ready")
            return registry.request_requeue(self._db, self._node)
        except SQLAlchemyError:  # nobody can be asked; supervisors save as far as they get
            return 0

    def is_busy(self) -> bool:
        try:
            return bool(leases.live(self._db, node=self._node))
        except SQLAlchemyError:
            return False

    def undo(self, *, stopped: bool = False) -> None:
        """The node is as it was before ``begin``. Left for the next start when the database is away.

        With its worker ``stopped`` it is lost instead of ready until a worker registers: the next start may be one with
        other nodes, whose coordinator must not give this one jobs.
        """
        if not self._marker.exists():
            return
        with contextlib.suppress(SQLAlchemyError):
            with contextlib.suppress(NotFound):  # it never registered
                before = self._marker.read_text() or "ready"
                registry.set_state(self._db, self._node, "lost" if stopped and before == "ready" else before)
            self._marker.unlink()
