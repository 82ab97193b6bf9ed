"""Taking checkpoints over: only a rank's own, recorded once whatever the database answers, and no good one deleted."""

import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from app.database.engine import Database, make_engine
from app.domain.errors import TransientStorageError
from app.domain.ids import new_id
from app.domain.lifecycle.events import EventType
from app.models import Checkpoint, Job, JobEvent
from app.services.attempts import checkpoints, work_orders
from app.services.attempts.model_weights import damage_of
from app.services.telemetry.stored_metrics import MetricValue
from app.storage.storage import Storage
from config.redaction import Redaction
from tests.builders import walks
from tests.builders.factories import make_attempt, make_job, make_node
from tests.systems.system import wait_for
from trainyard.protocol import checkpoint_manifest as _manifest
from trainyard.protocol.commands import CheckpointFailed, CheckpointSaved
from trainyard.protocol.messages import CheckpointReady
from workers.run_dir.layout import RunDirectory
from workers.supervisor.recording.checkpoint_store import CheckpointStore
from workers.supervisor.recording.context import AttemptContext
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.log_store import LogStore
from workers.supervisor.recording.report_writer import Note, Reporter

pytestmark = pytest.mark.both_databases


class ForgetfulDatabase(Database):
    """Commits a checkpoint, and then the answer gets lost as often as ``lose`` says; or is away altogether."""

    lose = 0
    takes_the_job_away = False
    away = False
    error: Exception = OSError("the connection broke after the commit")

    @contextmanager
    def write(self):
        if self.away:
            raise OSError("away")
        with super().write() as session:
            yield session
            saved = [row.job_id for row in session.identity_map.values() if isinstance(row, Checkpoint)]
        if not saved or not self.lose:
            return
        self.lose -= 1
        if self.takes_the_job_away:
            with super().write() as session:
                session.get_one(Job, saved[0]).fence += 1
        raise self.error


class FullStorage(Storage):
    """Takes nothing."""

    def put_tree(self, local_dir, key, *, move=True, known=None):
        raise TransientStorageError("the disk is full")


@pytest.fixture
def db(database_url):
    db = ForgetfulDatabase().bind(make_engine(database_url))
    yield db
    db.close()


@pytest.fixture
def work(db):
    with db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job_id = job.id
    return work_orders.load_work(db, job_id, 1)


def ignore(_message: str) -> None:
    pass


class Taker:
    """A checkpoint store with all it needs, and what it answered."""

    def __init__(self, db, work, directory, storage=Storage):
        self.storage = storage(f"file://{directory / 'files'}")
        self.work = work
        self.run = RunDirectory(directory / "run" / "1")
        self.run.make()
        self.answers: list[Any] = []
        self.lost = threading.Event()
        self.reporter = Reporter(db, work, lambda _: self.lost.set())
        self.room = DiskSpaceWatch(0.5, hurries=lambda: False, on_waiting=ignore, on_over=ignore)
        self.logs = LogStore(self.storage, work.job_id, work.attempt, room=self.room)
        ground = AttemptContext(db=db, storage=self.storage, work=work, run=self.run, redaction=Redaction())
        self.store = CheckpointStore(ground, self.reporter, self.logs, room=self.room, answer=self.answers.append)

    def commit(self, step, folder=None):
        """What a trainer does before it offers."""
        draft = self.run.path / "work" / new_id("draft")
        draft.mkdir()
        (draft / "state").write_text(str(step))
        final = (folder or self.run.checkpoints) / f"{step}"
        manifest = _manifest.Manifest(job_id=self.work.job_id, attempt=self.work.attempt, step=step)
        _manifest.commit(draft, final, manifest)
        return self.run.checkpoints / f"{step}"

    def take(self, step, path=None):
        """Offer and return the answer."""
        ready = CheckpointReady(step=step, epoch=0.5, path=str(path or self.commit(step)), metrics={})
        before = len(self.answers)
        self.store.offer(ready)
        assert self.store.drain(10)
        return self.answers[before] if len(self.answers) > before else None

    def close(self):
        self.store.close()
        self.reporter.close()
        self.logs.close(0.0)


