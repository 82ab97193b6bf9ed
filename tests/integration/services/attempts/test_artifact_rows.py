"""Artifact rows of a model with thousands of files: they do not block other writers or become visible too early."""

import sqlite3

import pytest
from sqlalchemy import event, select

from app.database.engine import Database, make_engine
from app.domain.errors import LeaseLost, NotFound
from app.domain.lifecycle.outcomes import NewArtifact, Outcome
from app.domain.lifecycle.states import JobState
from app.models import Artifact, Job
from app.services.attempts import artifact_rows, artifacts, work_orders
from app.services.attempts.artifact_rows import CHUNK
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.walks import NO_WAIT

pytestmark = pytest.mark.both_databases

MANY = 8_000


@pytest.fixture
def db(database_url):
    db = Database().bind(make_engine(database_url))
    yield db
    db.close()


@pytest.fixture
def work(db):
    return started(db)


def started(db):
    with db.write() as session:
        job = make_job(session, state=JobState.TRAINING)
        make_attempt(session, job, make_node(session))
        job_id = job.id
    return work_orders.load_work(db, job_id, 1)


def files(count, name="part", sha256="0" * 64):
    return tuple(NewArtifact(path=f"{name}-{n:05d}", size_bytes=n, sha256=sha256) for n in range(count))


def listed(db, work):
    with db.read() as session:
        found = artifacts.listed(session, work.job_id)
        return tuple(NewArtifact(path=a.path, size_bytes=a.size_bytes, sha256=a.sha256) for a in found)


def prepare(db, work, made):
    artifact_rows.prepare(db, job_id=work.job_id, fence=work.fence, artifacts=made)


def complete(db, work, made):
    return work_orders.finish(db, work, Outcome(kind="completed", artifacts=made), NO_WAIT)


class OtherWriter:
    """Renews the lease whenever a connection returns to the pool, and never waits for the lock."""

    def __init__(self, database, work):
        self._connection = sqlite3.connect(database, timeout=0, isolation_level=None, check_same_thread=False)
        self._job_id = work.job_id
        self.seen = []  # artifact rows at each of its writes

    def turn(self, *_):
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("UPDATE lease SET counter = counter + 1 WHERE job_id = ?", (self._job_id,))
        counted = self._connection.execute("SELECT count(*) FROM artifact WHERE job_id = ?", (self._job_id,))
        self.seen.append(counted.fetchone()[0])
        self._connection.execute("COMMIT")

    def close(self):
        self._connection.close()


@pytest.mark.long
def test_another_writer_gets_the_lock_after_each_few_hundred_files(sqlite_url):
    db = Database().bind(make_engine(sqlite_url))
    work = started(db)
    other = OtherWriter(db.engine.url.database, work)
    event.listen(db.engine, "checkin", other.turn)

    complete(db, work, files(MANY))

    event.remove(db.engine, "checkin", other.turn)
    growth = [after - before for before, after in zip([0, *other.seen], other.seen, strict=False)]
    assert max(growth) <= CHUNK
    assert sum(growth) == MANY
    assert len(other.seen) > MANY // CHUNK
    other.close()
    db.close()


def test_all_files_are_seen_once_the_job_has_ended(db, work):
    made = files(2 * CHUNK + 1)

    complete(db, work, made)

    assert listed(db, work) == made
    with db.read() as session:
        assert session.get_one(Job, work.job_id).state is JobState.COMPLETED


def test_no_file_is_seen_before_the_job_has_ended(db, work):
    prepare(db, work, files(CHUNK + 1))

    assert listed(db, work) == ()
    with db.read() as session, pytest.raises(NotFound):
        artifacts.find(session, work.job_id, "part-00000")


@pytest.mark.parametrize("count", [3, CHUNK + 3])
def test_attempt_after_one_that_died_half_way_leaves_only_its_own_files(db, work, count):
    prepare(db, work, files(2 * CHUNK, name="dead") + files(1, sha256="1" * 64))
    made = files(count)

    complete(db, work, made)

    assert listed(db, work) == made


def test_writing_again_after_a_lost_answer_changes_nothing(db, work):
    made = files(CHUNK + 1)
    prepare(db, work, made)
    commits: list[object] = []
    event.listen(db.engine, "commit", commits.append)

    prepare(db, work, made)

    assert commits == []
    complete(db, work, made)
    assert listed(db, work) == made


def test_files_of_an_attempt_that_lost_its_job_are_not_recorded(db, work):
    with db.write() as session:
        session.get_one(Job, work.job_id).fence += 1

    with pytest.raises(LeaseLost):
        complete(db, work, files(CHUNK + 1))

    assert listed(db, work) == ()


def test_files_of_an_attempt_that_fails_after_them_stay_unseen(db, work):
    prepare(db, work, files(CHUNK + 1))

    work_orders.finish(db, work, Outcome(kind="failed", cause="INTERNAL"), NO_WAIT)

    assert listed(db, work) == ()


@pytest.mark.parametrize("count", [3, CHUNK + 3])
def test_files_of_a_folder_named_as_that_of_other_nodes_are_seen(db, work, count):
    made = files(count, name="node-outputs/part")
    prepare(db, work, files(CHUNK + 1, name="node-outputs/attempt-1-node-1/part"))

    complete(db, work, made)

    with db.read() as session:
        assert session.scalars(select(Artifact.path).order_by(Artifact.path)).all() == [each.path for each in made]
