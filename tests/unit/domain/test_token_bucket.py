"""Buckets fill steadily, keep no more than they hold, and say when the next token comes."""

import pytest

from app.domain.token_bucket import Bucket, Draw, Rate, draw

RATE = Rate(per_second=2.0, burst=4)


def test_a_new_bucket_is_full_and_gives_no_more_than_it_has() -> None:
    bucket, first = draw(None, RATE, now=10.0, requested=3)
    bucket, second = draw(bucket, RATE, now=10.0, requested=3)
    _, third = draw(bucket, RATE, now=10.0, requested=3)

    assert (first, second) == (Draw(3), Draw(1))
    assert third == Draw(0, wait_seconds=0.5)


def test_tokens_come_steadily_and_the_rest_is_kept() -> None:
    bucket, drawn = draw(Bucket(0.0, 10.0), RATE, now=10.75)

    assert drawn == Draw(1)
    assert bucket == Bucket(0.5, 10.75)


def test_nothing_is_saved_beyond_the_burst() -> None:
    _, drawn = draw(Bucket(0.0, 10.0), RATE, now=1000.0, requested=100)

    assert drawn == Draw(4)


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    bucket, drawn = draw(Bucket(1.0, 10.0), RATE, now=5.0)

    assert (bucket, drawn) == (Bucket(0.0, 5.0), Draw(1))


@pytest.mark.parametrize(
    ("per_second", "burst", "portion"),
    [(1000.0, 2000, 20), (200.0, 400, 4), (5.0, 10, 1), (1000.0, 10, 1), (0.5, 1, 1)],
)
def test_portions_are_a_small_part_of_what_may_come(per_second: float, burst: int, portion: int) -> None:
    assert Rate(per_second, burst).portion == portion


def test_no_rate_is_no_limit() -> None:
    assert not Rate(0.0, 1).is_limited
    assert Rate(0.1, 1).is_limited
