"""Shards of jobs that train nothing: each is recorded once, by the holder of the lease alone, and none is lost."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.errors import BadSpec, IllegalTransition, LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Job, Shard
from app.services.attempts import checkpoints, completion, shards, work_orders
from app.services.attempts.shards import NewShard
from app.services.jobs import start_points
from app.services.jobs.control import requests as control_requests
from app.services.scheduling import running_jobs
from tests.builders.factories import make_attempt, make_checkpoint, make_job, make_node
from tests.builders.shards import batch_document, make_shard

pytestmark = pytest.mark.both_databases

NOW = Backoff(base_seconds=0.0, max_seconds=0.0)


def start_job(database, **document: Any) -> str:
    with database.write() as session:
        job = make_job(session, document=batch_document(**document), total_steps=5)
        make_attempt(session, job, make_node(session))
        return job.id


def new(job_id, number=0, fence=1, **changes):
    uri = f"file:///srv/files/jobs/{job_id}/shards/{number}-{fence}"
    values = {"size_bytes": 10, "sha256": "1" * 64, "counts": {"failed": 1}, **changes}
    return NewShard(number=number, first_record=2 * number, records=2, uri=uri, **values)


def record(database, job_id, shard, *, fence=1):
    return shards.record(database, job_id=job_id, attempt=1, fence=fence, new=shard)


def rows(database):
    with database.read() as session:
        return list(session.scalars(select(Shard).order_by(Shard.number)))


def change(database, job_id, **columns):
    with database.write() as session:
        job = session.get_one(Job, job_id)
        for name, value in columns.items():
            setattr(job, name, value)


def test_shard_is_recorded_with_its_token_and_once_however_often_it_is_recorded(database):
    job_id = start_job(database)

    replaced = [record(database, job_id, new(job_id, 1)) for _ in range(3)]

    (row,) = rows(database)
    assert (row.number, row.first_record, row.records, row.fence) == (1, 2, 2, 1)
    assert (row.counts, replaced) == ({"failed": 1}, [None, None, None])


def test_attempt_that_lost_the_job_records_no_shard(database):
    job_id = start_job(database)
    change(database, job_id, fence=2)

    with pytest.raises(LeaseLost):
        record(database, job_id, new(job_id))

    assert rows(database) == []


def test_shard_that_was_recorded_before_the_lease_was_lost_stays_recorded(database):
    job_id = start_job(database)
    record(database, job_id, new(job_id))
    change(database, job_id, fence=2)

    assert record(database, job_id, new(job_id)) is None, "only the answer to the commit was lost"

    assert shards.is_recorded(database, job_id, 0, new(job_id).uri)


def test_shard_whose_files_were_lost_is_replaced_and_the_old_files_are_named(database):
    job_id = start_job(database)
    record(database, job_id, new(job_id))
    change(database, job_id, fence=2)

    replaced = record(database, job_id, new(job_id, fence=2), fence=2)

    (row,) = rows(database)
    assert (replaced, row.uri, row.fence) == (1, new(job_id, fence=2).uri, 2)


def test_each_new_shard_refills_the_retry_budget_and_a_replaced_one_does_not(database):
    used = {"retries_used": 2, "hangs": 1, "excluded_nodes": ["local"]}
    job_id = start_job(database)
    change(database, job_id, **used)
    record(database, job_id, new(job_id))
    with database.read() as session:
        job = session.get_one(Job, job_id)
        assert (job.retries_used, job.hangs, job.excluded_nodes) == (0, 0, [])
    change(database, job_id, fence=2, **used)

    record(database, job_id, new(job_id, fence=2), fence=2)

    with database.read() as session:
        assert session.get_one(Job, job_id).retries_used == 2


def test_next_attempt_gets_the_shards_and_starts_after_their_records(database):
    job_id = start_job(database)
    for number in (2, 0):
        record(database, job_id, new(job_id, number))

    work = work_orders.load_work(database, job_id, 1)

    assert [(shard.number, shard.records) for shard in work.shards] == [(0, 2), (2, 2)]
    assert (work.is_training, work.working_phase, work.resume) == (False, JobState.EVALUATING, ())
    with database.read() as session:
        assert checkpoints.start_step(session, session.get_one(Job, job_id)) == 4


def test_step_of_an_evaluation_is_the_number_of_its_finished_benchmarks(database):
    job_id = start_job(database, benchmarks=3)
    for number in (0, 2):
        record(database, job_id, new(job_id, number))

    with database.read() as session:
        assert shards.stored_step(session, session.get_one(Job, job_id)) == 2


def test_counts_are_summed_over_the_shards(database):
    job_id = start_job(database)
    record(database, job_id, new(job_id, 0, counts={"failed": 1, "prompt_tokens": 7}))
    record(database, job_id, new(job_id, 1, counts={"failed": 2}))

    with database.read() as session:
        counted = shards.counts_of(session, job_id)

    assert (counted.shards, counted.records, counted.counts) == (2, 4, {"failed": 3, "prompt_tokens": 7})


def test_attempt_works_from_the_first_evaluating_on(database):
    job_id = start_job(database)
    record(database, job_id, new(job_id))
    work = work_orders.load_work(database, job_id, 1)

    work_orders.enter_phase(database, work, JobState.EVALUATING, start_step=2)

    with database.read() as session:
        attempt = session.get_one(Attempt, (job_id, 1))
        assert (attempt.trained_at is not None, attempt.start_step) == (True, 2)
        assert session.get_one(Job, job_id).current_step == 2


def test_records_after_the_last_shard_are_lost_when_an_attempt_ends(database):
    job_id = start_job(database)
    record(database, job_id, new(job_id))
    with database.write() as session:
        job = session.get_one(Job, job_id)
        outcome = Outcome(kind="failed", cause="RANK_KILLED", message="killed", end_step=5)
        ending = completion.end_attempt(session, job, 1, outcome, NOW, actor="test")

    with database.read() as session:
        attempt, job = session.get_one(Attempt, (job_id, 1)), session.get_one(Job, job_id)
    assert (ending.state, attempt.lost_steps) == (JobState.QUEUED, 3)
    assert (job.retries_used, len(rows(database))) == (1, 1)


def test_checkpoint_that_is_the_model_is_pinned_and_is_no_start_point(database):
    with database.write() as session:
        trained = make_job(session, state=JobState.COMPLETED)
        saved = make_checkpoint(session, trained)
        job = make_job(session, document=batch_document(), resume_checkpoint_id=saved.id)

        assert checkpoints.unneeded(session, trained.id, [saved.id]) == {}
        assert checkpoints.resume_candidates(session, job) == []
        assert checkpoints.start_step(session, job) == 0
        with pytest.raises(BadSpec, match="kind batch"):
            start_points.chosen(session, job, saved.id, from_best=False)


def test_paused_job_resumes_after_what_it_has_stored(database):
    with database.write() as session:
        job = make_job(session, state=JobState.PAUSED, document=batch_document())
        make_shard(session, job, 0)
        make_shard(session, job, 1)

        resumed = control_requests.resume(session, job.id, actor="user-1")

        assert (resumed.state, resumed.status_reason) == (
            JobState.QUEUED,
            "continues after 2 stored shards with 4 records",
        )


def test_no_checkpoint_can_be_asked_of_a_job_without_any(database):
    with database.write() as session:
        job = make_job(session, state=JobState.EVALUATING, document=batch_document())

        with pytest.raises(IllegalTransition, match="each of its shards is stored"):
            control_requests.request_checkpoint(session, job.id, actor="user-1")


def test_preemption_costs_what_was_done_since_the_newest_shard(database):
    job_id = start_job(database)
    work = work_orders.load_work(database, job_id, 1)
    work_orders.enter_phase(database, work, JobState.EVALUATING)
    with database.write() as session:
        before = session.get_one(Attempt, (job_id, 1)).trained_at
        session.get_one(Attempt, (job_id, 1)).trained_at = before - timedelta(days=365)
        (without,) = running_jobs.running(session)
    record(database, job_id, new(job_id))

    with database.read() as session:
        (stored,) = running_jobs.running(session)

    assert without.loss > 1_000_000, "since it began"
    assert stored.loss < 1000
