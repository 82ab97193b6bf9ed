"""Takes the own node out of service while `trainyard up` stops, and puts it back for the next start."""

import contextlib
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from app.domain.errors import NotFound
from app.extensions import Database
from app.services import leases, nodes


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
                states = {node.name: node.state for node in nodes.list_nodes(session)}
            if states.get(self._node) not in ("draining", "drained"):
                self._marker.touch()
            return nodes.request_requeue(self._db, self._node)
        except SQLAlchemyError:  # nobody can be asked; supervisors save as far as they get
            return 0

    def is_busy(self) -> bool:
        try:
            return bool(leases.live(self._db, node=self._node))
        except SQLAlchemyError:
            return False

    def undo(self) -> None:
        """The node is ready again if it was so before ``begin``. Left for the next start when the database is away."""
        if not self._marker.exists():
            return
        with contextlib.suppress(SQLAlchemyError):
            with contextlib.suppress(NotFound):  # it never registered
                nodes.set_state(self._db, self._node, "ready")
            self._marker.unlink()