@pytest.fixture
def taker(db, work, tmp_path):
    taker = Taker(db, work, tmp_path)
    yield taker
    taker.close()


def rows(db):
    with db.read() as session:
        return session.query(Checkpoint).order_by(Checkpoint.step).all()


def stored(taker):
    return list(taker.storage.names(f"jobs/{taker.work.job_id}/checkpoints"))


def test_checkpoint_is_stored_and_recorded_as_it_was_offered(db, taker):
    answer = taker.take(5)

    (row,) = rows(db)
    assert answer == CheckpointSaved(str(taker.run.checkpoints / "5"), row.id)
    assert (row.step, row.epoch, row.world_size) == (5, 0.5, 1)
    assert stored(taker) == [row.id]


def test_directory_of_others_in_place_of_ours_is_not_touched(taker, tmp_path):
    theirs = tmp_path / "files" / "jobs" / "job-other" / "checkpoints"
    theirs.mkdir(parents=True)
    taker.commit(5, theirs)
    taker.run.checkpoints.rmdir()
    taker.run.checkpoints.symlink_to(theirs)

    answer = taker.take(5, taker.run.checkpoints / "5")

    assert isinstance(answer, CheckpointFailed)
    assert sorted(path.name for path in (theirs / "5").iterdir()) == ["manifest.json", "state"]


def test_link_to_a_checkpoint_of_others_is_not_followed(taker, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    taker.commit(5, theirs)
    (taker.run.checkpoints / "5").symlink_to(theirs / "5")

    answer = taker.take(5, taker.run.checkpoints / "5")

    assert isinstance(answer, CheckpointFailed)
    assert sorted(path.name for path in (theirs / "5").iterdir()) == ["manifest.json", "state"]


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("broken by us")], ids=["passes", "does not"])
def test_lost_answer_to_a_commit_loses_no_checkpoint(db, taker, error):
    db.lose, db.error = 1, error

    taker.take(5)

    (row,) = rows(db)
    assert row.deleted_at is None
    assert stored(taker) == [row.id]


def test_lost_answer_and_then_a_lost_lease_lose_no_checkpoint(db, taker):
    db.lose, db.takes_the_job_away = 1, True

    assert isinstance(taker.take(5), CheckpointSaved)

    (row,) = rows(db)
    assert stored(taker) == [row.id]


def test_stale_token_deletes_the_files_and_reports_the_loss(db, taker, work):
    with db.write() as session:
        session.get_one(Job, work.job_id).fence += 1

    assert taker.take(5) is None

    assert taker.lost.wait(5)
    assert rows(db) == []
    assert stored(taker) == []


def test_recording_again_names_what_was_retired_again(db, work):
    new = checkpoints.NewCheckpoint(
        checkpoint_id=checkpoints.new_checkpoint_id(),
        step=40,
        epoch=0.0,
        world_size=1,
        threads_per_rank=1,
        size_bytes=1,
        sha256="0" * 64,
        uri="file:///x/40",
    )
    for step in (10, 20, 30):
        walks.save(db, work, step)

    def record():
        return checkpoints.record(db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, actor="test", new=new)

    assert record() == record()
    assert len(record().prune) == 1


def end_while_away(db, taker):
    """The files of a checkpoint are stored, and the end comes before the database is back."""
    taker.store.offer(CheckpointReady(step=5, epoch=0.0, path=str(taker.commit(5)), metrics={}))
    wait_for(lambda: stored(taker), seconds=5, what="the files are stored")
    taker.store.close()
    db.away = False
    taker.reporter.close()
    taker.logs.close(0.0)


def test_closing_ends_the_wait_for_a_database_that_is_away(db, work, tmp_path):
    taker = Taker(db, work, tmp_path)
    db.away = True

    end_while_away(db, taker)

    assert len(stored(taker)) == 1  # it may have been recorded: the orphan sweep decides


