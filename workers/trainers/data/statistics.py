"""Length statistics of tokenized records: count, length distribution, truncation."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

QUANTILES = (0.5, 0.9, 0.99)


class LengthStatistics:
    """Exact counts of token lengths before truncation: there are far fewer distinct lengths than records."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.truncated = 0
        self.dropped = 0

    def add(self, full_length: int, *, truncated: bool, dropped: bool = False) -> None:
        """`dropped`: truncation left no labels in it."""
        self.counts[full_length] += 1
        self.truncated += truncated
        self.dropped += dropped

    def update(self, other: "LengthStatistics") -> None:
        self.counts.update(other.counts)
        self.truncated += other.truncated
        self.dropped += other.dropped

    @property
    def records(self) -> int:
        """Number of tokenized records, dropped ones included."""
        return self.counts.total()

    def to_document(self) -> dict[str, Any]:
        """`records`, `dropped`, `truncated_share` 0 to 1, `tokens`, `lengths` {"0.5", "0.9", "0.99", "max"}."""
        return {
            "records": self.records,
            "dropped": self.dropped,
            "truncated_share": self.truncated / self.records if self.records else 0.0,
            "tokens": sum(length * count for length, count in self.counts.items()),
            "lengths": self._quantiles(),
        }

    def state(self) -> dict[str, Any]:
        """The complete state as JSON, for `restored`."""
        return {"counts": sorted(self.counts.items()), "truncated": self.truncated, "dropped": self.dropped}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "LengthStatistics":
        lengths = cls()
        lengths.counts.update({int(length): int(count) for length, count in state["counts"]})
        lengths.truncated, lengths.dropped = state["truncated"], state["dropped"]
        return lengths

    def _quantiles(self) -> dict[str, int]:
        """The smallest length that at least this share of the records does not exceed."""
        found: dict[str, int] = {}
        seen = 0
        for length, count in sorted(self.counts.items()):
            seen += count
            for share in QUANTILES:
                if seen >= share * self.records:
                    found.setdefault(str(share), length)
        return {**found, "max": max(self.counts)} if self.counts else {}


def merged(parts: Iterable[LengthStatistics]) -> LengthStatistics:
    """The combined statistics."""
    total = LengthStatistics()
    for part in parts:
        total.update(part)
    return total
