"""Which checkpoint an attempt goes on from, and which of the others are of no use for ever."""

from pathlib import Path

import pytest

from app.services.checkpoints import ResumeCandidate
from app.storage.storage import Storage
from trainyard import _manifest
from workers.resuming import choose_start


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path / 'files'}")


@pytest.fixture
def make(storage: Storage, tmp_path: Path):
    """A stored checkpoint of a step."""

    def make(step: int) -> ResumeCandidate:
        draft = tmp_path / f"draft-{step}"
        draft.mkdir()
        (draft / "state").write_text(str(step))
        manifest = _manifest.commit(draft, tmp_path / str(step), _manifest.Manifest(job_id="j", attempt=1, step=step))
        storage.put_tree(tmp_path / str(step), f"jobs/j/checkpoints/{step}")
        return ResumeCandidate(
            checkpoint_id=f"ckpt-{step}", job_id="j", uri=storage.uri(f"jobs/j/checkpoints/{step}"),
            sha256=_manifest.digest(manifest), step=step, world_size=1,
        )  # fmt: skip

    return make


def stored(storage: Storage, candidate: ResumeCandidate) -> Path:
    path = storage.local_path(storage.key_of(candidate.uri))
    assert path is not None
    return path


def test_changed_file_makes_a_checkpoint_corrupt(storage, make, tmp_path):
    good, bad = make(50), make(200)
    (stored(storage, bad) / "state").write_text("201")

    start = choose_start(storage, [bad, good], tmp_path)

    assert start.checkpoint_id == good.checkpoint_id
    assert [(one.checkpoint_id, one.corrupt) for one in start.rejected] == [(bad.checkpoint_id, True)]


def test_missing_one_is_gone_for_good_when_an_older_one_is_there(storage, make, tmp_path):
    good, bad = make(50), make(200)
    storage.delete_tree(storage.key_of(bad.uri))

    start = choose_start(storage, [bad, good], tmp_path)

    assert [one.corrupt for one in start.rejected] == [True]


def test_all_missing_may_be_a_storage_that_is_not_mounted(storage, make, tmp_path):
    candidates = [make(200), make(50)]
    (tmp_path / "files").rename(tmp_path / "elsewhere")

    start = choose_start(storage, candidates, tmp_path)

    assert start.path is None
    assert [one.corrupt for one in start.rejected] == [False, False]


def test_checkpoint_of_another_storage_is_not_corrupt(storage, make, tmp_path):
    good = make(50)
    foreign = ResumeCandidate(
        checkpoint_id="ckpt-x", job_id="j", uri="s3://elsewhere/x", sha256="", step=9, world_size=1
    )

    start = choose_start(storage, [foreign, good], tmp_path)

    assert [one.corrupt for one in start.rejected] == [False]
