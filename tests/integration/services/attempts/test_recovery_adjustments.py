"""Recoveries that change how a job trains, or wait for something, and what its records say of all of them."""

from datetime import timedelta

import pytest

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, Node
from app.services.attempts import checkpoints, leases, work_orders
from app.services.attempts.work_orders import Ending
from app.services.jobs.reports import completion_report
from app.services.scheduling import planner
from tests.builders import factories
from tests.builders.recovering import events_of, failed, record_of, restarted, trained, training
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, save, start_attempt

pytestmark = pytest.mark.both_databases

NO_ROOM = Outcome(kind="failed", cause="DISK_FULL", message="it broke")
ROLLBACK = factories.make_document(
    training_config={"on_divergence": {"action": "rollback", "learning_rate_factor": 0.5, "max_rollbacks": 2}}
)


@pytest.mark.parametrize("cause", ["OUT_OF_MEMORY", "HOST_OUT_OF_MEMORY"])
def test_memory_halves_the_batch_in_place_without_costing_a_retry(database: Database, cause: str) -> None:
    work = training(database, document=factories.make_document(data_config={"batch_size": 8}), max_retries=0)

    for halvings in (1, 2, 3):
        work = restarted(database, work, cause)
        assert work.adjustments == {"batch_halvings": halvings}

    assert job_of(database, work.job_id).retries_used == 0
    assert failed(database, work, cause) == Ending(state=JobState.FAILED)
    adjusted = events_of(database, work.job_id, "job.adjusted")
    assert [event.data["adjustments"] for event in adjusted] == [{"batch_halvings": n} for n in (1, 2, 3)]
    assert adjusted[0].message.startswith(
        "4 records per device and step instead of 8, accumulated over 2 times as many"
    )
    assert "smaller batch_size" in (job_of(database, work.job_id).error_message or "")


def test_adjustments_stay_when_the_job_makes_progress(database: Database) -> None:
    work = restarted(database, training(database), "OUT_OF_MEMORY")
    save(database, trained(database, work), 7)

    assert restarted(database, work).adjustments == {"batch_halvings": 1}


@pytest.mark.parametrize("cause", ["NON_FINITE_LOSS", "DIVERGED"])
def test_a_loss_that_went_wrong_ends_the_job_by_default(database: Database, cause: str) -> None:
    work = training(database)

    assert failed(database, work, cause) == Ending(state=JobState.FAILED)
    assert "on_divergence: rollback" in (job_of(database, work.job_id).error_message or "")


def test_a_rollback_resumes_from_the_last_good_checkpoint_with_a_lower_rate(database: Database) -> None:
    work = training(database, document=ROLLBACK)
    good = [save(database, work, step, loss=1.0).checkpoint_id for step in (2, 4)]
    save(database, work, 6)  # its loss was NaN, which is not stored

    again = restarted(database, work, "DIVERGED", end_step=8)

    assert again.adjustments == {"rollbacks": 1, "learning_rate_factor": 0.5}
    assert [c.checkpoint_id for c in again.resume] == good[::-1]
    job = job_of(database, work.job_id)
    assert (job.latest_checkpoint_id, job.chosen_checkpoint_id, job.retries_used) == (good[1], good[1], 0)
    assert record_of(database, work.job_id, 1).lost_steps == 4
    assert record_of(database, work.job_id, 2).start_step == 4
    assert [event.message for event in events_of(database, work.job_id, "job.adjusted")] == [
        "the learning rate is multiplied by 0.5",
        "the loss had diverged by step 8: rolled back to step 4",
    ]


def test_rollbacks_are_bounded_and_without_a_good_checkpoint_start_anew(database: Database) -> None:
    work = training(database, document=ROLLBACK)
    save(database, work, 3, loss=5.0)

    second = restarted(database, work, "NON_FINITE_LOSS", end_step=3)
    third = restarted(database, second, "NON_FINITE_LOSS", end_step=3)

    assert (second.resume, third.resume) == ((), ())
    assert third.adjustments == {"rollbacks": 2, "learning_rate_factor": 0.25}
    assert failed(database, third, "NON_FINITE_LOSS") == Ending(state=JobState.FAILED)
    assert "rolled back 2 times" in (job_of(database, work.job_id).error_message or "")


def test_a_second_rollback_without_progress_goes_back_further(database: Database) -> None:
    work = training(database, document=ROLLBACK)
    first = save(database, work, 2, loss=1.0).checkpoint_id
    second = save(database, work, 4, loss=1.1).checkpoint_id

    again = restarted(database, work, "NON_FINITE_LOSS", end_step=5)
    third = restarted(database, trained(database, again, 4), "NON_FINITE_LOSS", end_step=5)

    assert [c.checkpoint_id for c in again.resume] == [second, first]
    assert [c.checkpoint_id for c in third.resume] == [first]
    assert record_of(database, work.job_id, 2).lost_steps == 3


