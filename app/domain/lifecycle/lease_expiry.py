"""When a lease may be taken away, judged by counters and one's own monotonic clock, never by a wall clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass
class StandstillWatch:
    """Remembers since when each counter stands still; ``observe`` returns the keys that stood for ``limit_seconds``.

    A failed read must be told by ``reset``: time in which nobody could look does not count against the holder.
    At least ``min_reads`` reads must have seen the same counter.
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
        """``limits``: the seconds of those keys that have others than ``limit_seconds``."""
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
