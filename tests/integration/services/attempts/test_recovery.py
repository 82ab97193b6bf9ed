"""What becomes of a job whose attempt failed, by the cause and by what was tried before, on both databases."""

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Job, Lease, Node, Project, Reservation
from app.services.attempts import leases, work_orders
from app.services.attempts.work_orders import Ending
from app.services.jobs.control import requests as control_requests
from app.services.nodes import registry
from app.services.scheduling import planner
from tests.builders import factories
from tests.builders.recovering import events_of, failed, record_of, restarted, trained, training
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, save, start_attempt, statuses

pytestmark = pytest.mark.both_databases

KILLED = Outcome(kind="failed", cause="RANK_KILLED", message="rank 0 was killed", end_step=5, ran_seconds=2.0)
TWO_SLOTS = factories.make_document(resource_config={"gpu_count": 2})


# ---- in place


def test_a_killed_rank_is_restarted_by_the_same_supervisor_with_what_it_holds(database: Database) -> None:
    work = training(database)
    save(database, work, 3)

    ending = work_orders.finish(database, work, KILLED, NO_WAIT, may_restart=True)
    again = work_orders.load_work(database, work.job_id, 2)

    assert (ending.state, ending.restart) == (JobState.TRAINING, 2)
    assert (again.lease_id, again.node, again.devices) == (work.lease_id, work.node, work.devices)
    assert again.fence == work.fence + 1
    assert [c.step for c in again.resume] == [3]
    with database.read() as session:
        assert [(r.job_id, r.attempt) for r in session.scalars(select(Reservation))] == [(work.job_id, 2)]
        lease = session.scalars(select(Lease)).one()
        assert (lease.attempt, lease.fence, lease.released_at) == (2, again.fence, None)
    job = job_of(database, work.job_id)
    assert (job.attempt, job.fence, job.retries_used, job.in_place_restarts) == (2, again.fence, 1, 1)
    assert (job.elapsed_seconds, job.error_type) == (2.0, "RANK_KILLED")


def test_what_the_old_attempt_still_writes_changes_nothing(database: Database) -> None:
    work = training(database)
    again = restarted(database, work)

    with pytest.raises(LeaseLost):
        leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0)
    with pytest.raises(LeaseLost):
        save(database, work, 6)
    with pytest.raises(LeaseLost):
        failed(database, work)
    with pytest.raises(LeaseLost):
        work_orders.enter_phase(database, work, JobState.TRAINING)
    assert leases.renew(database, lease_id=again.lease_id, fence=again.fence, ran_seconds=1.0).requested is None


def test_a_lease_that_was_seen_before_the_restart_is_not_taken_away(database: Database) -> None:
    work = training(database)
    seen = leases.live(database)[0]
    restarted(database, work)

    taken = leases.revoke(database, seen, cause="SUPERVISOR_LOST", message="", actor="reaper", backoff=NO_WAIT)

    assert not taken


def test_the_time_of_an_attempt_that_was_restarted_counts_once(database: Database) -> None:
    work = training(database)
    leases.renew(database, lease_id=work.lease_id, fence=work.fence, ran_seconds=1.0)
    restarted(database, work)

    leases.revoke(
        database, leases.live(database)[0], cause="SUPERVISOR_LOST", message="", actor="reaper", backoff=NO_WAIT
    )

    assert 1.0 <= job_of(database, work.job_id).elapsed_seconds < 2.0


@pytest.mark.parametrize("state", [JobState.TRAINING, JobState.EVALUATING, JobState.CHECKPOINTING])
def test_a_restarted_attempt_resumes_from_whatever_state_the_job_is_in(database: Database, state: JobState) -> None:
    work = training(database)
    work_orders.enter_phase(database, work, state)
    again = restarted(database, work)

    trained(database, again, 0)
    work_orders.finish(database, again, Outcome(kind="completed", end_step=9), NO_WAIT)

    assert job_of(database, work.job_id).state is JobState.COMPLETED
    started = events_of(database, work.job_id, "attempt.started")
    assert [event.data["attempt"] for event in started] == [1, 2]


