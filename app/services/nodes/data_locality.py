"""What nodes have in their caches: told by each node when it changes, looked up for the jobs that wait."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.scheduling.data_locality import NOT_CACHED, Cached, Holding, Source, cached, source_keys
from app.domain.scheduling.scoring import CACHED, Weights
from app.models import CachedSource, Node

_KEYS_AT_ONCE = 500


def tell(db: Database, node: str, holdings: Mapping[str, Holding]) -> None:
    """From now on the node has these, by their keys, and nothing else; one that nobody knows any more has nothing."""
    with db.write() as session:
        # Its row is locked: a worker that was replaced may still be telling.
        if session.get(Node, node, with_for_update=True) is None:
            return
        known = {row.source: row for row in session.scalars(select(CachedSource).where(CachedSource.node == node))}
        gone = sorted(known.keys() - holdings.keys())
        session.execute(delete(CachedSource).where(CachedSource.node == node, CachedSource.source.in_(gone)))
        for key, holding in sorted(holdings.items()):
            row = known.get(key)
            if row is None:
                row = CachedSource(source=key, node=node)
                session.add(row)
            row.held_bytes, row.size_bytes = holding.held_bytes, holding.size_bytes


def caches(session: Session, weights: Weights) -> "Caches | None":
    """None where it does not matter what nodes have, or none has anything."""
    if not weights[CACHED] or session.scalar(select(CachedSource.source).limit(1)) is None:
        return None
    return Caches(session)


class Caches:
    """Of the sources that are asked for, who has them; each is looked up once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._sources: dict[str, Source | None] = {}
        self._of: dict[tuple[Source, ...], Cached] = {}

    def look_up(self, specs: Iterable[Mapping[str, Any]]) -> None:
        """Find at once what these documents name."""
        keys = dict.fromkeys(key for spec in specs for key in _keys(spec))
        new = [key for key in keys if key not in self._sources]
        for start in range(0, len(new), _KEYS_AT_ONCE):
            self._find(new[start : start + _KEYS_AT_ONCE])

    def of(self, spec: Mapping[str, Any]) -> Cached:
        """The same for all jobs that read the same of what is held anywhere."""
        keys = _keys(spec)
        if not self._sources.keys() >= set(keys):
            self.look_up([spec])
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


def _source(rows: Mapping[str, tuple[int, int]]) -> Source:
    """Nodes may know it in different versions; the largest is what a job has to expect."""
    size = max(1, *(size_bytes for _, size_bytes in rows.values()))
    return Source(size_bytes=size, held={node: min(1.0, held_bytes / size) for node, (held_bytes, _) in rows.items()})


def _keys(spec: Mapping[str, Any]) -> Sequence[str]:
    try:
        return source_keys(spec)
    except (KeyError, TypeError, AttributeError):  # a document that cannot be planned, of which another tells
        return ()
