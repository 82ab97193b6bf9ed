"""Drains the local nodes while `trainyard up` stops, and restores their state for the next start."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from app.cli.local.simulated_nodes import simulated_before
from app.database.engine import Database
from app.domain.errors import NotFound
from app.services.attempts import leases
from app.services.nodes import registry


class NodesDrain:
    """The drains of all nodes of one `trainyard up`."""

    def __init__(self, db: Database, nodes: Sequence[str], directory: Path) -> None:
        self._drains = [NodeDrain(db, node, directory) for node in nodes]
        self._db, self._names, self._directory = db, frozenset(nodes), directory

    def begin(self) -> int:
        """Begin every drain; returns the number of running jobs."""
        return sum(drain.begin() for drain in self._drains)

    def is_busy(self) -> bool:
        return any(drain.is_busy() for drain in self._drains)

    def undo(self, *, stopped: bool = False) -> None:
        """Undo every drain; see ``NodeDrain.undo``."""
        for drain in self._drains:
            drain.undo(stopped=stopped)

    def forget_simulated(self, *, ended: bool = False) -> bool:
        """Remove simulated nodes that this start does not have or, when it has ``ended``, also its own.

        Those that attempts still hold become lost nodes; returns whether there are none.
        """
        done = True
        for name, config in simulated_before(self._directory):
            if not ended and name in self._names:
                continue
            try:
                is_gone = registry.forget(self._db, name, only_lost=ended)
            except SQLAlchemyError:
                is_gone = False
            if is_gone:
                config.unlink(missing_ok=True)
            done = done and is_gone
        return done


class NodeDrain:
    """Drains one node. A marker file distinguishes it from an administrator's drain, even after a crash."""

    def __init__(self, db: Database, node: str, directory: Path) -> None:
        self._db = db
        self._node = node
        self._marker = directory / f"draining-{node}"

    def begin(self) -> int:
        """Stop scheduling on the node and request a checkpoint and requeue of its jobs; returns their number."""
        try:
            with self._db.read() as session:
                states = {node.name: node.state for node in registry.list_nodes(session)}
            before = states.get(self._node, "ready")
            if before not in ("draining", "drained"):
                self._marker.write_text("quarantined" if before == "quarantined" else "ready")
            return registry.request_requeue(self._db, self._node)
        except SQLAlchemyError:  # requests can't be recorded; supervisors save on SIGTERM if they can
            return 0

    def is_busy(self) -> bool:
        try:
            return bool(leases.live(self._db, node=self._node))
        except SQLAlchemyError:
            return False

    def undo(self, *, stopped: bool = False) -> None:
        """Restore the state before ``begin``; the next start does it if the database is unavailable now.

        With ``stopped`` (its worker ended) a ready node becomes lost until a worker registers: the next start may use
        other nodes, and its coordinator must not schedule jobs on this one.
        """
        if not self._marker.exists():
            return
        with contextlib.suppress(SQLAlchemyError):
            with contextlib.suppress(NotFound):  # it never registered
                before = self._marker.read_text() or "ready"
                registry.set_state(self._db, self._node, "lost" if stopped and before == "ready" else before)
            self._marker.unlink()
