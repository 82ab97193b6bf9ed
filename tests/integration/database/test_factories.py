"""The factories make rows that the databases accept."""

import pytest
from sqlalchemy import func, select

from app.domain.lifecycle.states import JobState
from app.models import Job, Lease, Reservation
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node

pytestmark = pytest.mark.both_databases


def test_a_running_job_with_all_that_belongs_to_it(database):
    with database.write() as session:
        job = make_job(session, priority=7)
        lease = make_attempt(session, job, make_node(session, devices=2), device_indices=(0, 1))
        make_checkpoint(session, job, step=20)
        job_id, lease_id = job.id, lease.id

    with database.read() as session:
        stored = session.get_one(Job, job_id)
        assert (stored.state, stored.attempt, stored.priority) == (JobState.PREPARING, 1, 7)
        assert session.get_one(Lease, lease_id).fence == stored.fence
        assert session.scalar(select(func.count()).select_from(Reservation)) == 2


def test_jobs_share_their_project_and_queue(database):
    with database.write() as session:
        jobs = [make_job(session, state=state) for state in (JobState.PENDING, JobState.COMPLETED)]

        assert jobs[0].queued_at is None
        assert {job.project for job in jobs} == {"default"}


def test_document_changes_are_merged():
    document = make_document(resource_config={"gpu_count": 2}, labels={"team": "a"})

    assert document["resource_config"] == {"gpu_count": 2, "device_type": "cpu"}
    assert document["labels"] == {"team": "a"}
    assert make_document()["resource_config"]["gpu_count"] == 1
