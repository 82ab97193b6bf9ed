"""What an attempt takes over of earlier ones: shards that verify, and nothing of one that does not."""

from pathlib import Path

import pytest

from app.domain.errors import TransientStorageError
from app.services.attempts.shards import StoredShard
from app.storage.storage import Storage
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.attempt_failed import AttemptFailed
from workers.prepare.finished_shards import ShardInputs, restore_shards
from workers.prepare.inputs.input_library import LocalData, LocalDataFile


class Away(Storage):
    """Does not answer."""

    def local_path(self, key: str) -> Path | None:
        raise TransientStorageError(f"{key}: no answer")


class Remote(Storage):
    """Files that lie nowhere on this machine, and have to be fetched."""

    def local_path(self, key: str) -> Path | None:
        return None


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path / 'files'}")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    return made


@pytest.fixture
def make(storage: Storage, tmp_path: Path):
    """A stored shard of 4 records with a part and its counts."""

    def make(number: int, **position: object) -> StoredShard:
        draft, final = tmp_path / f"draft-{number}", tmp_path / f"final-{number}"
        (draft / "more").mkdir(parents=True)
        (draft / f"part-{number}.jsonl").write_text(f"{number}\n" * 4)
        (draft / "more" / f"{number}.json").write_text("{}")
        manifest = _manifest.Manifest(job_id="j", attempt=1, step=4, data_position=position)
        committed = _manifest.commit(draft, final, manifest)
        key = f"jobs/j/shards/{number}-1"
        storage.put_tree(final, key)
        return StoredShard(number=number, records=4, sha256=_manifest.digest(committed), uri=storage.uri(key))

    return make


def restore(storage, output, *shards, data=(), weights=""):
    return restore_shards(storage, shards, output, output.with_name("scratch"), ShardInputs(data=data, weights=weights))


def part_of(storage, shard):
    found = storage.local_path(storage.key_of(shard.uri))
    assert found is not None
    return found / f"part-{shard.number}.jsonl"


def names(output):
    return sorted(path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind_of_storage", [Storage, Remote])
def test_files_of_all_shards_lie_in_the_output(storage, output, make, kind_of_storage):
    shards = make(0), make(3)
    reached = kind_of_storage(storage.uri("jobs").removesuffix("/jobs"))

    start = restore(reached, output, *shards)

    assert (start.shards, start.step, start.path, start.rejected) == ((0, 3), 8, None, ())
    assert names(output) == ["more/0.json", "more/3.json", "part-0.jsonl", "part-3.jsonl"]
    assert (output / "part-3.jsonl").read_text() == "3\n" * 4
    assert part_of(storage, shards[0]).exists(), "they stay until the job is COMPLETED"
    assert not list(output.with_name("scratch").glob("*"))


@pytest.mark.parametrize("damage", ["other bytes", "other size", "missing", "gone", "other manifest", "link"])
def test_damaged_shard_leaves_nothing_and_is_done_again(storage, output, make, damage):
    good, bad = make(0), make(1)
    part = part_of(storage, bad)
    if damage == "other bytes":
        part.write_text("2\n" * 4)
    elif damage == "other size":
        part.write_text("1")
    elif damage == "missing":
        part.unlink()
    elif damage == "link":
        part.rename(part.with_name("moved"))
        part.symlink_to("moved")
    elif damage == "gone":
        storage.delete_tree(storage.key_of(bad.uri))
    else:
        manifest = part.with_name(_manifest.NAME)
        manifest.write_text(manifest.read_text().replace('"size": 2', '"size": 3'))

    start = restore(storage, output, good, bad)

    assert (start.shards, start.step) == ((0,), 4)
    assert [(each.checkpoint_id, each.step) for each in start.rejected] == [("", 1)]
    assert "shard 1 can't be used and is done again: " in start.rejected[0].message
    assert names(output) == ["more/0.json", "part-0.jsonl"]


def test_attempt_waits_for_a_storage_that_is_away(storage, output, make):
    shard = make(0)

    with pytest.raises(AttemptFailed, match="shard 0") as failed:
        restore(Away(storage.uri("jobs").removesuffix("/jobs")), output, shard)

    assert failed.value.error_type == "STORAGE_ERROR"


def test_attempt_waits_while_none_of_its_shards_is_there(storage, output, make):
    """A volume that is not mounted looks like an empty storage."""
    shards = make(0), make(1)
    for shard in shards:
        storage.delete_tree(storage.key_of(shard.uri))

    with pytest.raises(AttemptFailed, match="no stored shard was found") as failed:
        restore(storage, output, *shards)

    assert failed.value.error_type == "STORAGE_ERROR"


def test_job_whose_model_has_changed_since_a_shard_was_made_fails(storage, output, make):
    shard = make(0, weights_sha256="1" * 64)
    assert restore(storage, output, shard, weights="1" * 64).shards == (0,)
    assert restore(storage, output, shard).shards == (0,)

    with pytest.raises(AttemptFailed, match=r"model have changed since shard 0.*restore the old ones") as failed:
        restore(storage, output, shard, weights="2" * 64)

    assert failed.value.error_type == "MODEL_NOT_FOUND"


@pytest.mark.parametrize(
    "position", [{"sources_sha256": 1}, {"sources_sha256": [None]}, {"weights_sha256": {}}], ids=str
)
def test_shard_whose_manifest_has_no_digests_in_their_place_is_done_again(storage, output, make, position):
    start = restore(storage, output, make(0), make(1, **position), data=data("1" * 64), weights="2" * 64)

    assert (start.shards, [each.step for each in start.rejected]) == ((0,), [1])


def data(*sha256):
    """Sources of one file each."""
    return [
        LocalData(
            location=f"/srv/{i}",
            files=(LocalDataFile(path=Path("f"), name="f", size_bytes=1, sha256=each),),
            path=Path("f"),
            visible=(),
        )
        for i, each in enumerate(sha256)
    ]


def test_job_whose_data_has_changed_since_a_shard_was_made_fails(storage, output, make):
    before = data("1" * 64, "2" * 64)
    shard = make(0, sources_sha256=[each.sha256 for each in before])
    assert restore(storage, output, shard, data=before).shards == (0,)

    with pytest.raises(AttemptFailed, match=r"/srv/1 has changed since shard 0 was made") as failed:
        restore(storage, output, shard, data=data("1" * 64, "3" * 64))

    assert failed.value.error_type == "DATA_INVALID"


def test_digests_that_are_not_known_are_not_compared(storage, output, make):
    shard = make(0, sources_sha256=["", "2" * 64])

    assert restore(storage, output, shard, data=data("1" * 64, "")).shards == (0,)