def test_checkpoint_whose_metrics_were_never_written_is_not_recorded(db, work, tmp_path):
    taker = Taker(db, work, tmp_path)
    db.away = True
    taker.reporter.points([MetricValue(name="loss", step=5, at=datetime.now(UTC), value=1.0)])

    end_while_away(db, taker)

    assert [type(answer) for answer in taker.answers] == [CheckpointFailed]
    assert (stored(taker), rows(db)) == ([], [])


def test_flood_of_offers_is_answered_but_neither_kept_nor_written_down(db, taker):
    path = str(taker.run.checkpoints / "none")
    for step in range(500):
        taker.store.offer(CheckpointReady(step=step, epoch=0.0, path=path, metrics={}))

    assert taker.store.drain(10)
    assert len(taker.store._offered) == 0
    assert len(taker.answers) == 500
    taker.reporter.flush()
    with db.read() as session:
        assert session.query(JobEvent).filter_by(type=EventType.CHECKPOINT_FAILED).count() <= 20


def test_corrupt_newest_checkpoint_costs_no_good_one(db, work, taker):
    with db.write() as session:
        session.get_one(Job, work.job_id).spec = {"output_config": {"checkpoint": {"save_total_limit": 1}}}
    walks.save(db, work, 50)
    corrupt = walks.save(db, work, 200)
    with db.write() as session:  # a good one that is still there, as with a limit of more than one
        session.query(Checkpoint).filter_by(step=50).update({"deleted_at": None})

    taker.reporter.add(
        Note(
            kind=EventType.RESUME_FALLBACK,
            message="corrupt",
            data={"checkpoint_id": corrupt.checkpoint_id},
            retires=corrupt.checkpoint_id,
        )
    )
    assert taker.reporter.flush()
    with db.read() as session:
        (good,) = checkpoints.list_for(session, work.job_id)
        assert good.step == 50
        assert session.get_one(Job, work.job_id).latest_checkpoint_id == good.id
        assert damage_of(session, session.get_one(Checkpoint, corrupt.checkpoint_id)) is not None

    assert [step for step, gone in _after_saving(db, work, 60) if not gone] == [60]


def _after_saving(db, work, step):
    walks.save(db, work, step)
    return [(row.step, row.deleted_at is not None) for row in rows(db)]


def test_corrupt_checkpoint_is_not_the_best_any_more(db, work, taker):
    with db.write() as session:
        session.get_one(Job, work.job_id).spec = {
            "output_config": {"checkpoint": {"metric_for_best_model": "loss", "save_total_limit": 3}}
        }
    good = walks.save(db, work, 50, loss=2.0)
    corrupt = walks.save(db, work, 200, loss=1.0)

    taker.reporter.add(Note(kind=EventType.RESUME_FALLBACK, message="corrupt", retires=corrupt.checkpoint_id))
    assert taker.reporter.flush()

    with db.read() as session:
        job = session.get_one(Job, work.job_id)
        assert (job.best_checkpoint_id, job.latest_checkpoint_id) == (good.checkpoint_id, good.checkpoint_id)


def test_checkpoints_of_the_documents_steps_stay_beside_those_that_the_limit_allows(db, work):
    with db.write() as session:
        settings = {"save_total_limit": 1, "save_at": [100, 300]}
        session.get_one(Job, work.job_id).spec = {"output_config": {"checkpoint": settings}}

    pruned = [[uri.rpartition("/")[2] for _, uri in walks.save(db, work, step).prune] for step in (50, 100, 200, 300)]

    assert pruned == [[], [], ["50"], []]
    assert [step for step, gone in _after_saving(db, work, 400) if not gone] == [100, 300, 400]


@pytest.mark.long
def test_checkpoint_that_could_not_be_stored_frees_its_room(db, work, tmp_path):
    taker = Taker(db, work, tmp_path, FullStorage)

    assert isinstance(taker.take(5), CheckpointFailed)

    assert list(taker.run.taken_over.iterdir()) == []
    taker.close()
