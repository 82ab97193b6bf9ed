"""Which checkpoint an attempt resumes from, and which of the others are permanently unusable."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from app.services.attempts.checkpoints import ResumeCandidate
from app.storage.storage import Storage
from trainyard.protocol import checkpoint_manifest as _manifest
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.input_library import LocalData, LocalDataFile
from workers.prepare.inputs.resume_point import StartPoint, choose_start, refuse_changed_data, refuse_changed_reward


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
            checkpoint_id=f"ckpt-{step}",
            job_id="j",
            uri=storage.uri(f"jobs/j/checkpoints/{step}"),
            sha256=_manifest.digest(manifest),
            step=step,
            world_size=1,
        )

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


@pytest.fixture
def start_from(tmp_path: Path):
    """A start point whose checkpoint remembers these digests of the data."""

    def start_from(digests: list[str] | None) -> StartPoint:
        draft, path = tmp_path / "draft", tmp_path / "checkpoint"
        draft.mkdir()
        (draft / "state").touch()
        position = {} if digests is None else {"sources_sha256": digests}
        _manifest.commit(draft, path, _manifest.Manifest(job_id="j", attempt=1, step=50, data_position=position))
        return StartPoint(path=path, step=50, checkpoint_id="ckpt-50", rejected=())

    return start_from


def sources(*contents: str) -> tuple[LocalData, ...]:
    files = [LocalDataFile(path=Path(text), name=text, size_bytes=1, sha256=text) for text in contents]
    return tuple(
        LocalData(location=f"{file.name}.jsonl", files=(file,), path=file.path, visible=(file.path,)) for file in files
    )


def refusal(start: StartPoint, data: tuple[LocalData, ...]) -> str:
    """Why training cannot resume on the data; empty when it can."""
    try:
        refuse_changed_data(start, data)
    except AttemptFailed as error:
        return f"{error.error_type}: {error.message}"
    return ""


def test_data_that_has_changed_since_the_checkpoint_is_named(start_from):
    first, second = sources("a", "b")

    said = refusal(start_from([first.sha256, "another"]), (first, second))

    assert said.startswith("DATA_INVALID: data source b.jsonl")
    assert "step 50" in said
    assert "a.jsonl" not in said


@pytest.mark.parametrize(
    ("before", "now", "refused"), [("a", "b", True), ("a", "a", False), ("a", "", False), ("", "b", False)]
)
def test_policy_resumes_only_with_the_same_reward(tmp_path, before, now, refused):
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "state").touch()
    manifest = _manifest.Manifest(job_id="j", attempt=1, step=50, data_position={"reward_sha256": before})
    _manifest.commit(tmp_path / "draft", tmp_path / "checkpoint", manifest)
    start = StartPoint(path=tmp_path / "checkpoint", step=50, checkpoint_id="ckpt-50", rejected=())

    with pytest.raises(AttemptFailed, match=r"reward has changed .* step 50") if refused else nullcontext():
        refuse_changed_reward(start, now)


def test_unchanged_data_allows_resuming(start_from):
    data = sources("a", "b")

    assert refusal(start_from([source.sha256 for source in data]), data) == ""
    assert refusal(StartPoint(path=None, step=0, checkpoint_id=None, rejected=()), data) == ""


@pytest.mark.parametrize("digests", [None, [], ["", ""]])
def test_checkpoint_that_remembers_no_digests_is_used(start_from, digests):
    assert refusal(start_from(digests), sources("a", "b")) == ""
