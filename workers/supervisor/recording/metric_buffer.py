"""Metric points that wait for the database: bounded; when there are too many, every series is thinned out."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice

from app.services.telemetry.stored_metrics import MetricValue
from config.redaction import Redaction
from trainyard.protocol.messages import MAX_NAME

# Written within seconds once the database is back; a day of an ordinary training fits.
MAX_POINTS = 50_000
MAX_NAMES = 1000


class MetricNames:
    """The first ``MAX_NAMES`` names of a job, without secrets in them; points of further ones are left out."""

    def __init__(
        self, known: Sequence[str] = (), *, limit: int = MAX_NAMES, redaction: Redaction | None = None
    ) -> None:
        self._shown = {name: name for name in islice(known, limit)}
        self._limit = limit
        self._redaction = redaction or Redaction()
        self.overflowed = False

    def admit(self, values: Mapping[str, float]) -> dict[str, float]:
        """The values whose names are admitted."""
        admitted = {}
        for name, value in values.items():
            shown = self._shown.get(name)
            if shown is None:
                if len(self._shown) >= self._limit:
                    self.overflowed = True
                    continue
                shown = self._shown[name] = self._masked(name)
            admitted[shown] = value
        return admitted

    def masked(self, values: Mapping[str, float]) -> dict[str, float]:
        """All values, with secrets masked in their names."""
        return {self._masked(name): value for name, value in values.items()}

    def _masked(self, name: str) -> str:
        return self._redaction.bounded(name, MAX_NAME)[:MAX_NAME]


class MetricBacklog:
    """Points in the order they came. Not for several threads at once: its owner locks."""

    def __init__(self, limit: int = MAX_POINTS) -> None:
        self._limit = limit
        self._points: deque[MetricValue] = deque()

    def __len__(self) -> int:
        return len(self._points)

    def add(self, points: Sequence[MetricValue]) -> None:
        for point in points:
            if len(self._points) >= self._limit:
                self._thin()
            self._points.append(point)

    def first(self, count: int) -> list[MetricValue]:
        """The oldest points; they stay until they are dropped."""
        return list(islice(self._points, count))

    def drop(self, points: Sequence[MetricValue]) -> None:
        """Remove points that ``first`` returned; some may have been thinned out meanwhile."""
        written = {id(point) for point in points}
        while self._points and id(self._points[0]) in written:
            self._points.popleft()

    def _thin(self) -> None:
        """Keep every second point of each series, and its newest; drop the oldest of all when that is not enough."""
        seen: Counter[str] = Counter()
        kept: deque[MetricValue] = deque()
        for point in reversed(self._points):
            if seen[point.name] % 2 == 0:
                kept.appendleft(point)
            seen[point.name] += 1
        while len(kept) >= self._limit:
            kept.popleft()
        self._points = kept