def test_a_checkpoint_that_another_job_starts_from_stays_in_a_rollback(database: Database) -> None:
    work = training(database, document=ROLLBACK)
    good = save(database, work, 2, loss=1.0, eval_loss=2.0).checkpoint_id
    pinned = save(database, work, 4, loss=9.0, eval_loss=1.0).checkpoint_id
    heir = make_job(database, JobState.QUEUED, resume_checkpoint_id=pinned)

    again = restarted(database, work, "DIVERGED", end_step=4)

    assert [c.checkpoint_id for c in again.resume] == [good]
    job = job_of(database, work.job_id)
    assert (job.latest_checkpoint_id, job.best_checkpoint_id) == (good, good)
    assert start_attempt(database, heir).resume[0].checkpoint_id == pinned
    with database.write() as session:
        session.get_one(Job, heir).status = JobState.COMPLETED
    assert [checkpoint_id for checkpoint_id, _ in save(database, again, 4).prune] == [pinned]


def test_a_rollback_never_resumes_from_a_diverged_checkpoint_that_another_job_starts_from(database: Database) -> None:
    work = training(database, document=ROLLBACK)
    pinned = save(database, work, 4, loss=9.0).checkpoint_id
    make_job(database, resume_checkpoint_id=pinned)

    again = restarted(database, work, "DIVERGED", end_step=4)
    later = restarted(database, again, "DIVERGED", end_step=8)

    assert (again.resume, later.resume) == ((), ())
    assert record_of(database, work.job_id, again.attempt).start_step == 0
    assert job_of(database, work.job_id).latest_checkpoint_id is None


def test_a_full_disk_has_the_job_wait_for_ever_without_counting(database: Database) -> None:
    make_node(database)
    job_id = make_job(database, JobState.QUEUED, max_retries=0)

    for seconds in (15, 30, 60, 60, 60):
        work = start_attempt(database, job_id)
        ending = work_orders.finish(database, work, NO_ROOM, Backoff(base_seconds=1.0, max_seconds=60.0))
        assert ending.state is JobState.QUEUED
        job = job_of(database, job_id)
        assert job.pending_reason == f"disk_full: it broke; retried in {seconds} s"
        assert planner.plan_once(database) == []
        assert job.not_before_at is not None
        with database.write() as session:
            session.get_one(Job, job_id).not_before_at = job.not_before_at - timedelta(seconds=seconds)

    assert (job.retries_used, job.attempt) == (0, 5)


def test_a_node_whose_disk_stays_full_is_left_for_one_that_may_have_room(database: Database) -> None:
    job_id = between_two_nodes(database)

    nodes = [fill_up(database, job_id) for _ in range(7)]

    assert nodes == ["n1", "n1", "n2", "n2", "n1", "n1", "n2"]
    policies = [record_of(database, job_id, number).policy for number in range(1, 5)]
    assert policies == ["job_reschedule", "job_reschedule_with_taint"] * 2
    assert job_of(database, job_id).retries_used == 0


def test_a_node_whose_disk_was_full_is_tried_again_where_no_other_takes_the_job(database: Database) -> None:
    job_id = between_two_nodes(database)
    fill_up(database, job_id)
    fill_up(database, job_id)
    with database.write() as session:
        session.get_one(Node, "n2").state = "draining"

    assert start_attempt(database, job_id).node == "n1"


def test_progress_forgets_which_disks_were_full(database: Database) -> None:
    job_id = between_two_nodes(database)
    fill_up(database, job_id)
    fill_up(database, job_id)
    save(database, trained(database, start_attempt(database, job_id, node="n2")), 3)

    job = job_of(database, job_id)
    assert (job.disk_waits, job.no_room_on) == (0, [])


def between_two_nodes(db: Database) -> str:
    make_node(db)
    with db.write() as session:
        factories.make_node(session, "n2")
    return make_job(db, JobState.QUEUED, max_retries=0)


def fill_up(db: Database, job_id: str) -> str:
    """Start the job's next attempt, which finds a full disk, and end the wait after it; returns its node."""
    placed = planner.plan_once(db)[0]
    leases.claim(db, job_id=job_id, attempt=placed.attempt, node=placed.node, boot_id="boot")
    work_orders.finish(db, work_orders.load_work(db, job_id, placed.attempt), NO_ROOM, NO_WAIT)
    with db.write() as session:
        session.get_one(Job, job_id).not_before_at = None
    return placed.node


