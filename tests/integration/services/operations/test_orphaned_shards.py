"""The orphan sweep deletes shards that can neither be recorded nor read any more, and keeps all others."""

from datetime import timedelta

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Batch, BatchJob
from app.models.base import utc_now
from app.services.operations.orphan_cleanup import OrphanSweep
from app.storage.storage import Storage
from tests.builders.batches import make_batch
from tests.builders.factories import make_job
from tests.builders.shards import batch_document, make_shard

pytestmark = pytest.mark.both_databases


@pytest.fixture
def storage_url(tmp_path):
    return f"file://{tmp_path / 'files'}"


@pytest.fixture
def storage(storage_url):
    return Storage(storage_url)


def store(storage, job_id, *names):
    for name in names:
        storage.write(f"jobs/{job_id}/shards/{name}/part-00000.jsonl", b"{}")


def names(storage, job_id):
    return set(storage.names(f"jobs/{job_id}/shards"))


def test_shards_that_no_attempt_can_record_any_more_go_at_once(database, storage, storage_url):
    with database.write() as session:
        job = make_job(session, state=JobState.EVALUATING, document=batch_document(), fence=5)
        make_shard(session, job, 0, fence=3)
    store(storage, job.id, "0-3", "0-2", "1-4", "1-5", "2-6", "of-another-kind")

    assert OrphanSweep(database, storage_url).run_round() == 2

    assert names(storage, job.id) == {"0-3", "1-5", "2-6", "of-another-kind"}


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_shards_of_jobs_that_ended_long_ago_go(database, storage, storage_url, state):
    now = utc_now()
    with database.write() as session:
        old, young = (
            make_job(session, state=state, document=batch_document(), fence=2, finished_at=now - timedelta(hours=hours))
            for hours in (48, 1)
        )
        for job in (old, young):
            make_shard(session, job, 0, fence=1)
    for job in (old, young):
        store(storage, job.id, "0-1")

    OrphanSweep(database, storage_url).run_round()

    assert (names(storage, old.id), names(storage, young.id)) == (set(), {"0-1"})


def test_shards_stay_until_the_batch_of_requests_that_reads_them_has_ended(database, storage, storage_url):
    long_ago = utc_now() - timedelta(hours=48)
    with database.write() as session:
        job = make_job(session, state=JobState.FAILED, document=batch_document(), fence=2, finished_at=long_ago)
        make_shard(session, job, 0, fence=1)
        batch_id = make_batch(session, status="in_progress").id
        session.add(BatchJob(batch_id=batch_id, model="tiny", job_id=job.id, requests=1))
    store(storage, job.id, "0-1")

    OrphanSweep(database, storage_url).run_round()
    kept = names(storage, job.id)
    with database.write() as session:
        session.get_one(Batch, batch_id).status = "completed"
    OrphanSweep(database, storage_url).run_round()

    assert (kept, names(storage, job.id)) == ({"0-1"}, set())
