"""The orphan sweep deletes what is no longer referenced and keeps everything else."""

import os
import uuid
from datetime import timedelta

import pytest
from sqlalchemy import select

from app.domain.ids import new_id
from app.models import Artifact
from app.models.base import utc_now
from app.services.operations.orphan_cleanup import OrphanSweep
from app.storage.storage import Storage
from tests.builders.factories import make_checkpoint, make_job

pytestmark = pytest.mark.both_databases

OLD = 0x0193_0000_0000  # milliseconds since 1970, as a UUIDv7 begins with: November 2024


@pytest.fixture
def storage_url(tmp_path):
    return f"file://{tmp_path / 'files'}"


@pytest.fixture
def storage(storage_url):
    return Storage(storage_url)


@pytest.fixture
def job_id(database):
    with database.write() as session:
        return make_job(session).id


def old_id():
    return f"ckpt-{uuid.UUID(int=OLD << 80 | 7 << 76 | 2 << 62 | int.from_bytes(os.urandom(4)))}"


def store(storage, job_id, name):
    storage.write(f"jobs/{job_id}/checkpoints/{name}/manifest.json", b"{}")
    return name


def names(storage, job_id):
    return set(storage.names(f"jobs/{job_id}/checkpoints"))


def test_checkpoints_that_were_never_recorded_go_when_they_are_old(database, storage, storage_url, job_id):
    store(storage, job_id, old_id())
    young = store(storage, job_id, new_id("ckpt"))
    foreign = store(storage, job_id, "another-users")

    assert OrphanSweep(database, storage_url).run_round() == 1

    assert names(storage, job_id) == {young, foreign}


def test_retired_checkpoints_go_when_they_were_retired_long_ago(database, storage, storage_url):
    now = utc_now()
    with database.write() as session:
        job = make_job(session)
        kept, fresh, gone = [
            make_checkpoint(session, job, id=old_id(), deleted_at=deleted_at).id
            for deleted_at in (None, now - timedelta(hours=1), now - timedelta(hours=48))
        ]
    for name in (kept, fresh, gone):
        store(storage, job.id, name)

    OrphanSweep(database, storage_url).run_round()

    assert names(storage, job.id) == {kept, fresh}


def test_jobs_of_another_database_are_let_alone(database, storage, storage_url):
    name = store(storage, "job-of-another-user", old_id())

    assert OrphanSweep(database, storage_url).run_round() == 0

    assert names(storage, "job-of-another-user") == {name}


def test_remains_of_dead_writers_go(database, storage, storage_url, job_id):
    store(storage, job_id, new_id("ckpt"))
    folder = storage.local_path(f"jobs/{job_id}/checkpoints")
    for place in (folder, folder.parent):
        (place / ".trainyard-tmp-00000000-x").mkdir()

    assert OrphanSweep(database, storage_url, age_limit=timedelta(seconds=-1)).run_round() >= 2

    assert not [entry for place in (folder, folder.parent) for entry in place.glob(".trainyard-tmp-*")]


def test_all_jobs_get_their_turn_in_rounds(database, storage, storage_url):
    with database.write() as session:
        jobs = [make_job(session).id for _ in range(5)]
    for job in jobs:
        store(storage, job, old_id())
    sweep = OrphanSweep(database, storage_url)

    assert [sweep.run_round(jobs=2) for _ in range(3)] == [2, 2, 1]

    store(storage, jobs[0], old_id())
    assert sweep.run_round(jobs=2) == 1


def test_storage_that_is_not_there_is_asked_again_later(database, tmp_path):
    (tmp_path / "files").write_text("in the way")

    assert OrphanSweep(database, f"file://{tmp_path / 'files'}").run_round() == 0
    assert OrphanSweep(database, "nonsense://x").run_round() == 0


def test_outputs_of_nodes_that_no_artifact_lies_in_go_with_their_attempt(database, storage, storage_url):
    with database.write() as session:
        running = make_job(session, attempt=2).id
        ended = make_job(session, attempt=1, finished_at=utc_now() - timedelta(hours=48)).id
        for job_id, path in ((running, "attempt-1-node-2/a"), (ended, "attempt-1-node-1/a")):
            row = Artifact(job_id=job_id, path=f"node-outputs/{path}", size_bytes=1, sha256="0" * 64)
            session.add(row)
        path = "node-outputs/attempt-1-node-1/a"
        session.add(Artifact(job_id=running, path=path, size_bytes=1, sha256="0" * 64, pending=True))
    for job_id in (running, ended):
        for name in ("attempt-1-node-1", "attempt-1-node-2", "attempt-2-node-1", "of-another-kind"):
            storage.write(f"jobs/{job_id}/node-outputs/{name}/a", b"1")

    OrphanSweep(database, storage_url).run_round()

    kept = [set(storage.names(f"jobs/{job_id}/node-outputs")) for job_id in (running, ended)]
    assert kept == [
        {"attempt-1-node-2", "attempt-2-node-1", "of-another-kind"},
        {"attempt-1-node-1", "of-another-kind"},
    ]
    with database.read() as session:
        left = session.scalars(select(Artifact.path).where(Artifact.job_id == running)).all()
    assert left == ["node-outputs/attempt-1-node-2/a"]
