"""Early stopping: rungs, brackets, and the invariants of each rule for any order of reports."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.sweeps.rungs import RungReport, RungVerdict, bracket_of, brackets_of, judge, rungs_of
from app.domain.sweeps.spec import EarlyStopping

ASHA = EarlyStopping(name="asha", min=1, max=27)
HYPERBAND = EarlyStopping(name="hyperband", min=1, max=27)
MEDIAN = EarlyStopping(name="median", min=1, max=27)
PATIENCE = EarlyStopping(name="patience", min=1, max=27)


def report(number: int, value: float, *, rung: int = 1, seq: int = 0, bracket: int = 0) -> RungReport:
    return RungReport(number=number, rung=rung, value=value, seq=seq, bracket=bracket)


def reports(values: list[float]) -> list[RungReport]:
    """Of one rung, each of another trial, in this order."""
    return [report(i, value, seq=i) for i, value in enumerate(values)]


def verdicts(rule: EarlyStopping, given_reports: list[RungReport]) -> list[RungVerdict]:
    return [judge(rule, mine, given_reports[:i]) for i, mine in enumerate(given_reports)]


@pytest.mark.parametrize(
    ("rule", "bracket", "expected"),
    [
        ({"name": "asha", "min": 100, "max": 900}, 0, (100, 300, 900)),
        ({"name": "median", "min": 100, "max": 899}, 0, (100, 300)),
        ({"name": "asha", "min": 5, "max": 5}, 0, (5,)),
        ({"name": "asha", "min": 1, "max": 20, "reduction": 2}, 0, (1, 2, 4, 8, 16)),
        ({"name": "hyperband", "min": 100, "max": 900}, 1, (300, 900)),
        ({"name": "hyperband", "min": 100, "max": 900}, 2, (900,)),
        ({"name": "patience", "min": 100, "max": 450}, 0, (100, 200, 300, 400)),
        ({"name": "none"}, 0, ()),
        ({"name": "asha"}, 0, ()),
    ],
)
def test_rungs(rule: dict[str, Any], bracket: int, expected: tuple[int, ...]) -> None:
    assert rungs_of(EarlyStopping(**rule), bracket) == expected


def test_only_hyperband_has_several_brackets() -> None:
    assert [brackets_of(rule) for rule in (ASHA, MEDIAN, PATIENCE, EarlyStopping(), HYPERBAND)] == [1, 1, 1, 1, 4]
    assert {bracket_of(ASHA, number) for number in range(50)} == {0}


def test_brackets_have_the_trials_of_hyperband() -> None:
    # The paper's n = ⌈brackets × 3ˢ / (s + 1)⌉ for s = 3, 2, 1, 0.
    counts = Counter(bracket_of(HYPERBAND, number) for number in range(27 + 12 + 6 + 4))

    assert [counts[bracket] for bracket in range(4)] == [27, 12, 6, 4]


@given(st.integers(1, 40), st.integers(2, 5), st.integers(1, 2_000), st.integers(0, 10_000))
def test_any_number_has_a_bracket_with_rungs(least: int, reduction: int, factor: int, number: int) -> None:
    rule = EarlyStopping(name="hyperband", min=least, max=least * factor, reduction=reduction)

    bracket = bracket_of(rule, number)

    assert 0 <= bracket < brackets_of(rule)
    assert rungs_of(rule, bracket)[0] >= least


VALUES = st.lists(st.floats(allow_nan=True, width=16), min_size=1, max_size=40)


@pytest.mark.long
@given(VALUES, st.integers(2, 4))
def test_asha_continues_the_best_share_of_what_was_there(values: list[float], reduction: int) -> None:
    rule = EarlyStopping(name="asha", min=1, max=27, reduction=reduction)

    for i, verdict in enumerate(verdicts(rule, reports(values))):
        better = sum(other < values[i] for other in values[:i] if math.isfinite(other))
        kept = max(1, (i + 1) // reduction)
        assert verdict.of == i + 1
        assert verdict.continues == (math.isfinite(values[i]) and better < kept)
        assert 1 <= verdict.rank <= verdict.of


@given(VALUES)
def test_the_best_so_far_always_continues(values: list[float]) -> None:
    for i, verdict in enumerate(verdicts(ASHA, reports(values))):
        finite = [value for value in values[: i + 1] if math.isfinite(value)]
        if finite and values[i] == min(finite):
            assert (verdict.continues, verdict.rank) == (True, 1)


@given(VALUES, st.floats(allow_nan=False, allow_infinity=False, width=16), st.sampled_from([ASHA, HYPERBAND, MEDIAN]))
def test_a_better_value_never_does_worse(values: list[float], mine: float, rule: EarlyStopping) -> None:
    others = reports(values)
    for each in others:
        if math.isfinite(each.value) and each.value >= mine:
            worse = judge(rule, report(99, each.value, seq=99), others)
            better = judge(rule, report(99, mine, seq=99), others)
            assert better.continues or not worse.continues
            assert better.rank <= worse.rank


@pytest.mark.long
@given(VALUES, st.randoms(), st.sampled_from([ASHA, HYPERBAND, MEDIAN]))
def test_a_decision_does_not_depend_on_the_order_of_earlier_reports(
    values: list[float], order: Any, rule: EarlyStopping
) -> None:
    *others, mine = reports(values)
    mixed = list(others)
    order.shuffle(mixed)

    assert judge(rule, mine, mixed) == judge(rule, mine, others)


@given(VALUES)
def test_in_order_of_quality_asha_keeps_its_share(values: list[float]) -> None:
    """Worst first all continue, best first only the share: so a decision never waits for a later report."""
    finite = sorted({value for value in values if math.isfinite(value)})

    best_first = sum(verdict.continues for verdict in verdicts(ASHA, reports(finite)))
    worst_first = sum(verdict.continues for verdict in verdicts(ASHA, reports(finite[::-1])))

    assert best_first == min(len(finite), 1)
    assert worst_first == len(finite)


def test_other_rungs_and_brackets_are_not_compared() -> None:
    others = [report(0, 0.1, rung=3), report(1, 0.1, bracket=1), report(2, 0.9)]

    assert judge(HYPERBAND, report(3, 0.5), others) == RungVerdict(continues=True, rank=1, of=2)


def test_equal_values_have_an_equal_rank() -> None:
    assert verdicts(ASHA, reports([0.5] * 4)) == [RungVerdict(continues=True, rank=1, of=i) for i in range(1, 5)]


@pytest.mark.parametrize("rule", [ASHA, HYPERBAND, MEDIAN, PATIENCE])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_never_continues(rule: EarlyStopping, value: float) -> None:
    assert judge(rule, report(1, value), []) == RungVerdict(continues=False, rank=1, of=1)


def test_a_trial_at_the_end_continues() -> None:
    others = [report(i, 0.1, rung=27) for i in range(9)]

    assert judge(ASHA, report(9, 0.9, rung=27), others) == RungVerdict(continues=True, rank=10, of=10)


def test_without_early_stopping_all_continue() -> None:
    assert all(judge(EarlyStopping(), report(1, value), []).continues for value in (math.nan, 1.0))


@pytest.mark.parametrize(
    ("others", "mine", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], 9.0, True),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 3.0, True),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 3.1, False),
        ([1.0, 2.0, math.nan, math.nan, math.nan], 8.0, True),
        ([1.0, 2.0, 3.0, math.nan, math.inf], 3.1, False),
    ],
)
def test_median_stops_what_is_worse_than_half(others: list[float], mine: float, expected: object) -> None:
    assert judge(MEDIAN, report(9, mine), reports(others)).continues is expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 2.0, 1.0, 0.5], [True] * 4),
        ([1.0, 2.0, 2.0, 2.0], [True, True, True, False]),
        ([2.0, 3.0, 1.0, 3.0, 3.0], [True] * 5),
        ([1.0, 1.0, 1.0, 1.0], [True, True, True, False]),
    ],
)
def test_patience_ends_without_an_improvement(values: list[float], expected: list[bool]) -> None:
    mine = [report(7, value, rung=i + 1, seq=i) for i, value in enumerate(values)]
    strangers = [report(8, 0.0, rung=i + 1, seq=50 + i) for i in range(9)]

    assert [judge(PATIENCE, each, [*strangers, *mine[:i]]).continues for i, each in enumerate(mine)] == expected
