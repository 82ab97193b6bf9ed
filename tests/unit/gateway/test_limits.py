"""Requests and tokens a minute: what a key may take at once, how it refills, and what headers say."""

import pytest

from app.domain.errors import LimitExceeded
from app.gateway.limits import KeyLimits, MinuteBuckets


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_minute_refills_it(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=2, tokens_per_minute=0, clock=clock)
    limits.admit("key")
    limits.admit("key")

    with pytest.raises(LimitExceeded) as refused:
        limits.admit("key")
    clock.now += 30
    limits.admit("key")

    assert refused.value.retry_after_seconds == 30
    assert refused.value.message == "this key may use 2 requests a minute; retry in 30 s"


def test_keys_do_not_share(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=1, tokens_per_minute=0, clock=clock)

    limits.admit("one")
    limits.admit("other")

    assert limits.headers("one")["X-Ratelimit-Remaining-Requests"] == "0"


def test_tokens_may_be_overdrawn_once(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=0, tokens_per_minute=60, clock=clock)
    limits.admit("key")
    limits.charge("key", 90)

    with pytest.raises(LimitExceeded) as refused:
        limits.admit("key")
    clock.now += 31
    limits.admit("key")

    assert refused.value.retry_after_seconds == 31


def test_a_refused_request_takes_nothing(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=10, tokens_per_minute=1, clock=clock)
    limits.charge("key", 5)

    with pytest.raises(LimitExceeded):
        limits.admit("key")

    assert limits.headers("key")["X-Ratelimit-Remaining-Requests"] == "10"


def test_headers_name_the_limits_there_are(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=0, tokens_per_minute=600, clock=clock)
    limits.charge("key", 15)

    assert limits.headers("key") == {
        "X-Ratelimit-Limit-Tokens": "600",
        "X-Ratelimit-Remaining-Tokens": "585",
        "X-Ratelimit-Reset-Tokens": "1.5s",
    }
    assert KeyLimits(requests_per_minute=0, tokens_per_minute=0).headers("key") == {}


def test_the_least_recently_used_key_is_dropped(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gateway.limits.MAX_KEYS", 2)
    buckets = MinuteBuckets(10, clock)

    for name in ("a", "b", "a", "c"):
        buckets.take(name, 1)

    assert [buckets.level(name) for name in ("a", "b", "c")] == [8.0, 10.0, 9.0]