@pytest.mark.parametrize("request_kind", ["pause", "preempt", "requeue"])
def test_nothing_is_restarted_in_place_against_a_control_request(database: Database, request_kind: str) -> None:
    work = training(database, document=factories.make_document(scheduling_config={"on_preemption": "requeue"}))
    with database.write() as session:
        session.get_one(Job, work.job_id).requested = request_kind

    ending = failed(database, work)

    assert ending == Ending(state=JobState.PAUSED if request_kind == "pause" else JobState.QUEUED)


def test_nothing_is_restarted_in_place_where_a_node_drains_or_a_model_is_exported(database: Database) -> None:
    work = training(database)
    work_orders.enter_phase(database, work, JobState.EXPORTING)
    exporting = failed(database, work)
    again = trained(database, start_attempt(database, work.job_id))
    registry.set_state(database, "n1", "draining")

    draining = failed(database, again)

    assert exporting == draining == Ending(state=JobState.QUEUED)
    one = record_of(database, work.job_id, 1)
    assert (one.policy, one.recover_before_downgrade) == ("job_reschedule", "proc_restart")


def test_nothing_is_restarted_in_place_on_a_node_without_what_the_project_demands(database: Database) -> None:
    work = training(database)
    with database.write() as session:
        session.get_one(Project, "default").quota = {"required_capabilities": ["sandbox:full"]}
    elsewhere = failed(database, work)
    with database.write() as session:
        session.get_one(Node, "n1").capabilities = ["sandbox:full"]
    again = trained(database, start_attempt(database, work.job_id))

    here = failed(database, again)

    assert elsewhere == Ending(state=JobState.QUEUED)
    assert record_of(database, work.job_id, 1).recover_before_downgrade == "proc_restart"
    assert here.restart == 3


def test_a_pause_is_kept_when_the_supervisor_is_lost_while_it_exports(database: Database) -> None:
    work = training(database)
    save(database, work, 3)
    with database.write() as session:
        control_requests.request_pause(session, work.job_id, actor="me")
    work_orders.enter_phase(database, work, JobState.EXPORTING)

    leases.revoke(
        database,
        leases.live(database)[0],
        cause="SUPERVISOR_LOST",
        message="it is gone",
        actor="reaper",
        backoff=NO_WAIT,
    )

    job = job_of(database, work.job_id)
    assert (job.state, job.requested, job.pending_reason) == (JobState.PAUSED, None, "")
    assert statuses(database, work.job_id)[-2:] == ["QUEUED", "PAUSED"]
    assert planner.plan_once(database) == []
    with database.read() as session:
        assert list(session.scalars(select(Reservation))) == []
    with database.write() as session:
        control_requests.resume(session, work.job_id, actor="me")
    assert [c.step for c in start_attempt(database, work.job_id).resume] == [3]


def test_a_supervisor_that_is_shutting_down_restarts_nothing(database: Database) -> None:
    ending = work_orders.finish(database, training(database), KILLED, NO_WAIT)

    assert ending == Ending(state=JobState.QUEUED)


# ---- the layers, and their end


def test_the_layers_are_tried_cheapest_first(database: Database) -> None:
    work = training(database)
    with database.write() as session:
        factories.make_node(session, "n2")
    third = restarted(database, restarted(database, work))

    ending = failed(database, third)

    assert ending == Ending(state=JobState.QUEUED)
    policies = [record_of(database, work.job_id, n) for n in (1, 2, 3)]
    assert [one.policy for one in policies] == ["proc_restart", "proc_restart", "job_reschedule_with_taint"]
    assert [one.end_recover for one in policies] == [one.policy for one in policies]
    assert [one.recover_before_downgrade for one in policies] == [None, None, "proc_restart"]
    assert [one.start_type for one in policies] == ["init_or_rescheduled", "restarted", "restarted"]
    assert job_of(database, work.job_id).excluded_nodes == ["n1"]
    fourth = start_attempt(database, work.job_id, node="n2")
    assert failed(database, fourth).state is JobState.FAILED
    job = job_of(database, work.job_id)
    assert "3 of 3 retries" in (job.error_message or "")


