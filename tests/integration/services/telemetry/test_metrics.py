"""Metric points: arrival numbers, followers that lose nothing, thinning of long series, and numbers out of range."""

import math
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from app.database.engine import Database
from app.models import Job, Metric
from app.services.telemetry import live_metrics, stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)


def running_job(db: Database) -> tuple[str, int]:
    """The id of a held job, and its fencing token."""
    with db.write() as session:
        job = make_job(session)
        lease = make_attempt(session, job, make_node(session))
        return job.id, lease.fence


def point(step: int, value: float = 0.0, *, at: datetime = NOW, name: str = "loss") -> MetricValue:
    return MetricValue(name=name, step=step, at=at, value=value)


def store(db: Database, job: tuple[str, int], *points: MetricValue) -> None:
    stored_metrics.store(db, job_id=job[0], attempt=1, fence=job[1], reports=TelemetryReports(points=points))


def arrived(db: Database, job: tuple[str, int], after: int, **more: Any) -> list[tuple[int, str, int, float | None]]:
    with db.read() as session:
        return [(p.seq, p.name, p.step, p.value) for p in live_metrics.points_after(session, job[0], after, **more)]


def test_a_clock_that_goes_back_hides_no_points_from_followers(database: Database) -> None:
    job = running_job(database)

    store(database, job, point(1, 1.0), point(2, 2.0))
    store(database, job, point(3, 3.0, at=NOW - timedelta(hours=1)))

    assert arrived(database, job, 2) == [(3, "loss", 3, 3.0)]


def test_replaced_points_arrive_again_and_only_once(database: Database) -> None:
    job = running_job(database)

    store(database, job, point(1, 1.0), point(2, 2.0), point(1, 0.1, name="lr"))
    store(database, job, point(2, 9.0), point(2, 8.0), point(3, 3.0))

    assert arrived(database, job, 3) == [(4, "loss", 2, 8.0), (5, "loss", 3, 3.0)]
    assert arrived(database, job, 0, limit=2) == [(1, "loss", 1, 1.0), (3, "lr", 1, 0.1)]
    assert arrived(database, job, 0, names=["lr"]) == [(3, "lr", 1, 0.1)]
    with database.read() as session:
        assert session.get_one(Job, job[0]).metric_seq == 5


def test_reports_without_points_use_no_numbers(database: Database) -> None:
    job = running_job(database)

    store(database, job)
    store(database, job, point(1))

    assert [seq for seq, *_ in arrived(database, job, 0)] == [1]


@pytest.mark.long
def test_a_long_series_is_thinned_without_holding_it(database: Database) -> None:
    job = running_job(database)
    count, low, high, broken = 40_000, 12_345, 23_456, 34_567
    values: dict[int, float] = {low: -5.0, high: 7.0}
    with database.write() as session:
        session.execute(
            insert(Metric),
            [
                {
                    "job_id": job[0],
                    "name": "loss",
                    "step": i,
                    "at": NOW,
                    "attempt": 1,
                    "seq": i,
                    "value": None if i == broken else values.get(i, 1.0),
                    "special": "NaN" if i == broken else None,
                }
                for i in range(count)
            ],
        )

    tracemalloc.start()
    with database.read() as session:
        thinned = stored_metrics.series(session, job[0], max_points=100)["loss"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(thinned) <= 100
    assert [p.step for p in thinned] == sorted({p.step for p in thinned})
    assert (thinned[0].step, thinned[-1].step) == (0, count - 1)
    kept = {p.step: p.value for p in thinned}
    assert (kept[low], kept[high]) == (-5.0, 7.0)
    assert math.isnan(kept[broken])
    assert peak < 4_000_000  # all of them would be ten times that


def test_four_points_are_enough_for_ends_and_extremes(database: Database) -> None:
    job = running_job(database)
    store(database, job, *(point(i, {3: -1.0, 6: 9.0}.get(i, 1.0)) for i in range(10)))

    with database.read() as session:
        thinned = stored_metrics.series(session, job[0], since_step=0, max_points=4)["loss"]

    assert [p.step for p in thinned] == [1, 3, 6, 9]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (f"since_step={2**31 - 1}", 200),
        (f"since_step={2**31}", 422),
        (f"since_step={2**53}", 422),
        ("max_points=3", 422),
        ("max_points=4", 200),
        ("from_step=-1", 422),
        (f"to_step={2**31}", 422),
        ("from_step=5&to_step=5", 200),
        ("from_step=6&to_step=5", 422),
    ],
)
def test_numbers_that_the_database_cannot_store_are_refused(api: Api, query: str, status: int) -> None:
    job_id = api.submit()

    assert api.call("GET", f"/v1/jobs/{job_id}/metrics?{query}").status_code == status


def test_streams_resume_after_any_well_formed_id(api: Api) -> None:
    job_id = api.submit()
    api.post(f"/v1/jobs/{job_id}/cancel")

    for path, last in (("metrics/stream", "9" * 18), ("events", "9" * 9), ("logs", f"{'9' * 9}:{'9' * 15}")):
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
        answer = api.call("GET", f"/v1/jobs/{job_id}/{path}", headers=headers)
        assert answer.status_code == 200, path
        assert answer.get_data(as_text=True).endswith("data: [DONE]\n\n")
        assert "event: error" not in answer.get_data(as_text=True)
