"""Queues that are paused or limited: who may be submitted, who starts, and what looking at them costs."""

import re
import threading
from datetime import timedelta

import pytest

from app.database.engine import Database
from app.domain.errors import Conflict, NotFound, QuotaExceeded
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import AuditEntry, Job, Queue, QueueWait
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.attempts import leases, work_orders
from app.services.jobs.control import requests as control_requests
from app.services.queues import limits, queues
from app.services.scheduling import planner as scheduling
from tests.builders import factories
from tests.builders.factories import make_queue
from tests.builders.statements import statements
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, start_attempt

pytestmark = pytest.mark.both_databases

ADMIN = Caller(key_id="key-1", role=Role.SUPER_ADMIN, project=None)


def set_queue(db: Database, name: str, **columns: object) -> None:
    with db.write() as session:
        queue = make_queue(session, name)
        for column, value in columns.items():
            setattr(queue, column, value)


def started(db: Database, *, page_size: int = 500) -> list[str]:
    return [dispatched.job_id for dispatched in scheduling.plan_once(db, page_size=page_size)]


def test_a_paused_queue_starts_no_jobs_until_it_is_resumed(database: Database) -> None:
    make_node(database, devices=4)
    set_queue(database, "night", is_paused=True)
    held = make_job(database, state=JobState.QUEUED, queue="night", priority=9)
    free = make_job(database, state=JobState.QUEUED)

    assert started(database) == [free]
    queues.change(database, ADMIN, "night", {"paused": False})
    assert started(database) == [held]


def test_running_jobs_continue_when_their_queue_is_paused(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING)

    queues.change(database, ADMIN, "default", {"paused": True})

    assert job_of(database, job_id).state is JobState.TRAINING
    assert work_orders.finish(database, work, Outcome(kind="completed"), NO_WAIT).state is JobState.COMPLETED


def test_a_queue_runs_no_more_jobs_than_it_may(database: Database) -> None:
    make_node(database, devices=8)
    set_queue(database, "night", max_running_jobs=2)
    jobs = [make_job(database, state=JobState.QUEUED, queue="night") for _ in range(5)]

    assert started(database, page_size=1) == jobs[:2]
    assert started(database) == []
    for job_id in jobs[:2]:
        with database.write() as session:
            control_requests.request_cancel(session, job_id, actor="me")
        leases.claim(database, job_id=job_id, attempt=1, node="n1", boot_id="b")
    assert started(database) == jobs[2:4]


def test_planners_at_once_never_exceed_a_limit(database: Database) -> None:
    make_node(database, devices=8)
    set_queue(database, "default", max_running_jobs=3)
    for _ in range(6):
        make_job(database, state=JobState.QUEUED)
    placed: list[str] = []
    threads = [threading.Thread(target=lambda: placed.extend(started(database))) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    placed.extend(started(database))

    assert len(set(placed)) == len(placed) == 3


def test_a_queue_paused_between_snapshot_and_placement_starts_none(database: Database) -> None:
    make_node(database)
    make_job(database, state=JobState.QUEUED)
    placed: list[str] = []
    planner = threading.Thread(target=lambda: placed.extend(started(database)))

    with database.write() as session:
        session.get_one(Queue, "default", with_for_update={"key_share": True}).is_paused = True
        session.flush()
        planner.start()
        planner.join(0.3)  # it has looked, and waits for the queue, or for the whole database
    planner.join()

    assert placed == []


def test_a_lower_limit_ends_no_job(database: Database) -> None:
    make_node(database, devices=4)
    jobs = [make_job(database, state=JobState.QUEUED) for _ in range(3)]
    assert started(database) == jobs
    make_job(database, state=JobState.QUEUED)

    queues.change(database, ADMIN, "default", {"max_running_jobs": 1})

    assert started(database) == []
    assert {job_of(database, job_id).state for job_id in jobs} == {JobState.SCHEDULING}


@pytest.mark.parametrize("columns", [{"is_paused": True}, {"max_running_jobs": 1}])
def test_jobs_in_a_closed_queue_are_not_even_read(database: Database, columns: dict[str, object]) -> None:
    make_node(database, devices=4)
    set_queue(database, "night", **columns)
    make_job(database, state=JobState.TRAINING, queue="night")
    for _ in range(3):
        make_job(database, state=JobState.QUEUED, queue="night")

    with statements(database) as sent:
        assert started(database) == []

    assert [statement for statement in sent if "job.spec" in statement or "UPDATE" in statement] == []


def test_an_idle_pass_reads_no_queues(database: Database) -> None:
    set_queue(database, "night", is_paused=True)

    with statements(database) as sent:
        assert started(database) == []

    assert [statement for statement in sent if re.search(r"\bqueue\b", statement.split("FROM")[-1])] == []


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"is_paused": True}, "the queue default is paused: it takes jobs and starts none until it is resumed"),
        ({"max_running_jobs": 1}, "the queue default runs 1 of at most 1 jobs (max_running_jobs)"),
        ({"max_running_jobs": 2}, "needs 9 CPU slots"),
        ({}, "needs 9 CPU slots"),
    ],
)
def test_waiting_job_is_shown_what_holds_the_queue_back(
    database: Database, columns: dict[str, object], reason: str
) -> None:
    running = make_job(database, state=JobState.TRAINING)
    waiting = make_job(database, state=JobState.QUEUED, pending_reason="needs 9 CPU slots")
    looked_at = make_job(database, state=JobState.PENDING, pending_reason="its model and data are being inspected")
    set_queue(database, "default", **columns)

    with database.read() as session:
        jobs = [job_of(database, job_id) for job_id in (running, waiting, looked_at)]
        reasons = queues.pending_reasons(session, jobs)

    assert reasons == {running: "", waiting: reason, looked_at: "its model and data are being inspected"}