def test_a_chosen_checkpoint_comes_before_the_newest_until_the_next_is_saved(database: Database) -> None:
    work = training(database)
    first, chosen, newest = (save(database, work, step).checkpoint_id for step in (1, 2, 3))
    work_orders.finish(database, work, Outcome(kind="requeued"), NO_WAIT)
    with database.write() as session:
        session.get_one(Job, work.job_id).chosen_checkpoint_id = chosen

    again = start_attempt(database, work.job_id)

    assert [c.checkpoint_id for c in again.resume] == [chosen, first, newest]
    assert record_of(database, work.job_id, 2).start_step == 2
    save(database, again, 3)
    assert job_of(database, work.job_id).chosen_checkpoint_id is None


# ---- records


def test_lost_steps_are_what_has_to_be_done_again(database: Database) -> None:
    work = training(database)
    save(database, work, 4)
    second = trained(database, restarted(database, work, end_step=9), 4)
    save(database, second, 10)

    # The newest checkpoint is damaged.
    trained(database, restarted(database, second, end_step=12), 4)

    assert [record_of(database, work.job_id, n).lost_steps for n in (1, 2)] == [5, 8]


def test_an_attempt_that_never_trained_has_lost_nothing(database: Database) -> None:
    work = training(database)
    save(database, work, 4)
    with database.write() as session:
        session.get_one(Job, work.job_id).current_step = 9
    second = restarted(database, work, end_step=9)
    leases.revoke(
        database, leases.live(database)[0], cause="SUPERVISOR_LOST", message="", actor="reaper", backoff=NO_WAIT
    )

    one = record_of(database, work.job_id, second.attempt)
    assert (one.start_step, one.end_step, one.lost_steps) == (4, 4, 0)


def test_a_record_says_how_long_a_fault_took_to_be_seen_and_mended(database: Database) -> None:
    work = training(database)
    outcome = Outcome(kind="failed", cause="HANG", message="no step", end_step=1, detect_seconds=61.5)
    ending = work_orders.finish(database, work, outcome, NO_WAIT, may_restart=True)
    trained(database, work_orders.load_work(database, work.job_id, ending.restart or 0), 0)
    leases.revoke(
        database, leases.live(database)[0], cause="SUPERVISOR_LOST", message="", actor="reaper", backoff=NO_WAIT
    )

    first, second = (record_of(database, work.job_id, n) for n in (1, 2))
    assert (first.detect_seconds, first.recover_seconds) == (61.5, None)
    assert second.recover_seconds is not None
    assert second.recover_seconds >= 0
    assert second.detect_seconds is not None


def test_a_pause_is_nothing_to_recover_from(database: Database) -> None:
    work = training(database)
    work_orders.finish(database, work, Outcome(kind="paused", end_step=3), NO_WAIT)
    with database.write() as session:
        session.get_one(Job, work.job_id).status = JobState.QUEUED

    trained(database, start_attempt(database, work.job_id), 3)

    assert record_of(database, work.job_id, 2).recover_seconds is None


def test_the_parts_of_a_report_are_the_time_of_the_job(database: Database) -> None:
    work = training(database)
    again = trained(database, restarted(database, work), 0)
    work_orders.finish(database, again, Outcome(kind="completed", end_step=9), NO_WAIT)

    with database.write() as session:
        job = session.get_one(Job, work.job_id)
        numbers = [session.get_one(Attempt, (job.id, n)) for n in (1, 2)]
        began = numbers[0].started_at
        assert began is not None
        for at, one in zip((0, 40), numbers, strict=True):
            one.started_at = began + timedelta(seconds=at)
            one.trained_at = one.started_at + timedelta(seconds=10)
            one.ended_at = one.started_at + timedelta(seconds=40 if at == 0 else 60)
        numbers[0].detect_seconds = 5.0
        job.finished_at = numbers[1].ended_at
        figures = completion_report(session, job).goodput

    assert figures is not None
    assert (figures.wall_seconds, figures.productive_seconds, figures.ratio) == (100.0, 50.0, 0.5)
    assert {name: seconds for name, seconds in figures.badput.items() if seconds} == {
        "start_seconds": 10.0,
        "restart_seconds": 10.0,
        "detect_seconds": 5.0,
        "recompute_seconds": 25.0,
    }


def test_a_resume_point_of_another_job_is_where_a_job_without_checkpoints_begins(database: Database) -> None:
    work = training(database)
    start = save(database, work, 5).checkpoint_id
    heir = make_job(database, JobState.QUEUED, resume_checkpoint_id=start)

    start_attempt(database, heir)

    assert record_of(database, heir, 1).start_step == 5
    with database.read() as session:
        assert checkpoints.start_step(session, session.get_one(Job, heir)) == 5
