"""Promotions: for any order of reports the best of a rung continue, one rung after the other, and no more than may."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.sweeps.promotions import Ladder, halts, halts_of, waits
from app.domain.sweeps.rungs import RungReport, rungs_of
from app.domain.sweeps.spec import EarlyStopping, Method, SweepSpec

ASHA = EarlyStopping(name="asha", min=1, max=27, losers="pause")
VALUES = st.floats(allow_nan=False, allow_infinity=False, width=16)


def report(number: int, value: float, *, rung: int = 1, bracket: int = 0) -> RungReport:
    return RungReport(number=number, rung=rung, value=value, seq=number, bracket=bracket)


def ladder_of(*reports: RungReport, rule: EarlyStopping = ASHA) -> Ladder:
    ladder = Ladder(rule)
    for each in reports:
        ladder.add(each, waits=True)
    return ladder


def numbers(ladder: Ladder, *, least: int = 0) -> list[int]:
    return [each.report.number for each in ladder.take(100, least=least)]


@pytest.mark.parametrize(
    ("rule", "bracket", "expected"),
    [
        ({"name": "asha", "min": 100, "max": 900}, 0, (100, 300)),
        ({"name": "asha", "min": 100, "max": 899}, 0, (100, 300)),
        ({"name": "hyperband", "min": 100, "max": 900}, 1, (300,)),
        ({"name": "patience", "min": 100, "max": 300}, 0, (100, 200)),
        ({"name": "asha", "min": 100, "max": 900, "losers": "stop"}, 0, ()),
        ({"name": "none"}, 0, ()),
    ],
)
def test_trials_halt_at_every_rung_below_the_last(
    rule: dict[str, object], bracket: int, expected: tuple[int, ...]
) -> None:
    assert halts_of(EarlyStopping(**{"losers": "pause", **rule}), bracket) == expected  # type: ignore[arg-type]  # cases


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SweepSpec(early_stopping=ASHA), (True, True)),
        (SweepSpec(early_stopping=replace(ASHA, name="median")), (True, False)),
        (SweepSpec(early_stopping=replace(ASHA, losers="stop")), (False, False)),
        (SweepSpec(method=Method(name="pbt")), (True, True)),
    ],
)
def test_halted_trials_wait_where_others_decide(spec: SweepSpec, expected: tuple[bool, bool]) -> None:
    assert (halts(spec), waits(spec)) == expected


def test_nothing_is_promoted_among_fewer_than_the_reduction() -> None:
    ladder = ladder_of(report(0, 0.1), report(1, 0.2))

    assert ladder.first() is None
    assert numbers(ladder, least=1) == [0]


def test_the_highest_rung_comes_first_then_the_best_value_then_the_lowest_number() -> None:
    low = [report(number, 0.5 if number < 2 else 1.0) for number in range(6)]
    high = [report(number, 5.0 + number, rung=3) for number in range(6, 9)]

    assert numbers(ladder_of(*low, *high)) == [6, 0, 1]


def test_brackets_are_ranked_apart() -> None:
    ladder = ladder_of(*(report(number, float(number), rung=3, bracket=number % 2) for number in range(6)))

    assert numbers(ladder) == [0, 1]


def test_one_that_is_decided_still_counts_among_the_others() -> None:
    ladder = ladder_of(*(report(number, float(number)) for number in range(3)))
    ladder.take(1)
    ladder.add(report(3, -1.0), waits=True)

    assert ladder.standing(report(3, -1.0)).of == 4
    assert numbers(ladder) == [3]


def test_a_value_that_is_not_finite_is_never_promoted() -> None:
    ladder = ladder_of(*(report(number, math.nan) for number in range(6)))

    assert (ladder.first(least=6), ladder.best(), len(ladder.waiting())) == (None, None, 6)


def test_the_best_has_come_furthest() -> None:
    best = ladder_of(report(0, 0.1), report(1, 9.0, rung=3), report(2, 8.0, rung=3)).best()

    assert best is not None
    assert (best.report.number, best.rank, best.of) == (2, 1, 2)


@given(values=st.lists(VALUES, max_size=40), reduction=st.integers(2, 5))
def test_of_reports_that_are_there_exactly_the_best_share_is_promoted(values: list[float], reduction: int) -> None:
    reports = [report(number, value) for number, value in enumerate(values)]
    promoted = numbers(ladder_of(*reports, rule=replace(ASHA, reduction=reduction)))

    best = sorted(reports, key=lambda each: (each.value, each.number))
    assert promoted == [each.number for each in best[: len(values) // reduction]]


@given(values=st.lists(VALUES, min_size=1, max_size=40), chance=st.randoms(use_true_random=False))
def test_in_any_order_of_reports_trials_climb_rung_by_rung_and_one_reaches_the_top(
    values: list[float], chance: random.Random
) -> None:
    ladder, rungs = Ladder(ASHA), rungs_of(ASHA)
    running = [(number, 0) for number in range(len(values))]  # number, place of its next rung
    reached: dict[int, list[int]] = {}
    while running:
        number, place = running.pop(chance.randrange(len(running)))
        rung = rungs[place]
        reached.setdefault(number, []).append(rung)
        ladder.add(report(number, values[number], rung=rung), waits=rung < ASHA.max)
        taken = ladder.take(chance.randint(0, 3)) if running else ladder.take(len(values), least=1)
        for each in taken:
            assert each.rank <= max(1, each.of // ASHA.reduction)
            running.append((each.report.number, rungs.index(each.report.rung) + 1))

    assert all(found == list(rungs[: len(found)]) for found in reached.values())
    assert any(found[-1] == ASHA.max for found in reached.values())
