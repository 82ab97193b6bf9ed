"""How often somebody may ask: a bucket that fills steadily, and out of which each request takes a token."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """So many tokens come per second, and at most ``burst`` are kept. None come at all: there is no limit."""

    per_second: float
    burst: int

    @property
    def is_limited(self) -> bool:
        return self.per_second > 0

    @property
    def portion(self) -> int:
        """How many tokens are fetched from a shared bucket at once: what comes in a fiftieth of a second."""
        return max(1, min(self.burst // 50, int(self.per_second / 50)))


@dataclass(frozen=True)
class Bucket:
    tokens: float
    at: float  # when it held as many, on any clock that goes forward


@dataclass(frozen=True)
class Draw:
    """What a request for tokens brought; ``wait_seconds`` says when the next one comes if it brought none."""

    granted: int
    wait_seconds: float = 0.0


def draw(bucket: Bucket | None, rate: Rate, *, now: float, wanted: int = 1) -> tuple[Bucket, Draw]:
    """Take up to ``wanted`` tokens; a bucket that nobody has used is full."""
    filled = float(rate.burst) if bucket is None else bucket.tokens + max(0.0, now - bucket.at) * rate.per_second
    tokens = min(float(rate.burst), filled)
    granted = min(wanted, int(tokens))
    wait = 0.0 if granted else (1.0 - tokens) / rate.per_second
    return Bucket(tokens - granted, now), Draw(granted, wait)
