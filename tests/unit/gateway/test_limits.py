"""Requests and tokens a minute: what a key may take at once, how it refills, and what headers say."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import pytest

from app.domain.errors import LimitExceeded
from app.gateway.limit_sharing import LimitSharing
from app.gateway.limits import KeyLimits, MinuteBuckets
from app.security.permissions import Caller, Role
from app.security.shared_levels import SharedLevels, Withdrawal
from tests.systems.servers import free_port


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def key(key_id: str = "key", **own: int | None) -> Caller:
    return Caller(key_id=key_id, role=Role.INFERENCE, project="default", **own)


def test_a_minute_refills_it(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=2, tokens_per_minute=0, clock=clock)
    limits.admit(key())
    limits.admit(key())

    with pytest.raises(LimitExceeded) as refused:
        limits.admit(key())
    clock.now += 30
    limits.admit(key())

    assert refused.value.retry_after_seconds == 30
    assert refused.value.message == "this key may use 2 requests a minute; retry in 30 s"


def test_keys_do_not_share(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=1, tokens_per_minute=0, clock=clock)

    limits.admit(key("one"))
    limits.admit(key("other"))

    assert limits.headers(key("one"))["X-Ratelimit-Remaining-Requests"] == "0"


def test_tokens_may_be_overdrawn_once(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=0, tokens_per_minute=60, clock=clock)
    limits.admit(key())
    limits.charge(key(), 90)

    with pytest.raises(LimitExceeded) as refused:
        limits.admit(key())
    clock.now += 31
    limits.admit(key())

    assert refused.value.retry_after_seconds == 31


def test_a_refused_request_takes_nothing(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=10, tokens_per_minute=1, clock=clock)
    limits.charge(key(), 5)

    with pytest.raises(LimitExceeded):
        limits.admit(key())

    assert limits.headers(key())["X-Ratelimit-Remaining-Requests"] == "10"


def test_headers_name_the_limits_there_are(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=0, tokens_per_minute=600, clock=clock)
    limits.charge(key(), 15)

    assert limits.headers(key()) == {
        "X-Ratelimit-Limit-Tokens": "600",
        "X-Ratelimit-Remaining-Tokens": "585",
        "X-Ratelimit-Reset-Tokens": "1.5s",
    }
    assert KeyLimits(requests_per_minute=0, tokens_per_minute=0).headers(key()) == {}


def test_the_least_recently_used_key_is_dropped(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gateway.limits.MAX_KEYS", 2)
    buckets = MinuteBuckets("requests", clock)

    for name in ("a", "b", "a", "c"):
        buckets.take(name, 10, 1)

    assert [buckets.level(name, 10) for name in ("a", "b", "c")] == [8.0, 10.0, 9.0]


def test_limits_of_a_key_take_the_place_of_the_settings(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=1, tokens_per_minute=10, clock=clock)
    own = key("own", requests_per_minute=3, tokens_per_minute=0)

    for _ in range(3):
        limits.admit(own)
        limits.charge(own, 1000)

    with pytest.raises(LimitExceeded, match="this key may use 3 requests a minute"):
        limits.admit(own)
    assert set(limits.headers(own)) == {f"X-Ratelimit-{each}-Requests" for each in ("Limit", "Remaining", "Reset")}
    assert limits.headers(key())["X-Ratelimit-Limit-Tokens"] == "10"
    limits.admit(key("own", requests_per_minute=0))  # raised meanwhile


def test_a_lower_limit_counts_at_once(clock: Clock) -> None:
    limits = KeyLimits(requests_per_minute=0, tokens_per_minute=0, clock=clock)
    limits.admit(key(requests_per_minute=100))

    limits.admit(key(requests_per_minute=1))

    with pytest.raises(LimitExceeded):
        limits.admit(key(requests_per_minute=1))


def test_gateways_count_together(clock: Clock, redis_url: str) -> None:
    first, second = (KeyLimits(requests_per_minute=10, tokens_per_minute=100, clock=clock) for _ in range(2))
    for _ in range(4):
        first.admit(key())
    first.charge(key(), 130)
    second.admit(key())

    share(first, second, first, levels=SharedLevels(redis_url))

    assert remaining(first) == remaining(second) == ("5", "0")
    with pytest.raises(LimitExceeded, match=r"tokens a minute; retry in 1[89] s"):
        second.admit(key())


def test_without_redis_each_gateway_counts_by_itself_and_owes_no_more_than_it_lacks(
    clock: Clock, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits, other = (KeyLimits(requests_per_minute=10, tokens_per_minute=0, clock=clock) for _ in range(2))
    away = SharedLevels(f"redis://127.0.0.1:{free_port()}/0")
    for _ in range(60):  # ten minutes, in which the key uses all that it may
        limits.admit(key())
        share(limits, levels=away)
        clock.now += 6
    for _ in range(4):
        limits.admit(key())
    other.admit(key())

    share(limits, other, levels=SharedLevels(redis_url))

    assert [record.message[:36] for record in caplog.records] == ["Redis is unavailable for the limits "]
    assert (remaining(limits)[0], remaining(other)[0]) == ("6", "5")


@pytest.mark.parametrize("gateways", [1, 2, 8])
def test_gateways_that_are_asked_evenly_keep_the_limit_together(clock: Clock, gateways: int) -> None:
    asked = [KeyLimits(requests_per_minute=750, tokens_per_minute=0, clock=clock) for _ in range(gateways)]
    together = MinuteBuckets("together", clock)  # by the rules of the one in Redis
    let_through = 0

    for step in range(1, 3001):  # five minutes, in which each gateway alone would be asked less than the limit
        clock.now = 100 + step / 10
        for limits in asked:
            with contextlib.suppress(LimitExceeded):
                limits.admit(key())
                let_through += 1
        for limits in asked if step % 10 == 0 else ():
            taken = limits.requests.unshared()
            for each in taken:
                together.take(each.name, each.per_minute, each.amount)
            limits.requests.shared(taken, [together.level(each.name, each.per_minute) for each in taken])

    if gateways == 1:
        assert let_through == 3000
    else:  # one bucket, what refills, and what all let through within a second
        assert 5 * 750 <= let_through <= 6 * 750 + gateways * 750 / 60


def test_a_failure_is_logged_once_until_it_works_again(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    limits = KeyLimits(requests_per_minute=10, tokens_per_minute=100, clock=clock)
    limits.admit(key())
    limits.charge(key(), 10)
    works = False

    async def thread(_: object, taken: Sequence[Withdrawal]) -> list[float]:
        if not works:
            raise RuntimeError("no thread can be started")
        return [9.0 for _ in taken]

    sharing = LimitSharing(limits, SharedLevels("redis://127.0.0.1/0"), thread)
    for now_works in (False, False, True, False, False):
        works = now_works
        limits.admit(key())
        asyncio.run(sharing.share())

    assert [record.message[:39] for record in caplog.records] == ["what keys have used could not be shared"] * 2


def test_what_is_taken_while_others_are_told_still_counts(clock: Clock) -> None:
    buckets = MinuteBuckets("requests", clock)
    buckets.take("key", 10, 3)
    told = buckets.unshared()
    buckets.take("key", 10, 2)

    buckets.shared(told, [7.0])

    assert buckets.level("key", 10) == 5.0
    assert [each.amount for each in buckets.unshared()] == [2.0]


def share(*gateways: KeyLimits, levels: SharedLevels) -> None:
    """Each in turn, as once in a second."""

    async def here(
        function: Callable[[Sequence[Withdrawal]], list[float] | None], taken: Sequence[Withdrawal]
    ) -> list[float] | None:
        return function(taken)

    for limits in gateways:
        asyncio.run(LimitSharing(limits, levels, here).share())
    levels.close()


def remaining(limits: KeyLimits) -> tuple[str, str | None]:
    found = limits.headers(key())
    return found["X-Ratelimit-Remaining-Requests"], found.get("X-Ratelimit-Remaining-Tokens")
