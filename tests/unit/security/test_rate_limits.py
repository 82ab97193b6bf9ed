"""Limits by key: what is refused, what is fetched at once, and what happens without Redis."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.domain.errors import LimitExceeded
from app.domain.token_bucket import Draw, Rate
from app.security import rate_limits, shared_buckets
from app.security.rate_limits import LocalBuckets, RateLimit
from app.security.shared_buckets import SharedBuckets
from tests.systems.servers import free_port


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counted(LocalBuckets):
    """Buckets that count their calls."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.asked = 0

    def draw(self, name: str, rate: Rate, requested: int) -> Draw:
        self.asked += 1
        return super().draw(name, rate, requested)


def served(limit: RateLimit, name: str, tries: int) -> int:
    """The number of requests that were accepted."""
    count = 0
    for _ in range(tries):
        try:
            limit.check(name, message="too fast")
        except LimitExceeded:
            continue
        count += 1
    return count


def test_a_burst_is_served_and_then_the_rate() -> None:
    clock = Clock()
    limit = RateLimit(Rate(10.0, 20), LocalBuckets(clock), clock=clock)

    assert served(limit, "key-1", 30) == 20
    clock.now += 0.5
    assert served(limit, "key-1", 30) == 5
    clock.now += 100.0
    assert served(limit, "key-1", 30) == 20


def test_keys_do_not_take_from_each_other() -> None:
    clock = Clock()
    limit = RateLimit(Rate(10.0, 20), LocalBuckets(clock), clock=clock)
    served(limit, "key-1", 30)

    assert served(limit, "key-2", 30) == 20


@pytest.mark.parametrize(("per_second", "seconds"), [(10.0, 1), (0.2, 5), (0.3, 4)])
def test_a_refusal_says_in_whole_seconds_when_to_come_again(per_second: float, seconds: int) -> None:
    clock = Clock()
    limit = RateLimit(Rate(per_second, 1), LocalBuckets(clock), clock=clock)
    limit.check("key-1", message="too fast")

    with pytest.raises(LimitExceeded, match="too fast") as refused:
        limit.check("key-1", message="too fast")

    assert refused.value.retry_after_seconds == seconds
    clock.now += seconds
    limit.check("key-1", message="too fast")


def test_tokens_are_fetched_in_portions_and_not_while_none_are_left() -> None:
    clock = Clock()
    buckets = Counted(clock)
    limit = RateLimit(Rate(100.0, 200), buckets, clock=clock)

    assert served(limit, "key-1", 200) == 200
    assert buckets.asked == 100
    served(limit, "key-1", 1)
    asked = buckets.asked
    assert served(limit, "key-1", 500) == 0
    assert buckets.asked == asked


def test_threads_that_fetch_at_the_same_moment_lose_and_gain_nothing() -> None:
    clock = Clock()
    limit = RateLimit(Rate(1000.0, 2000), LocalBuckets(clock), clock=clock)

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda _: served(limit, "key-1", 500), range(8)))

    assert sum(counts) == 2000


def test_a_portion_that_was_not_used_is_lost() -> None:
    clock = Clock()
    buckets = Counted(clock)
    limit = RateLimit(Rate(100.0, 200), buckets, clock=clock)
    limit.check("key-1", message="")
    clock.now += rate_limits.BATCH_SECONDS

    limit.check("key-1", message="")

    assert buckets.asked == 2


def test_without_a_rate_no_bucket_is_asked() -> None:
    clock = Clock()
    buckets = Counted(clock)

    assert served(RateLimit(Rate(0.0, 1), buckets, clock=clock), "key-1", 100) == 100
    assert buckets.asked == 0


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 3)
    clock = Clock()
    limit = RateLimit(Rate(10.0, 1), LocalBuckets(clock), clock=clock)

    assert [served(limit, f"address:{number}", 2) for number in range(10)] == [1] * 10
    assert served(limit, "address:9", 1) == 0
    assert served(limit, "address:0", 1) == 1


def test_without_redis_each_process_counts_its_own() -> None:
    clock = Clock()
    buckets = SharedBuckets(f"redis://:secret@127.0.0.1:{free_port()}/0", clock=clock)
    limit = RateLimit(Rate(10.0, 20), buckets, clock=clock)

    assert served(limit, "key-1", 30) == 20
    clock.now += shared_buckets.RETRY_SECONDS * 2
    assert served(limit, "key-1", 5) == 5