def test_a_full_queue_takes_no_more_jobs(database: Database) -> None:
    set_queue(database, "night", max_waiting_jobs=2)
    make_job(database, state=JobState.PENDING, queue="night")
    make_job(database, state=JobState.TRAINING, queue="night")

    with database.write() as session:
        queues.require_room(session, "night", field="queue")
    make_job(database, state=JobState.QUEUED, queue="night")

    with (
        database.write() as session,
        pytest.raises(QuotaExceeded, match="night holds 2 waiting jobs of at most 2") as refused,
    ):
        queues.require_room(session, "night", field="queue")
    assert refused.value.retry_after_seconds == limits.RETRY_FULL_SECONDS


def test_submissions_at_once_never_exceed_a_limit(database: Database) -> None:
    set_queue(database, "default", max_waiting_jobs=2)
    refused: list[QuotaExceeded] = []

    def submit() -> None:
        try:
            with database.write() as session:
                queues.require_room(session, "default", field="queue")
                factories.make_job(session)
        except QuotaExceeded as error:
            refused.append(error)

    with database.write() as session:
        factories.make_project(session)
    threads = [threading.Thread(target=submit) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with database.read() as session:
        assert (session.query(Job).count(), len(refused)) == (2, 3)


def test_a_wait_is_counted_in_its_bucket(database: Database) -> None:
    make_node(database, devices=8)
    now = utc_now()
    for seconds in (8, 20, 25, 100_000):  # far from the bucket bounds, because the planner pass takes time too
        make_job(database, state=JobState.QUEUED, queued_at=now - timedelta(seconds=seconds))
    make_job(database, state=JobState.QUEUED, project="other", queued_at=now - timedelta(seconds=20))

    assert len(started(database)) == 5

    with database.read() as session:
        rows = session.query(QueueWait).all()
    counted = {(row.project, row.up_to_seconds): row.attempts for row in rows}
    assert counted == {("default", 15): 1, ("default", 60): 2, ("default", 0): 1, ("other", 60): 1}
    assert sum(row.waited_seconds for row in rows) == pytest.approx(100_073, abs=20)


def test_a_pause_before_a_retry_is_no_wait_for_devices(database: Database) -> None:
    make_node(database)
    now = utc_now()
    make_job(
        database,
        state=JobState.QUEUED,
        queued_at=now - timedelta(seconds=500),
        not_before_at=now - timedelta(seconds=3),
    )

    started(database)

    with database.read() as session:
        assert [row.up_to_seconds for row in session.query(QueueWait)] == [5]


def test_a_change_is_written_down_once(database: Database) -> None:
    set_queue(database, "night")

    queues.change(database, ADMIN, "night", {"paused": True, "max_running_jobs": 4})
    queues.change(database, ADMIN, "night", {"paused": True})
    changed = queues.change(database, ADMIN, "night", {"max_running_jobs": None})

    assert (changed.queue.is_paused, changed.queue.max_running_jobs) == (True, None)
    with database.read() as session:
        entries = session.query(AuditEntry).order_by(AuditEntry.id).all()
    assert [(entry.actor, entry.action, entry.target, entry.data) for entry in entries] == [
        ("key-1", "queue.patch", "night", {"paused": True, "max_running_jobs": 4}),
        ("key-1", "queue.patch", "night", {"max_running_jobs": None}),
    ]


def test_what_cannot_be_changed_is_refused(database: Database) -> None:
    set_queue(database, "night")

    with pytest.raises(NotFound, match="no queue 'dawn'"):
        queues.change(database, ADMIN, "dawn", {"paused": True})
    with pytest.raises(Conflict, match="PATCH /v1/queues/night"):
        queues.create(database, ADMIN, "night", {})
