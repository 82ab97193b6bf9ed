"""Summaries of long series: as true as the points themselves, whatever is done again, and read instead of them."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.downsampling import FAN_OUT, LEVELS, merged, span_of
from app.domain.errors import LeaseLost
from app.models import Job, Metric, MetricSummary
from app.services.jobs.reports import completion_report
from app.services.telemetry import stored_metrics, summaries
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from app.services.telemetry.summaries import LAST_STEP, StepRange, SummaryCount
from tests.builders.factories import make_attempt, make_job, make_node

pytestmark = pytest.mark.both_databases

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)


class Writer:
    """A job's supervisor, as far as metrics go."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.count = SummaryCount()
        with db.write() as session:
            job = make_job(session)
            self.job_id, self.fence = job.id, make_attempt(session, job, make_node(session)).fence

    def write(self, steps: Iterable[int], *, name: str = "loss", batch: int = 1000, **values: float) -> None:
        """The sine of each step, or what ``step_N`` says."""
        todo = list(steps)
        for first in range(0, len(todo), batch):
            points = [
                MetricValue(name=name, step=n, at=NOW, value=values.get(f"step_{n}", math.sin(n)))
                for n in todo[first : first + batch]
            ]
            stored_metrics.store(
                self.db, job_id=self.job_id, attempt=1, fence=self.fence, reports=TelemetryReports(points=points)
            )
            self.count.add((p.name, p.step) for p in points)
            if due := self.count.due():
                summaries.extend(self.db, job_id=self.job_id, fence=self.fence, newest=due)
                self.count.done(due)

    def check(self, name: str = "loss") -> dict[int, int]:
        """Every level says the truth about its points, has no gap, and begins with the first; rows per level."""
        with self.db.read() as session:
            found = session.execute(
                select(Metric.step, summaries.ORDER)
                .where(Metric.job_id == self.job_id, Metric.name == name)
                .order_by(Metric.step)
            ).all()
            points = [(step, value) for step, value in found]
            below = [span_of([p]) for p in points]
            counts = {}
            for level in range(1, LEVELS + 1):
                rows = summaries._rows(session, self.job_id, name, level)
                whole = range(0, len(below) - FAN_OUT + 1, FAN_OUT)
                expected = [merged(below[i : i + FAN_OUT]) for i in whole]
                assert rows == expected[: len(rows)], level
                below, counts[level] = rows, len(rows)
            return counts

    def thinned(self, most: int, *, since_step: int = -1, to_step: int = LAST_STEP) -> dict[int, float]:
        within = StepRange(since_step, to_step)
        with self.db.read() as session:
            steps = summaries.thinned_steps(session, self.job_id, "loss", within, most=most)
            assert steps is not None, "the summaries were not enough"
            found = stored_metrics.series(session, self.job_id, since_step=since_step, to_step=to_step, max_points=most)
        series = found["loss"]
        assert [p.step for p in series] == steps
        assert len(steps) <= most
        return {p.step: p.value for p in series}


@pytest.fixture
def writer(database: Database) -> Writer:
    return Writer(database)


@pytest.mark.long
def test_a_long_series_is_summarised_as_it_grows(writer: Writer) -> None:
    writer.write(range(10_000), step_1234=-5.0, step_9990=7.0, step_5000=math.nan, step_5001=math.inf)

    assert writer.check() == {1: 624, 2: 39, 3: 2}
    kept = writer.thinned(100)
    assert {0, 1234, 9990, 9999} <= set(kept)
    assert (kept[1234], kept[9990]) == (-5.0, 7.0)
    assert math.isnan(kept[5000])  # above the infinity beside it
    assert len(kept) > 50


@pytest.mark.long
def test_a_part_of_it_is_thinned_from_its_own_beginning(writer: Writer) -> None:
    writer.write(range(0, 20_000, 2), step_6002=9.0, step_6000=11.0)

    kept = writer.thinned(60, since_step=6000)

    assert min(kept) == 6002
    assert max(kept) == 19_998
    assert kept[6002] == 9.0


@pytest.mark.long
def test_a_range_in_the_middle_is_thinned_between_its_own_ends(writer: Writer) -> None:
    writer.write(range(20_000), step_3999=9.0, step_4003=11.0, step_8001=-7.0, step_8002=13.0)

    kept = writer.thinned(60, since_step=3999, to_step=8001)

    assert (min(kept), max(kept)) == (4000, 8001)
    assert (kept[4003], kept[8001]) == (11.0, -7.0)
    assert len(kept) > 30
    with writer.db.read() as session:
        few = stored_metrics.series(session, writer.job_id, since_step=41, to_step=44, max_points=4)["loss"]
    assert [point.step for point in few] == [42, 43, 44]


@pytest.mark.long
def test_steps_done_again_replace_what_was_said_of_them(writer: Writer) -> None:
    writer.write(range(5000), step_3000=50.0)
    before = writer.check()

    writer.write(range(2990, 3100), batch=10, step_3001=60.0)
    cut = writer.check()
    assert 3000 not in writer.thinned(100) or writer.thinned(100)[3000] < 1.1
    assert writer.thinned(100)[3001] == 60.0
    assert cut[1] < before[1]
    writer.write(range(3100, 5500))

    assert writer.check()[1] > before[1]
    assert writer.thinned(100)[3001] == 60.0


def test_what_an_earlier_attempt_left_above_is_not_summarised_until_it_is_done_again(writer: Writer) -> None:
    writer.write(range(3000))
    writer.write(range(1000, 1300), batch=50)

    with writer.db.read() as session:
        reached = session.scalars(select(MetricSummary.last_step).order_by(MetricSummary.last_step.desc())).first()
    assert reached is not None
    assert reached < 1300
    assert max(writer.thinned(100)) == 2999


def test_a_late_point_of_another_series_cuts_only_its_own(writer: Writer) -> None:
    writer.write(range(1000))
    writer.write(range(600), name="slow")
    before = writer.check(), writer.check("slow")

    writer.write([300], name="slow", step_300=77.0)

    assert writer.check() == before[0]
    assert writer.check("slow")[1] == 300 // FAN_OUT


def test_short_series_have_none_and_are_read_whole(writer: Writer) -> None:
    writer.write(range(200))

    with writer.db.read() as session:
        assert summaries.thinned_steps(session, writer.job_id, "loss", StepRange(), most=100) is None
        assert len(stored_metrics.series(session, writer.job_id)["loss"]) == 200
        assert len(stored_metrics.series(session, writer.job_id, max_points=100)["loss"]) <= 100


def test_only_the_holder_of_the_job_summarises(writer: Writer) -> None:
    with pytest.raises(LeaseLost):
        summaries.extend(writer.db, job_id=writer.job_id, fence=writer.fence + 1, newest={"loss": 5})


def test_gpu_use_is_averaged_over_every_sample_of_every_attempt(writer: Writer) -> None:
    for samples in ((50.0,), (), (80.0, 80.0, 90.0)):
        stored_metrics.store(
            writer.db,
            job_id=writer.job_id,
            attempt=1,
            fence=writer.fence,
            reports=TelemetryReports(gpu_samples=samples),
        )

    with writer.db.write() as session:
        job = session.get_one(Job, writer.job_id)
        job.status = "FAILED"
        assert completion_report(session, job).average_gpu_util == 75.0
