"""Taking shards over: only what the document cuts, once in an attempt, stored before it is recorded."""

import pytest

from app.domain.ids import new_id
from app.models import Job, Shard
from app.services.attempts import work_orders
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.shards import batch_document, make_shard
from tests.integration.services.attempts.test_checkpoint_store import FullStorage, Taker
from trainyard.protocol import checkpoint_manifest as _manifest
from trainyard.protocol.commands import CheckpointFailed, CheckpointSaved
from trainyard.protocol.messages import CheckpointReady

pytestmark = pytest.mark.both_databases


@pytest.fixture
def make_taker(database, tmp_path):
    """A store of an attempt, with what it answered."""
    made: list[Taker] = []

    def make(storage=None, **document):
        with database.write() as session:
            job = make_job(session, document=batch_document(**document))
            make_attempt(session, job, make_node(session))
        work = work_orders.load_work(database, job.id, 1)
        made.append(Taker(database, work, tmp_path, **({"storage": storage} if storage else {})))
        return made[-1]

    yield make
    for each in made:
        each.close()


def offer(taker, step=2, **position):
    """Offer a shard as rank 0 does, and return the answer."""
    taker.store.offer(committed(taker, step, **position))
    assert taker.store.drain(10)
    return taker.answers[-1]


def committed(taker, step=2, **position):
    """What rank 0 hands over."""
    draft, name = taker.run.path / "work" / new_id("draft"), new_id("part")
    draft.mkdir()
    (draft / "part.jsonl").write_text("{}\n")
    manifest = _manifest.Manifest(
        job_id=taker.work.job_id,
        attempt=1,
        step=step,
        data_position={"shard": 0, "first_record": 0, "records": 2, "counts": {}, **position},
    )
    _manifest.commit(draft, taker.run.checkpoints / name, manifest)
    return CheckpointReady(step=step, epoch=0.0, path=str(taker.run.checkpoints / name), metrics={})


def rows(database):
    with database.read() as session:
        return session.query(Shard).order_by(Shard.number).all()


def stored(taker):
    return list(taker.storage.names(f"jobs/{taker.work.job_id}/shards"))


def test_shard_is_stored_under_its_number_and_token_and_recorded(database, make_taker):
    taker = make_taker()

    answer = offer(taker, step=2, shard=1, first_record=2, records=1, counts={"failed": 1})

    (row,) = rows(database)
    assert isinstance(answer, CheckpointSaved)
    assert (row.number, row.first_record, row.records, row.counts) == (1, 2, 1, {"failed": 1})
    assert stored(taker) == ["1-1"]
    assert row.uri == taker.storage.uri(f"jobs/{taker.work.job_id}/shards/1-1")
    assert taker.store.newest_step == 2


@pytest.mark.parametrize(
    "position",
    [
        {"shard": -1},
        {"shard": True},
        {"shard": None},
        {"shard": 1, "first_record": 0},
        {"first_record": 1},
        {"records": 3},
        {"records": "2"},
        {"records": 0},
        {"sources_sha256": "1"},
        {"sources_sha256": [1]},
        {"counts": []},
        {"counts": {"failed": float("nan")}},
        {"counts": {"failed": "many"}},
        {"counts": {"a name": 1}},
        {"counts": {f"n{i}": i for i in range(51)}},
    ],
    ids=str,
)
def test_shard_that_the_document_does_not_cut_this_way_is_refused(database, make_taker, position):
    taker = make_taker()

    assert isinstance(offer(taker, **position), CheckpointFailed)

    assert (rows(database), stored(taker)) == ([], [])


def test_shard_of_an_evaluation_is_one_of_its_benchmarks(database, make_taker):
    taker = make_taker(benchmarks=2)

    answers = [offer(taker, step=1, shard=number, records=1000) for number in (1, 2)]

    assert [type(answer) for answer in answers] == [CheckpointSaved, CheckpointFailed]
    assert [row.number for row in rows(database)] == [1]


def test_shard_is_stored_once_in_an_attempt(database, make_taker):
    taker = make_taker()
    offer(taker)
    (before,) = rows(database)

    again = offer(taker)

    assert isinstance(again, CheckpointFailed)
    assert "shard 0 is stored already" in again.message
    assert [row.created_at for row in rows(database)] == [before.created_at]
    assert stored(taker) == ["0-1"]


def test_shard_that_the_attempt_has_taken_over_is_not_replaced(database, make_taker):
    taker = make_taker()
    taker.store.begin([0], 0)

    assert "shard 0 is stored already" in offer(taker).message

    assert (rows(database), stored(taker)) == ([], [])


def test_number_of_shards_is_bounded_by_the_files_of_an_output(database, make_taker):
    taker = make_taker()
    taker.store.begin([], 2)

    answers = [offer(taker, shard=number, first_record=2 * number) for number in (1, 2)]

    assert [type(answer) for answer in answers] == [CheckpointSaved, CheckpointFailed]
    assert "at most 2 files" in answers[1].message
    assert [row.number for row in rows(database)] == [1]


def test_files_of_a_replaced_shard_are_deleted_by_number_and_token(database, make_taker, tmp_path):
    """Its recorded address may be of a storage that was moved since."""
    taker = make_taker()
    with database.write() as session:
        make_shard(session, session.get_one(Job, taker.work.job_id), 0, fence=0, uri="s3://elsewhere/0-0")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "part.jsonl").write_text("{}")
    taker.storage.put_tree(tmp_path / "old", f"jobs/{taker.work.job_id}/shards/0-0")

    assert isinstance(offer(taker), CheckpointSaved)

    assert stored(taker) == ["0-1"]


def test_shard_of_an_attempt_that_lost_the_job_is_neither_recorded_nor_kept(database, make_taker):
    taker = make_taker()
    with database.write() as session:
        session.get_one(Job, taker.work.job_id).fence += 1

    taker.store.offer(committed(taker))

    assert taker.lost.wait(10)
    assert taker.store.drain(10)
    assert (rows(database), stored(taker)) == ([], [])


@pytest.mark.long
def test_shard_that_could_not_be_stored_is_not_recorded(database, make_taker):
    taker = make_taker(FullStorage)

    assert isinstance(offer(taker), CheckpointFailed)

    assert rows(database) == []
