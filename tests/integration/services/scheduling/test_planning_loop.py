"""Between two full passes the planner sees who came and what ended, and nothing else."""

from datetime import timedelta
from typing import Any

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.planner import SchedulingPolicy
from app.models import Job
from app.models.base import utc_now
from app.services.attempts import leases, work_orders
from app.services.nodes import registry
from app.services.scheduling.placement import Dispatched
from app.services.scheduling.planning_loop import REST, UNCHANGED_REST, PlanningLoop
from tests.builders.factories import make_document
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node

pytestmark = pytest.mark.both_databases


class Clock:
    """Every pass takes a second of it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Planner:
    """A planning loop after its first, full pass."""

    def __init__(self, db: Database) -> None:
        self.clock = Clock()
        self._passes = PlanningLoop(db, "planner", self.clock)
        self.next_in: float | None = None  # what the last pass returned about the next one

    def look(self) -> list[str]:
        placed: list[Dispatched] = []
        self.next_in = self._passes.run_pass(SchedulingPolicy(), lambda _job, _node: None, placed.extend)
        return [each.job_id for each in placed]

    def look_at_everything(self) -> list[str]:
        self.clock.now += REST
        return self.look()


def queued(db: Database, count: int = 1, **columns: Any) -> str:
    document = make_document(resource_config={"gpu_count": count, "device_type": "cpu"})
    return make_job(db, state=JobState.QUEUED, document=document, **columns)


def finish(db: Database, job_id: str) -> None:
    assert leases.claim(db, job_id=job_id, attempt=1, node="n1", boot_id="boot") is not None
    work = work_orders.load_work(db, job_id, 1)
    work_orders.enter_phase(db, work, JobState.TRAINING)
    work_orders.finish(db, work, Outcome(kind="completed"), NO_WAIT)


def test_new_job_starts_on_free_devices_or_is_shown_why_not(database: Database) -> None:
    make_node(database, devices=2)
    queued(database, count=3)
    planner = Planner(database)
    assert planner.look() == []
    make_node(database, "n2", devices=8)

    first, second = queued(database), queued(database, count=2)

    assert planner.look() == [first], "there is a node by now that only a full pass sees"
    assert "needs 2 CPU slots on one node; free: 1 on n1" in job_of(database, second).pending_reason


def test_what_an_attempt_leaves_goes_to_the_first_in_line(database: Database) -> None:
    make_node(database, devices=2)
    runs = queued(database, count=2, priority=9)
    large, small, late = queued(database, count=3), queued(database), queued(database)
    planner = Planner(database)
    assert planner.look() == [runs]

    finish(database, runs)

    assert planner.look() == [small, late]
    finish(database, small)
    assert planner.look() == []
    assert job_of(database, large).state is JobState.QUEUED


def test_what_started_between_full_passes_is_seen_to_end(database: Database) -> None:
    make_node(database, devices=1)
    queued(database, count=3)
    planner = Planner(database)
    planner.look()
    first = queued(database)
    assert planner.look() == [first]
    second = queued(database)
    assert planner.look() == []

    finish(database, first)

    assert planner.look() == [second]


def test_a_full_pass_follows_at_once_when_the_node_of_what_ended_takes_no_more(database: Database) -> None:
    make_node(database, devices=1)
    runs, waits = queued(database, priority=9), queued(database)
    planner = Planner(database)
    assert planner.look() == [runs]
    make_node(database, "n2", devices=1)
    registry.set_state(database, "n1", "draining")

    finish(database, runs)

    assert planner.look() == [waits]
    assert job_of(database, waits).node_names == ["n2"]


def test_a_job_that_was_cancelled_since_is_not_placed(database: Database) -> None:
    make_node(database, devices=1)
    runs, cancelled, waits = queued(database, priority=9), queued(database, priority=8), queued(database)
    planner = Planner(database)
    assert planner.look() == [runs]
    with database.write() as session:
        session.get_one(Job, cancelled).status = JobState.CANCELLED

    finish(database, runs)

    assert planner.look() == []
    assert planner.look_at_everything() == [waits]


def test_without_waiting_jobs_no_pass_follows(database: Database) -> None:
    make_node(database, devices=1)
    planner = Planner(database)

    assert (planner.look(), planner.next_in) == ([], None)


def test_jobs_that_can_not_start_are_looked_at_again_now_and_then(database: Database) -> None:
    make_node(database, devices=1)
    queued(database, count=2)
    planner = Planner(database)

    assert (planner.look(), planner.next_in) == ([], UNCHANGED_REST), "a fiftieth of the time"


def test_a_pass_that_started_something_is_followed_by_another(database: Database) -> None:
    make_node(database, devices=1)
    first = queued(database)
    queued(database)
    planner = Planner(database)

    assert (planner.look(), planner.next_in) == ([first], REST), "as soon as the planner has rested"


def test_an_incremental_pass_is_followed_by_the_full_one_that_it_stands_for(database: Database) -> None:
    make_node(database, devices=1)
    queued(database, count=2)
    planner = Planner(database)
    planner.look()
    started = queued(database)

    assert planner.look() == [started]
    assert planner.next_in is not None
    assert planner.next_in < REST


def test_the_end_of_a_backoff_is_due(database: Database) -> None:
    make_node(database, devices=1)
    queued(database, not_before_at=utc_now() + timedelta(seconds=300))
    queued(database, not_before_at=utc_now() + timedelta(seconds=30))
    planner = Planner(database)

    assert planner.look() == []
    assert planner.next_in is not None
    assert 20 < planner.next_in <= 30
