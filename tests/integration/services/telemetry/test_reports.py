"""What ranks report reaches the database: in order, again after a failure, and nothing of it under a stale token."""

import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import event

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.nodes.limits import NodeLimits
from app.models import Job, JobEvent, Metric
from app.services.attempts import work_orders
from app.services.telemetry.stored_metrics import MetricValue
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.system import wait_for
from trainyard.protocol.messages import Progress
from workers.supervisor.recording.metric_buffer import MAX_POINTS
from workers.supervisor.recording.report_writer import POINTS_PER_WRITE, Note, PhaseChange, Reporter

pytestmark = pytest.mark.both_databases


def make_work(database, node):
    with database.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, node))
        job_id = job.id
    return work_orders.load_work(database, job_id, 1)


@pytest.fixture
def work(database):
    return make_work(database, "local")


@pytest.fixture
def lost():
    return threading.Event()


@pytest.fixture
def reporter(database, work, lost):
    reporter = Reporter(database, work, lambda reason: lost.set())
    yield reporter
    reporter.close()


def point(step, value=1.0, name="loss"):
    return MetricValue(name=name, step=step, at=datetime.now(UTC), value=value)


def job_of(database, work):
    with database.read() as session:
        return session.get_one(Job, work.job_id)


def steps(database):
    with database.read() as session:
        return sorted(metric.step for metric in session.query(Metric))


def test_reports_arrive_in_order(database, work, reporter):
    reporter.add(PhaseChange(to=JobState.TRAINING, start_step=7))
    reporter.progress(Progress(step=8, total_steps=10))
    reporter.points([point(8)])
    reporter.add(PhaseChange(to=JobState.EVALUATING))

    assert reporter.flush()

    job = job_of(database, work)
    assert (job.state, job.current_step, job.latest_metrics) == (JobState.EVALUATING, 8, {"loss": 1.0})
    assert steps(database) == [8]


def test_progress_waits_as_long_as_the_node_says_and_a_phase_brings_it_along(database, work):
    patient = replace(work, limits=NodeLimits(progress_report_interval_ms=60_000))
    others = make_work(database, "another")
    reporter, usual = (Reporter(database, each, lambda reason: None) for each in (patient, others))
    reporter.progress(Progress(step=8, total_steps=10))
    usual.progress(Progress(step=9, total_steps=10))
    wait_for(lambda: job_of(database, others).current_step == 9, seconds=10, what="progress by the default interval")

    before = job_of(database, work).current_step
    reporter.add(PhaseChange(to=JobState.TRAINING))

    assert reporter.settle(10)
    reporter.close()
    usual.close()
    assert (before, job_of(database, work).current_step) == (0, 8)


def test_phase_out_of_order_is_ignored_and_the_next_one_counts(database, work, reporter):
    reporter.add(PhaseChange(to=JobState.TRAINING))
    reporter.add(PhaseChange(to=JobState.EXPORTING))
    reporter.add(PhaseChange(to=JobState.TRAINING))
    reporter.add(Note(kind=EventType.WARNING, message="still here"))

    assert reporter.flush()

    assert job_of(database, work).state is JobState.EXPORTING
    with database.read() as session:
        assert session.query(JobEvent).filter_by(message="still here").count() == 1


@pytest.mark.long
def test_database_that_fails_for_a_while_gets_everything_later(database, work, reporter):
    failures = [OSError("away"), OSError("away")]

    @event.listens_for(database.engine, "begin")
    def fail(connection):
        if failures:
            raise failures.pop()

    reporter.add(PhaseChange(to=JobState.TRAINING))
    reporter.points([point(1), point(2)])

    assert reporter.flush()
    assert job_of(database, work).state is JobState.TRAINING
    assert steps(database) == [1, 2]


def test_settled_is_only_what_was_reported_while_something_else_was_written(database, work, reporter):
    is_writing, go_on = threading.Event(), threading.Event()

    @event.listens_for(database.engine, "begin")
    def wait(connection):
        is_writing.set()
        go_on.wait(10)

    reporter.points([point(1)])
    is_writing.wait(10)
    reporter.points([point(2)])
    settled: list[list[int]] = []
    settling = threading.Thread(target=lambda: settled.append(steps(database) if reporter.settle(10) else []))
    settling.start()
    time.sleep(0.1)  # time to take its place in the line
    go_on.set()
    settling.join()

    assert settled == [[1, 2]]


