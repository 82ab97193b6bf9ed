"""Lease expiry by counters and the observer's monotonic clock, never by a wall clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass
class StandstillWatch:
    """Tracks since when each counter is unchanged; ``observe`` returns the keys unchanged for ``limit_seconds``.

    Call ``reset`` after a failed read: an outage of the observer does not count against the holder. At least
    ``min_reads`` reads must have seen the same counter.
    """

    limit_seconds: float
    min_reads: int = 3
    _seen: dict[str, tuple[int, float, int]] = field(default_factory=dict)

    def observe(
        self,
        counters: Iterable[tuple[str, int]],
        now_seconds: float,
        limits: Mapping[str, float] = MappingProxyType({}),
    ) -> list[str]:
        """Record one read; ``limits`` overrides ``limit_seconds`` per key."""
        seen: dict[str, tuple[int, float, int]] = {}
        expired = []
        for key, counter in counters:
            before, since, reads = self._seen.get(key, (counter, now_seconds, 0))
            if before != counter:
                since, reads = now_seconds, 0
            seen[key] = (counter, since, reads + 1)
            limit = limits.get(key, self.limit_seconds)
            if now_seconds - since >= limit and reads + 1 >= self.min_reads:
                expired.append(key)
        self._seen = seen
        return expired

    def reset(self) -> None:
        self._seen = {}
