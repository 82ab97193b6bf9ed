"""Jobs whose project has no GPU-hours left save and wait; on both databases."""

from datetime import timedelta

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Attempt, AuditEntry, Job
from app.models.base import utc_now
from app.services.attempts import leases, work_orders
from app.services.attempts.work_orders import WorkOrder
from app.services.queues import gpu_budgets, gpu_hours
from app.services.scheduling import planner
from tests.builders import factories
from tests.builders.recovering import events_of
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, start_attempt

pytestmark = pytest.mark.both_databases


def requeue_over_budget(db: Database) -> list[tuple[str, str]]:
    """The nudges sent; each requeued job is nudged once on each of its nodes."""
    nudged: list[tuple[str, str]] = []
    asked = gpu_budgets.requeue_over_budget(db, actor="coordinator", nudge=lambda *nudge: nudged.append(nudge))
    assert asked == [job_id for job_id, _ in nudged]
    return nudged


def running(db: Database, project: str, *, device_type: str = "cuda", node: str = "n1") -> WorkOrder:
    document = factories.make_document(resource_config={"gpu_count": 1, "device_type": device_type})
    return start_attempt(db, make_job(db, JobState.QUEUED, document=document, project=project), node=node)


def set_hours(db: Database, project: str, hours: float) -> None:
    with db.write() as session:
        factories.make_project(session, project).quota = {"gpu_hours_per_month": hours}


@pytest.fixture
def cluster(database: Database) -> Database:
    make_node(database, "n1", devices=4, device_type="h100")
    make_node(database, "n2")
    return database


@pytest.mark.long
def test_jobs_on_gpus_save_and_wait_until_there_are_hours_again(cluster: Database) -> None:
    spender = running(cluster, "speech")
    on_cpu, other = running(cluster, "speech", device_type="cpu", node="n2"), running(cluster, "vision")
    for name in ("speech", "vision"):
        set_hours(cluster, name, 2.0)
    assert requeue_over_budget(cluster) == []
    with cluster.write() as session:
        month = gpu_hours.month_of(utc_now())
        gpu_hours.add(session, "speech", month, 7200.0)

    assert requeue_over_budget(cluster) == [(spender.job_id, "n1")]
    assert requeue_over_budget(cluster) == [], "its requeue is already requested"

    renewal = leases.renew(cluster, lease_id=spender.lease_id, fence=spender.fence, ran_seconds=1.0)
    assert renewal.requested == "requeue"
    assert job_of(cluster, on_cpu.job_id).requested is None
    assert job_of(cluster, other.job_id).requested is None
    with cluster.read() as session:
        entry = session.query(AuditEntry).filter_by(action="job.requeue").one()
    assert (entry.project, entry.target) == ("speech", spender.job_id)
    assert entry.message.startswith("the project speech has used 2.0 of its 2 GPU-hours per month")

    ending = work_orders.finish(cluster, spender, Outcome(kind="requeued", ran_seconds=1.0), NO_WAIT)
    assert ending.state is JobState.QUEUED
    messages = [event.message for event in events_of(cluster, spender.job_id, "attempt.ended")]
    assert messages == [entry.message], "its history says why"
    assert planner.plan_once(cluster) == []
    assert "has used 2.0 of its 2 GPU-hours" in job_of(cluster, spender.job_id).pending_reason
    set_hours(cluster, "speech", 3.0)
    assert [each.job_id for each in planner.plan_once(cluster)] == [spender.job_id]
    assert job_of(cluster, spender.job_id).retries_used == 0


def test_what_runs_now_counts_and_who_stops_or_exports_is_left_to_that(cluster: Database) -> None:
    set_hours(cluster, "speech", 2.0)
    works = [running(cluster, "speech") for _ in range(3)]
    with cluster.write() as session:
        begun = max(utc_now() - timedelta(hours=1), gpu_hours.month_of(utc_now()))
        for work in works:
            session.get_one(Attempt, (work.job_id, 1)).started_at = begun
        session.get_one(Job, works[1].job_id).requested = "pause"
        session.get_one(Job, works[2].job_id).status = JobState.EXPORTING
    hours = 3 * (utc_now() - begun).total_seconds() / 3600
    set_hours(cluster, "speech", hours / 2)

    assert requeue_over_budget(cluster) == [(works[0].job_id, "n1")]
    assert job_of(cluster, works[1].job_id).requested == "pause"
