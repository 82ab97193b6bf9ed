"""Job lifecycle through the services: transitions, control requests, checkpoints and metrics, on both databases."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import IllegalTransition, StaleJob
from app.domain.lifecycle.outcomes import NewArtifact, Outcome
from app.domain.lifecycle.states import HELD, TERMINAL, TRANSITIONS, JobState
from app.domain.spec.locations.paths import ReadingRules
from app.models import Attempt, JobEvent, Lease, Reservation
from app.services.attempts import checkpoints, leases, work_orders
from app.services.jobs.control import requests as control_requests
from app.services.lifecycle import transitions
from app.services.preflight import admission
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders import factories
from tests.builders.admitting import admit
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, save, start_attempt, statuses

pytestmark = pytest.mark.both_databases

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RULES = ReadingRules(roots=("/nowhere",))


def test_a_job_goes_from_pending_to_completed(database: Database) -> None:
    make_node(database)
    job_id = make_job(database)

    assert admission.admit_waiting(database, RULES) == 1
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING)
    work_orders.enter_phase(database, work, JobState.EVALUATING)
    work_orders.enter_phase(database, work, JobState.EXPORTING)
    done = Outcome(
        kind="completed",
        end_step=7,
        ran_seconds=2.0,
        report={"model_hash": "abc"},
        artifacts=[NewArtifact(path="model.safetensors", size_bytes=3, sha256="1" * 64)],
    )
    ended = work_orders.finish(database, work, done, NO_WAIT)

    assert ended.state is JobState.COMPLETED
    assert statuses(database, job_id) == [
        "QUEUED",
        "SCHEDULING",
        "PREPARING",
        "TRAINING",
        "EVALUATING",
        "EXPORTING",
        "COMPLETED",
    ]
    job = job_of(database, job_id)
    assert (job.report, job.progress, job.elapsed_seconds) == ({"model_hash": "abc"}, 1.0, 2.0)
    with database.read() as session:
        assert session.scalars(select(Reservation)).all() == []
        assert session.scalars(select(Lease).where(Lease.released_at.is_(None))).all() == []
        assert session.get_one(Attempt, (job_id, 1)).end_step == 7


@pytest.mark.parametrize("before", list(JobState))
def test_every_pair_of_states_is_allowed_or_refused_by_the_table(database: Database, before: JobState) -> None:
    for after in JobState:
        job_id = make_job(database, state=before)
        with database.write() as session:
            job = transitions.load_for_change(session, job_id)
            if after in TRANSITIONS[before]:
                transitions.transition(session, job, after, actor="test")
                assert job.state is after
                continue
            with pytest.raises(IllegalTransition, match=before):
                transitions.transition(session, job, after, actor="test")
            assert job.state is before


def test_a_change_since_loading_makes_a_transition_stale(database: Database) -> None:
    job_id = make_job(database)
    stale = job_of(database, job_id)

    admit(database, job_id, RULES)

    with database.write() as session, pytest.raises(StaleJob):
        transitions.transition(session, session.merge(stale, load=False), JobState.CANCELLED, actor="test")
    assert job_of(database, job_id).state is JobState.QUEUED


def test_events_are_numbered_without_gaps(database: Database) -> None:
    make_node(database)
    job_id = make_job(database)
    admit(database, job_id, RULES)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING, start_step=0)
    save(database, work, 5)

    with database.read() as session:
        rows = session.execute(select(JobEvent.seq, JobEvent.id).order_by(JobEvent.seq)).all()

    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert [row.id for row in rows] == sorted(row.id for row in rows)


def test_retries_end_in_failed(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED, max_retries=1)
    failed = Outcome(kind="failed", cause="RANK_KILLED", message="rank 0 was killed by signal 9")

    first = work_orders.finish(database, start_attempt(database, job_id), failed, NO_WAIT)
    second = work_orders.finish(database, start_attempt(database, job_id), failed, NO_WAIT)

    assert (first.state, second.state) == (JobState.QUEUED, JobState.FAILED)
    said = "rank 0 was killed by signal 9; 1 of 1 retries (max_retries) made no progress. Look on the node"
    assert (job_of(database, job_id).error_message or "").startswith(said)


def test_a_fatal_cause_is_never_retried(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)

    ended = work_orders.finish(
        database, start_attempt(database, job_id), Outcome(kind="failed", cause="DATA_INVALID"), NO_WAIT
    )

    assert ended.state is JobState.FAILED


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.QUEUED, JobState.PAUSED])
def test_cancel_is_immediate_when_no_process_holds_the_job(database: Database, state: JobState) -> None:
    job_id = make_job(database, state=state)

    with database.write() as session:
        control_requests.request_cancel(session, job_id, actor="me", reason="enough")

    assert job_of(database, job_id).state is JobState.CANCELLED


@pytest.mark.parametrize("state", sorted(TERMINAL - {JobState.CANCELLED}))
def test_cancel_is_refused_after_another_end(database: Database, state: JobState) -> None:
    job_id = make_job(database, state=state)

    with database.write() as session, pytest.raises(IllegalTransition, match="cannot be cancelled"):
        control_requests.request_cancel(session, job_id, actor="me")


def test_cancel_of_a_held_job_is_a_control_request_that_its_holder_reads(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)

    for _ in range(2):
        with database.write() as session:
            control_requests.request_cancel(session, job_id, actor="me")

    assert leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0).requested == "cancel"
    ended = work_orders.finish(database, work, Outcome(kind="failed", cause="RANK_KILLED"), NO_WAIT)
    assert ended.state is JobState.CANCELLED
    with database.read() as session:
        requests = session.scalars(select(JobEvent).where(JobEvent.type == "job.cancel_requested")).all()
    assert len(requests) == 1


def test_old_checkpoints_are_retired_but_never_the_best(database: Database) -> None:
    make_node(database)
    settings = {"save_total_limit": 2, "metric_for_best_model": "eval_loss", "greater_is_better": False}
    job_id = make_job(
        database, state=JobState.QUEUED, document=factories.make_document(output_config={"checkpoint": settings})
    )
    work = start_attempt(database, job_id)

    save(database, work, 1, eval_loss=0.5)
    save(database, work, 2, eval_loss=0.9)
    last = save(database, work, 3, eval_loss=0.8)

    assert [uri for _, uri in last.prune] == [f"jobs/{job_id}/checkpoints/2"]
    with database.read() as session:
        kept = [(c.step, c.is_best) for c in checkpoints.list_for(session, job_id)]
    assert kept == [(1, True), (3, False)]


def test_metrics_of_steps_done_again_replace_the_old_ones(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)

    def store(*points: MetricValue) -> None:
        stored_metrics.store(
            database, job_id=job_id, attempt=1, fence=work.fence, reports=TelemetryReports(points=points)
        )

    store(*(MetricValue(name="loss", step=s, at=NOW + timedelta(seconds=s), value=float(s)) for s in range(5)))
    store(
        MetricValue(name="loss", step=3, at=NOW, value=9.0),
        MetricValue(name="loss", step=4, at=NOW, value=float("nan")),
    )

    with database.read() as session:
        points = stored_metrics.series(session, job_id)["loss"]
    assert [p.value for p in points[:4]] == [0.0, 1.0, 2.0, 9.0]
    assert points[4].value != points[4].value
    assert job_of(database, job_id).latest_metrics == {"loss": "NaN"}


def test_thinning_keeps_the_smallest_and_the_largest(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    values = [1.0] * 500
    values[123], values[321] = -7.0, 42.0
    points = [MetricValue(name="loss", step=i, at=NOW, value=v) for i, v in enumerate(values)]
    stored_metrics.store(database, job_id=job_id, attempt=1, fence=work.fence, reports=TelemetryReports(points=points))

    with database.read() as session:
        thinned = stored_metrics.series(session, job_id, max_points=20)["loss"]

    assert len(thinned) <= 20
    assert {-7.0, 42.0} <= {p.value for p in thinned}
    assert (thinned[0].step, thinned[-1].step) == (0, 499)


def test_held_states_are_exactly_those_between_placement_and_end() -> None:
    assert {JobState.SCHEDULING, JobState.EXPORTING} <= HELD
    assert not HELD & TERMINAL
    assert JobState.PAUSED not in HELD


def test_a_checkpoint_stays_while_a_job_that_starts_from_it_lives(database: Database) -> None:
    make_node(database)
    limited = factories.make_document(output_config={"checkpoint": {"save_total_limit": 1}})
    job_id = make_job(database, state=JobState.QUEUED, document=limited)
    work = start_attempt(database, job_id)
    first = save(database, work, 1)
    heir = make_job(database, resume_checkpoint_id=first.checkpoint_id)

    kept = save(database, work, 2)
    with database.write() as session:
        control_requests.request_cancel(session, heir, actor="me")
    pruned = save(database, work, 3)

    assert kept.prune == ()
    assert [uri for _, uri in pruned.prune] == [f"jobs/{job_id}/checkpoints/{step}" for step in (1, 2)]


def test_an_end_in_success_leaves_no_error_of_earlier_attempts(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    failed = Outcome(kind="failed", cause="RANK_KILLED", message="killed", stack="Traceback")
    work_orders.finish(database, start_attempt(database, job_id), failed, NO_WAIT)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING)

    work_orders.finish(database, work, Outcome(kind="completed"), NO_WAIT)

    job = job_of(database, job_id)
    assert (job.error_type, job.error_message, job.error_stack) == (None, None, None)


def test_lost_steps_count_from_where_the_attempt_started(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING, start_step=1000)

    work_orders.finish(database, work, Outcome(kind="failed", cause="RANK_KILLED", end_step=1010), NO_WAIT)

    with database.read() as session:
        assert session.get_one(Attempt, (job_id, 1)).lost_steps == 10


def test_the_lowest_eval_loss_is_best_without_being_named(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)

    save(database, work, 1, eval_loss=0.5)
    save(database, work, 2, eval_loss=0.9)
    save(database, work, 3)

    with database.read() as session:
        assert [(c.step, c.is_best) for c in checkpoints.list_for(session, job_id)] == [
            (1, True),
            (2, False),
            (3, False),
        ]
