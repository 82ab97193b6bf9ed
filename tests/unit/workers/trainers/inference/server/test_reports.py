"""What a replica reports while it serves, by a clock of the test."""

from pathlib import Path

import pytest

from tests.builders.engine_specs import engine_spec
from tests.unit.workers.trainers.inference.server.socket_client import ServingSession
from workers.rank.run_context import RunContext
from workers.trainers.inference.serving.reports import Reports
from workers.trainers.inference.serving.requests import LoopCounts, Steps

IDLE, BUSY = LoopCounts(in_flight=0, waiting=0), LoopCounts(in_flight=3, waiting=2, adapters=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def session(tmp_path: Path) -> ServingSession:
    return ServingSession(engine_spec(tmp_path, run_dir=tmp_path), {})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reports(session: ServingSession, clock: Clock, tmp_path: Path) -> Reports:
    return Reports(RunContext(engine_spec(tmp_path, run_dir=tmp_path), session), now=clock)


def test_load_and_speed_are_reported_every_two_seconds(reports: Reports, session: ServingSession, clock: Clock) -> None:
    for second in range(1, 5):
        clock.now = second
        reports.step(Steps(steps=10 * second, tokens=30 * second))
        reports.update(BUSY, works=True)

    assert session.values == [
        {"step": 20, "in_flight": 3.0, "waiting": 2.0, "adapters": 1.0, "tokens_per_second": 30.0},
        {"step": 40, "in_flight": 3.0, "waiting": 2.0, "adapters": 1.0, "tokens_per_second": 30.0},
    ]
    assert [(each.step, each.tokens) for each in session.steps] == [(20, 60), (40, 120)]


def test_idle_replica_says_so_once(reports: Reports, session: ServingSession, clock: Clock) -> None:
    for second in range(10):
        clock.now = second
        reports.update(IDLE, works=False)

    assert session.sections == ["idle"]
    assert [values["in_flight"] for values in session.values] == [0.0]
    assert session.steps == []


def test_section_ends_when_work_begins(reports: Reports, session: ServingSession) -> None:
    reports.update(IDLE, works=False)
    reports.update(BUSY, works=True)
    reports.update(IDLE, works=False)
    reports.close()

    assert session.sections == ["idle", None, "idle", None]


def test_hanging_engine_makes_no_steps_but_has_load(reports: Reports, session: ServingSession, clock: Clock) -> None:
    reports.step(Steps(steps=5, tokens=5))
    for second in (2, 4, 6):
        clock.now = second
        reports.update(BUSY, works=True)

    assert [each.step for each in session.steps] == [5]
    assert [values["step"] for values in session.values] == [5, 6, 7]
