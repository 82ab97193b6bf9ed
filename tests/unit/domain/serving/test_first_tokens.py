"""Times to first tokens in classes: which class, how they add up, and what share stays below what."""

import pytest

from app.domain.serving.first_tokens import BOUNDS, CLASSES, WINDOW_SECONDS, added, class_of, quantile
from app.gateway.first_tokens import FirstTokens


def counts(*seconds: float) -> list[int]:
    found = [0] * CLASSES
    for each in seconds:
        found[class_of(each)] += 1
    return found


def test_quantile_lies_in_the_class_of_its_rank() -> None:
    found = counts(*[0.12] * 90, *[2.0] * 10)

    assert quantile(found, 0.5) == pytest.approx(0.1 + 0.05 * 50 / 90)
    assert quantile(found, 0.95) == 2.0  # the middle of 1.5 to 2.5
    assert quantile(counts(5000.0), 0.95) == BOUNDS[-1]
    assert quantile([], 0.95) is quantile(counts(), 0.95) is None


def test_counts_of_gateways_add_up() -> None:
    assert added((), counts(0.2)) == tuple(counts(0.2))
    assert added(counts(0.2, 9), counts(0.2)) == tuple(counts(0.2, 0.2, 9))


def test_streams_count_for_five_minutes() -> None:
    now = [100.0]
    recent = FirstTokens(lambda: now[0])
    recent.note("a", 0.2)
    now[0] += 60
    recent.note("a", 3.0)
    assert recent.counts("a") == tuple(counts(0.2, 3.0))
    assert recent.counts("b") == ()

    now[0] += WINDOW_SECONDS - 60

    assert recent.counts("a") == tuple(counts(3.0))
    now[0] += WINDOW_SECONDS
    assert recent.counts("a") == ()
