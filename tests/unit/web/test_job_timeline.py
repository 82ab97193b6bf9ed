"""Attempts as bars of one time axis."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.web.job_timeline import Bar, rows

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Ran:
    number: int
    created_at: datetime
    started_at: datetime | None = None
    trained_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Saved:
    attempt: int
    created_at: datetime


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_each_part_of_an_attempt_has_its_place_on_the_axis():
    first = Ran(number=1, created_at=NOON, started_at=after(5), trained_at=after(10), ended_at=after(50))
    second = Ran(number=2, created_at=after(80), started_at=after(85))

    found = rows([first, second], [Saved(attempt=1, created_at=after(25))], after(100))

    assert found[0].bars == [
        Bar(kind="placed", x=0, width=50, seconds=5),
        Bar(kind="starting", x=50, width=50, seconds=5),
        Bar(kind="trained", x=100, width=400, seconds=40),
    ]
    assert found[0].saved == [250]
    assert found[1].bars == [
        Bar(kind="placed", x=800, width=50, seconds=5),
        Bar(kind="starting", x=850, width=150, seconds=15),
    ]
    assert [row.seconds for row in found] == [45, 15]


def test_an_attempt_that_never_started_has_no_duration():
    found = rows([Ran(number=1, created_at=NOON, ended_at=after(5))], [], after(100))

    assert [bar.kind for bar in found[0].bars] == ["placed"]
    assert found[0].seconds is None


def test_short_parts_stay_visible():
    ran = Ran(number=1, created_at=NOON, started_at=after(0.001), trained_at=after(0.002), ended_at=after(1000))

    assert min(bar.width for bar in rows([ran], [], after(1000))[0].bars) == 1


def test_a_job_without_attempts_has_no_rows():
    assert rows([], [], NOON) == []
