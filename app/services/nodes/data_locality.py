"""Contents of the nodes' caches: reported by each node on change, and read for pending jobs."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.scheduling.data_locality import NOT_CACHED, Cached, CachedInput, Holding, cached
from app.domain.scheduling.scoring import CACHED, Weights
from app.models import CachedSource, Node

_KEYS_AT_ONCE = 500


def report(db: Database, node: str, holdings: Mapping[str, Holding]) -> None:
    """Replace the node's reported cache contents, by source key; ignored for a node that was removed."""
    with db.write() as session:
        # Its row is locked: a replaced worker may still report.
        if session.get(Node, node, with_for_update=True) is None:
            return
        known = {row.source: row for row in session.scalars(select(CachedSource).where(CachedSource.node == node))}
        dropped = sorted(known.keys() - holdings.keys())
        session.execute(delete(CachedSource).where(CachedSource.node == node, CachedSource.source.in_(dropped)))
        for key, holding in sorted(holdings.items()):
            row = known.get(key)
            if row is None:
                row = CachedSource(source=key, node=node)
                session.add(row)
            row.held_bytes, row.size_bytes = holding.held_bytes, holding.size_bytes


def caches(session: Session, weights: Weights) -> "Caches | None":
    """Lookup of cache contents; None if data locality is disabled or nothing is cached anywhere."""
    if not weights[CACHED] or session.scalar(select(CachedSource.source).limit(1)) is None:
        return None
    return Caches(session)


class Caches:
    """Cache contents by source; each source is read once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sources: dict[str, CachedInput | None] = {}
        self._of: dict[tuple[CachedInput, ...], Cached] = {}

    def look_up(self, keys: Iterable[str]) -> None:
        """Read these sources with few queries; their keys are those of ``source_keys``."""
        new = [key for key in dict.fromkeys(keys) if key not in self._sources]
        for start in range(0, len(new), _KEYS_AT_ONCE):
            self._find(new[start : start + _KEYS_AT_ONCE])

    def of(self, keys: Sequence[str]) -> Cached:
        """Data locality of a job with these sources; the same instance for jobs with the same cached sources."""
        if not self._sources.keys() >= set(keys):
            self.look_up(keys)
        held = tuple(found for key in keys if (found := self._sources[key]) is not None)
        if not held:
            return NOT_CACHED
        if held not in self._of:
            self._of[held] = cached(held)
        return self._of[held]

    def _find(self, keys: Sequence[str]) -> None:
        columns = CachedSource.source, CachedSource.node, CachedSource.held_bytes, CachedSource.size_bytes
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for source, node, held_bytes, size_bytes in self._session.execute(
            select(*columns).where(CachedSource.source.in_(keys))
        ):
            found.setdefault(source, {})[node] = held_bytes, size_bytes
        for key in keys:
            rows = found.get(key)
            self._sources[key] = None if rows is None else _source(rows)


def _source(rows: Mapping[str, tuple[int, int]]) -> CachedInput:
    """Nodes may have cached different versions; the largest size is assumed."""
    size = max(1, *(size_bytes for _, size_bytes in rows.values()))
    return CachedInput(
        size_bytes=size, held={node: min(1.0, held_bytes / size) for node, (held_bytes, _) in rows.items()}
    )
