"""Token bucket for rate limiting: it fills steadily, and each request takes a token."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """Refill rate in tokens per second, and capacity. A rate of 0 means no limit."""

    per_second: float
    burst: int

    @property
    def is_limited(self) -> bool:
        return self.per_second > 0

    @property
    def portion(self) -> int:
        """Number of tokens to fetch from a shared bucket at once: the refill of 20 ms."""
        return max(1, min(self.burst // 50, int(self.per_second / 50)))


@dataclass(frozen=True)
class Bucket:
    tokens: float
    at: float  # time of that level, by any monotonic clock


@dataclass(frozen=True)
class Draw:
    """Result of a draw; ``wait_seconds`` is the time until the next token if none was granted."""

    granted: int
    wait_seconds: float = 0.0


def draw(bucket: Bucket | None, rate: Rate, *, now: float, requested: int = 1) -> tuple[Bucket, Draw]:
    """Take up to ``requested`` tokens; a new bucket (None) is full."""
    filled = float(rate.burst) if bucket is None else bucket.tokens + max(0.0, now - bucket.at) * rate.per_second
    tokens = min(float(rate.burst), filled)
    granted = min(requested, int(tokens))
    wait = 0.0 if granted else (1.0 - tokens) / rate.per_second
    return Bucket(tokens - granted, now), Draw(granted, wait)
