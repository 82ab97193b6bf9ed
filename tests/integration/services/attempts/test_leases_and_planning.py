"""The rules that keep two planners, two holders and two deliveries apart, on both databases."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, Node, ProcessBeat
from app.models.base import utc_now
from app.services.attempts import leases, work_orders
from app.services.jobs.control import requests as control_requests
from app.services.lifecycle import transitions
from app.services.nodes import registry
from app.services.scheduling import planner
from app.services.scheduling.leader_election import LeaderLease
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import TelemetryReports
from tests.builders import factories
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, save, start_attempt
from trainyard.protocol.messages import Progress

pytestmark = pytest.mark.both_databases

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_second_delivery_claims_nothing(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    planner.plan_once(database)

    results: list[object] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(leases.claim(database, job_id=job_id, attempt=1, node="n1", boot_id="b"))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len([r for r in results if r is not None]) == 1
    assert leases.claim(database, job_id=job_id, attempt=1, node="other", boot_id="b") is None


def test_a_device_is_never_given_twice(database: Database) -> None:
    make_node(database, devices=1, device_type="a100", memory_mb=1000)
    gpu = factories.make_document(resource_config={"device_type": "cuda"})
    first = make_job(database, state=JobState.QUEUED, document=gpu)
    second = make_job(database, state=JobState.QUEUED, document=gpu)

    placed = planner.plan_once(database)

    assert [d.job_id for d in placed] == [first]
    assert "needs 1 GPU on one node; free: 0 on n1" in job_of(database, second).pending_reason


def test_two_planners_at_once_place_a_job_once(database: Database) -> None:
    make_node(database, devices=8)
    jobs = [make_job(database, state=JobState.QUEUED) for _ in range(6)]

    placed: list[str] = []
    threads = [
        threading.Thread(target=lambda: placed.extend(d.job_id for d in planner.plan_once(database))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    placed.extend(d.job_id for d in planner.plan_once(database))

    assert sorted(placed) == sorted(jobs)


def test_a_lease_that_stands_still_is_taken_away_and_its_holder_can_write_no_more(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING)
    save(database, work, 3)
    stored_metrics.store(
        database,
        job_id=job_id,
        attempt=1,
        fence=work.fence,
        reports=TelemetryReports(progress=Progress(step=5, total_steps=9)),
    )
    seen = leases.live(database)[0]

    taken = leases.revoke(database, seen, cause="NODE_LOST", message="n1 is gone", actor="reaper", backoff=NO_WAIT)

    assert taken
    job = job_of(database, job_id)
    assert (job.state, job.retries_used, job.error_type) == (JobState.QUEUED, 1, "NODE_LOST")
    with database.read() as session:
        assert session.get_one(Attempt, (job_id, 1)).lost_steps == 2
    with pytest.raises(LeaseLost):
        leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0)
    with pytest.raises(LeaseLost):
        save(database, work, 6)
    with pytest.raises(LeaseLost):
        stored_metrics.store(
            database, job_id=job_id, attempt=1, fence=work.fence, reports=TelemetryReports(progress=Progress(step=6))
        )
    with pytest.raises(LeaseLost):
        work_orders.finish(database, work, Outcome(kind="completed"), NO_WAIT)
    with pytest.raises(LeaseLost):
        work_orders.enter_phase(database, work, JobState.EVALUATING)
    again = start_attempt(database, job_id)
    assert again.attempt == 2
    assert again.fence > work.fence
    assert [c.step for c in again.resume] == [3]


def test_a_renewal_between_check_and_revocation_saves_the_lease(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    seen = leases.live(database)[0]
    leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0)

    taken = leases.revoke(database, seen, cause="NODE_LOST", message="", actor="reaper", backoff=NO_WAIT)

    assert not taken
    assert job_of(database, job_id).state is JobState.PREPARING


def test_a_clock_that_jumps_changes_nothing_of_how_long_a_lost_attempt_ran(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED, max_runtime_seconds=7200)
    work = start_attempt(database, job_id)
    monkeypatch.setattr(leases, "utc_now", lambda: utc_now() + timedelta(days=1))
    leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=12.5)
    monkeypatch.undo()

    leases.revoke(database, leases.live(database)[0], cause="NODE_LOST", message="", actor="reaper", backoff=NO_WAIT)

    assert start_attempt(database, job_id).ran_seconds == 12.5


def test_an_unclaimed_lease_goes_back_without_costing_a_retry(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    planner.plan_once(database)

    leases.revoke(database, leases.live(database)[0], cause="NODE_LOST", message="", actor="reaper", backoff=NO_WAIT)

    assert (job_of(database, job_id).state, job_of(database, job_id).retries_used) == (JobState.QUEUED, 0)


def test_a_backoff_keeps_a_job_waiting(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    long = Backoff(base_seconds=60.0, max_seconds=60.0)

    work_orders.finish(database, start_attempt(database, job_id), Outcome(kind="failed", cause="STORAGE_ERROR"), long)

    assert planner.plan_once(database) == []


@pytest.mark.parametrize(("set_back_seconds", "waits"), [(0, True), (30, True), (7200, False)])
def test_a_clock_that_is_set_back_makes_no_pause_much_longer(
    database: Database, set_back_seconds: int, *, waits: bool
) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    long = Backoff(base_seconds=15.0, max_seconds=15.0)
    work_orders.finish(database, start_attempt(database, job_id), Outcome(kind="failed", cause="STORAGE_ERROR"), long)
    with database.write() as session:
        job = session.get_one(Job, job_id)
        assert job.queued_at is not None
        assert job.not_before_at == job.queued_at + timedelta(seconds=15)
        for column in ("queued_at", "not_before_at"):
            setattr(job, column, getattr(job, column) + timedelta(seconds=set_back_seconds))

    assert (planner.plan_once(database) == []) is waits


def test_a_cancelled_dispatch_is_not_started(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    planner.plan_once(database)
    with database.write() as session:
        control_requests.request_cancel(session, job_id, actor="me")

    claim = leases.claim(database, job_id=job_id, attempt=1, node="n1", boot_id="b")

    assert claim is None
    assert job_of(database, job_id).state is JobState.CANCELLED


def test_draining_for_a_stop_asks_running_jobs_to_requeue(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING)

    asked = registry.request_requeue(database, "n1")
    ended = work_orders.finish(database, work, Outcome(kind="requeued", end_step=4), NO_WAIT)

    assert (asked, ended.state) == (1, JobState.QUEUED)
    job = job_of(database, job_id)
    assert (job.requested, job.retries_used) == (None, 0)
    assert planner.plan_once(database) == []
    registry.set_state(database, "n1", "ready")
    assert len(planner.plan_once(database)) == 1


def test_threads_per_rank_are_fixed_by_the_first_attempt(database: Database) -> None:
    make_node(database, cpu_cores=8)
    job_id = make_job(database, state=JobState.QUEUED)
    first = start_attempt(database, job_id)
    work_orders.finish(database, first, Outcome(kind="requeued"), NO_WAIT)
    with database.write() as session:
        session.get_one(Node, "n1").cpu_cores = 2

    second = start_attempt(database, job_id)

    assert (first.threads_per_rank, second.threads_per_rank) == (4, 4)


@pytest.mark.parametrize(
    ("devices", "cpu_cores", "threads"),
    [
        pytest.param(1, None, 2, id="its part of 8 cores on 4 slots"),
        pytest.param(2, None, 2, id="as much for each rank of a larger job"),
        pytest.param(2, 6, 3, id="the cores it asked for, shared"),
        pytest.param(4, 2, 1, id="never less than one"),
    ],
)
def test_a_rank_has_the_threads_of_its_device(
    database: Database, devices: int, cpu_cores: int | None, threads: int
) -> None:
    make_node(database, devices=4, cpu_cores=8)
    resources = {"gpu_count": devices} | ({"cpu_cores": cpu_cores} if cpu_cores else {})
    job_id = make_job(database, state=JobState.QUEUED, document=factories.make_document(resource_config=resources))

    assert start_attempt(database, job_id).threads_per_rank == threads


def test_ranks_have_a_thread_each_where_slots_outnumber_cores(database: Database) -> None:
    make_node(database, devices=2, cpu_cores=1)
    job_id = make_job(database, state=JobState.QUEUED)

    assert start_attempt(database, job_id).threads_per_rank == 1


def test_only_the_holder_plans_until_it_is_found_dead(database: Database) -> None:
    first = planner.renew_leadership(database, "a")
    second = planner.renew_leadership(database, "b")
    renewed = planner.renew_leadership(database, "a")
    late = planner.renew_leadership(database, "b", replacing=second)
    taken = planner.renew_leadership(database, "b", replacing=renewed)

    assert [h.holder for h in (first, second, renewed, late, taken)] == ["a", "a", "a", "a", "b"]


def test_unclaimed_attempts_are_announced_again(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    planner.plan_once(database)

    again = planner.unannounced(database, older_than_seconds=-1)
    soon_after = planner.unannounced(database, older_than_seconds=60)

    assert [(d.job_id, d.attempt, d.node) for d in again] == [(job_id, 1, "n1")]
    assert soon_after == []
    assert planner.dispatched_to(database, "n1") == [(job_id, 1)]


def test_a_draining_node_is_drained_when_its_last_attempt_has_ended(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    registry.set_state(database, "n1", "draining")

    states = [registry.heartbeat(database, "n1")]
    work_orders.finish(database, work, Outcome(kind="requeued"), NO_WAIT)
    states.append(registry.heartbeat(database, "n1"))

    assert states == ["draining", "drained"]
    assert planner.plan_once(database) == []


def test_an_unreadable_document_does_not_block_other_jobs(database: Database) -> None:
    make_node(database)
    make_job(database, state=JobState.QUEUED, spec={"resource_config": []})
    sound = make_job(database, state=JobState.QUEUED)

    assert [d.job_id for d in planner.plan_once(database)] == [sound]


def test_a_requeue_request_never_stays_on_a_job_whose_attempt_ends_meanwhile(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING)
    asked: list[int] = []
    drain = threading.Thread(target=lambda: asked.append(registry.request_requeue(database, "n1")))

    with database.write() as session:
        job = transitions.load_for_change(session, job_id)
        drain.start()
        drain.join(0.3)  # it now waits for this job's row, or for the whole database
        work_orders.end_attempt(session, job, 1, Outcome(kind="requeued"), NO_WAIT, actor="test")
    drain.join()

    assert asked == [0]
    assert (job_of(database, job_id).state, job_of(database, job_id).requested) == (JobState.QUEUED, None)


def test_a_long_queue_that_cannot_start_does_not_block_jobs_behind_it(database: Database) -> None:
    make_node(database)
    gpu = factories.make_document(resource_config={"device_type": "cuda"})
    for _ in range(7):
        make_job(database, state=JobState.QUEUED, document=gpu)
    small = make_job(database, state=JobState.QUEUED)

    assert [d.job_id for d in planner.plan_once(database, page_size=3)] == [small]


def test_memory_that_a_running_job_asked_for_is_not_given_twice(database: Database) -> None:
    make_node(database, ram_mb=8000)
    hungry = factories.make_document(resource_config={"ram_min_mb": 5000})
    first = make_job(database, state=JobState.QUEUED, document=hungry)
    second = make_job(database, state=JobState.QUEUED, document=hungry)

    placed = [d.job_id for d in planner.plan_once(database)] + [d.job_id for d in planner.plan_once(database)]

    assert placed == [first]
    assert "n1 has free: 3000 of 5000 MB memory" in job_of(database, second).pending_reason


def test_a_waiting_retry_says_so(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    long = Backoff(base_seconds=60.0, max_seconds=60.0)

    work_orders.finish(database, start_attempt(database, job_id), Outcome(kind="failed", cause="STORAGE_ERROR"), long)

    assert job_of(database, job_id).pending_reason == "retry 1 of 3 after STORAGE_ERROR, in 60 s"


def test_a_job_that_starts_from_a_checkpoint_takes_its_threads_over(database: Database) -> None:
    make_node(database, cpu_cores=8)
    parent = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, parent)
    start = save(database, work, 5)
    heir = make_job(database, state=JobState.QUEUED, resume_checkpoint_id=start.checkpoint_id)

    assert start_attempt(database, heir).threads_per_rank == 1


def test_leadership_stays_held_while_its_renewal_is_under_way(database: Database) -> None:
    seat = LeaderLease(database, "me")
    seat.acquire(0.0)
    renewal = threading.Thread(target=lambda: seat.acquire(10.0))

    with database.write() as session:
        session.get_one(ProcessBeat, planner.PLANNER, with_for_update=True)
        renewal.start()
        renewal.join(0.3)  # it now waits for us
        held = seat.is_leader
    renewal.join()

    assert held
    assert seat.is_leader
