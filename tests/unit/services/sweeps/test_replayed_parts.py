"""Which trials one request for a replay computes."""

import pytest

from app.domain.errors import BadSpec
from app.services.sweeps.reading.replay import MOST_READ, MOST_TRIALS, part


def test_a_part_is_all_of_a_small_sweep_and_else_what_is_asked_for() -> None:
    assert part(0, None, None, is_learning=True) == range(0)
    assert part(MOST_TRIALS, None, None, is_learning=True) == range(MOST_TRIALS)
    assert part(90, 10, None, is_learning=False) == range(10, 90)
    assert part(90, None, 4, is_learning=False) == range(5)
    assert part(90, 80, 1_000, is_learning=False) == range(80, 90)


@pytest.mark.parametrize("is_learning", [False, True])
def test_parts_cover_a_sweep_without_gaps_and_within_the_limits(is_learning: bool) -> None:  # noqa: FBT001
    made, found = 10_000, [0]
    while found[-1] < made:
        numbers = part(made, found[-1], None, is_learning=is_learning)
        assert numbers.start == found[-1]
        assert 0 < len(numbers) <= MOST_TRIALS
        assert not is_learning or len(numbers) * numbers.stop <= MOST_READ
        found.append(numbers.stop)

    assert found[-1] == made
    assert len(found) - 1 == (14 if is_learning else 5)


@pytest.mark.parametrize(
    ("first", "last", "field", "said"),
    [
        (None, None, "from", "these are 3000 trials, and one request computes up to 2,000 from trial 0 on"),
        (0, 2_500, "to", "these are 2501 trials"),
        (3_000, None, "from", "the last one is 2999"),
        (5, 4, "to", "must be 5 or more"),
    ],
)
def test_a_part_that_is_too_large_or_not_there_is_refused(
    first: int | None, last: int | None, field: str, said: str
) -> None:
    with pytest.raises(BadSpec, match=said) as refused:
        part(3_000, first, last, is_learning=False)

    assert refused.value.field == field