def test_a_suspect_node_is_used_all_the_same_when_no_other_could_hold_the_job(database: Database) -> None:
    work = training(database)
    with database.write() as session:
        factories.make_node(session, "n2", devices=1, device_type="a100")
    failed(database, restarted(database, restarted(database, work)))

    assert start_attempt(database, work.job_id).node == "n1"


def test_a_job_waits_for_another_node_than_the_suspect_one_and_says_so(database: Database) -> None:
    work = training(database)
    failed(database, restarted(database, restarted(database, work)))
    with database.write() as session:
        factories.make_node(session, "n2", devices=1)
    before = make_job(database, JobState.QUEUED, priority=9, document=TWO_SLOTS)
    other = make_job(database, JobState.QUEUED, priority=9)

    placed = {d.job_id: d.node for d in planner.plan_once(database)}

    assert placed == {before: "n1", other: "n2"}
    assert job_of(database, work.job_id).pending_reason == (
        "needs 1 CPU slot on one node; free: 0 on n2; not on n1, where it failed repeatedly"
    )


def test_progress_refills_the_budget_and_clears_the_suspects(database: Database) -> None:
    work = training(database)
    save(database, work, 3)
    third = trained(database, restarted(database, restarted(database, work)), 3)
    with database.write() as session:
        job = session.get_one(Job, work.job_id)
        job.excluded_nodes, job.hangs, job.host_losses = ["n9"], 1, 1

    save(database, third, 3)
    assert job_of(database, work.job_id).retries_used == 2
    save(database, third, 4)

    job = job_of(database, work.job_id)
    assert (job.retries_used, job.in_place_restarts, job.hangs, job.host_losses) == (0, 0, 0, 0)
    assert job.excluded_nodes == []
    assert failed(database, third).restart == 4


def test_a_job_that_makes_progress_survives_any_number_of_kills(database: Database) -> None:
    work = training(database)
    for step in range(1, 12):
        save(database, work, step)
        work = trained(database, restarted(database, work, end_step=step), step)

    assert work.attempt == 12


def test_a_job_that_takes_its_host_down_three_times_never_starts_a_fourth_time(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, JobState.QUEUED, max_retries=9)
    for _ in range(3):
        start_attempt(database, job_id)
        leases.revoke(
            database, leases.live(database)[0], cause="NODE_LOST", message="n1 is gone", actor="reaper", backoff=NO_WAIT
        )

    job = job_of(database, job_id)
    assert (job.state, job.error_type) == (JobState.FAILED, "POISON")
    assert "3 times" in (job.error_message or "")
    assert record_of(database, job_id, 3).cause == "NODE_LOST"
    assert planner.plan_once(database) == []


# ---- a pause that was taken back


@pytest.mark.parametrize(
    ("asked_since", "state", "says"),
    [
        (None, JobState.QUEUED, "it had stopped for a pause when that was taken back"),
        ("requeue", JobState.QUEUED, "its node drains"),
        ("preempt", JobState.PREEMPTED, "a job of priority 9"),
        ("cancel", JobState.CANCELLED, ""),
        ("pause", JobState.PAUSED, ""),
    ],
)
def test_ranks_that_stopped_for_a_pause_that_was_taken_back_have_only_interrupted_their_job(
    database: Database, asked_since: str | None, state: JobState, says: str
) -> None:
    work = training(database, max_retries=1)
    save(database, work, 5)
    with database.write() as session:
        control_requests.request_pause(session, work.job_id, actor="ana")
        control_requests.resume(session, work.job_id, actor="ana")
        if asked_since is not None:
            job = session.get_one(Job, work.job_id)
            job.requested, job.requested_reason = asked_since, says

    work_orders.finish(database, work, Outcome(kind="paused", on_request=True, end_step=5, exit_code=0), NO_WAIT)

    job = job_of(database, work.job_id)
    assert (job.state, job.requested, job.retries_used) == (state, None, 0)
    record = record_of(database, work.job_id, 1)
    assert (record.end_reason or "").startswith(says)
    assert record.lost_steps == 0
    with database.read() as session:
        assert session.scalars(select(Reservation)).all() == []