def test_what_the_database_refuses_does_not_block_what_follows(database, work, reporter):
    reporter.points([MetricValue(name="loss", step=10**30, at=datetime.now(UTC), value=1.0)])
    reporter.flush()
    reporter.points([point(3)])

    assert reporter.flush()
    assert 3 in steps(database)


def test_stale_token_writes_nothing_and_reports_the_loss(database, work, reporter, lost):
    with database.write() as session:
        session.get_one(Job, work.job_id).fence += 1

    reporter.progress(Progress(step=5))

    assert not reporter.flush()
    assert lost.wait(5)
    assert job_of(database, work).current_step == 0


def test_backlog_is_written_in_small_transactions(database, work, reporter):
    written: Counter[object] = Counter()
    sizes = []

    @event.listens_for(database.engine, "before_cursor_execute")
    def count(connection, cursor, statement, parameters, context, executemany):
        if statement.startswith("INSERT INTO metric"):
            written[connection] += len(parameters) if executemany else statement.count("), (") + 1

    @event.listens_for(database.engine, "commit")
    def note(connection):
        sizes.append(written.pop(connection, 0))

    reporter.points([point(step, name=name) for step in range(2500) for name in ("a", "b")])

    assert reporter.flush()
    with database.read() as session:
        assert session.query(Metric).count() == 5000
    assert max(sizes) == POINTS_PER_WRITE


@pytest.mark.long
def test_renewal_gets_its_turn_while_a_backlog_is_written(database, work, reporter):
    reporter.points([point(step, name=f"m{step % 500}") for step in range(MAX_POINTS)])
    wait_for(lambda: steps(database), seconds=10, what="the first points are written")

    waits = []
    for _ in range(20):
        began = time.monotonic()
        with database.write():
            waits.append(time.monotonic() - began)

    assert max(waits) < 1.0
    assert reporter._points, "all was written before anything could be measured"
    reporter.close()


def test_rank_that_never_stops_talking_does_not_keep_a_change_of_phase_waiting(database, work, reporter):
    ended = threading.Event()

    def talk():
        step = 0
        while not ended.wait(0.001):
            reporter.points([point(step + n) for n in range(50)])
            step += 50

    thread = threading.Thread(target=talk)
    thread.start()
    reporter.add(PhaseChange(to=JobState.TRAINING))

    wait_for(lambda: job_of(database, work).state is JobState.TRAINING, seconds=10, what="the phase is written")
    ended.set()
    thread.join()


def test_flood_of_phases_leaves_the_last_one_and_few_lines(database, work, reporter):
    for _ in range(500):
        reporter.add(PhaseChange(to=JobState.TRAINING))
        reporter.add(PhaseChange(to=JobState.CHECKPOINTING))
    reporter.add(PhaseChange(to=JobState.EVALUATING))

    assert reporter.flush()

    assert job_of(database, work).state is JobState.EVALUATING
    with database.read() as session:
        assert session.query(JobEvent).count() < 40


def test_held_phase_is_written_a_moment_later(database, work, reporter):
    for _ in range(20):
        reporter.add(PhaseChange(to=JobState.TRAINING))
        reporter.add(PhaseChange(to=JobState.CHECKPOINTING))
    reporter.add(PhaseChange(to=JobState.EVALUATING))

    wait_for(lambda: job_of(database, work).state is JobState.EVALUATING, seconds=10, what="the phase is written")


def test_note_with_what_no_database_takes_is_written(database, work, reporter):
    reporter.add(Note(kind=EventType.WARNING, message="a\0b\ud800c", data={"path": "x\0y\udfff", "step": 1}))

    assert reporter.flush()

    with database.read() as session:
        (written,) = session.query(JobEvent).filter_by(type=EventType.WARNING)
    assert (written.message, written.data["path"], written.data["step"]) == ("a�b?c", "x�y?", 1)
