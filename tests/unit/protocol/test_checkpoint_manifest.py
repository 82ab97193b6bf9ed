"""A checkpoint directory exists complete or not at all, and what is wrong with it is found."""

import json
import os
from pathlib import Path

import pytest

from trainyard.protocol import checkpoint_manifest as _manifest
from trainyard.protocol.checkpoint_manifest import CorruptCheckpoint, Manifest


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """An unfinished checkpoint of two files, one in a folder."""
    directory = tmp_path / "work" / "draft"
    (directory / "shards").mkdir(parents=True)
    (directory / "model.bin").write_bytes(b"weights")
    (directory / "shards" / "0.bin").write_bytes(b"")
    return directory


@pytest.fixture
def committed(draft: Path, tmp_path: Path) -> Path:
    _manifest.commit(draft, tmp_path / "step-3", make_manifest())
    return tmp_path / "step-3"


def make_manifest(**changes) -> Manifest:
    values = {"job_id": "job-1", "attempt": 2, "step": 3, "metrics": {"loss": 1.5}, **changes}
    return Manifest(**values)


def rewrite(directory: Path, **changes) -> None:
    path = directory / _manifest.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_commit_moves_the_files_and_lists_them(draft, tmp_path):
    manifest = _manifest.commit(draft, tmp_path / "final", make_manifest())

    assert not draft.exists()
    assert [(entry.path, entry.size) for entry in manifest.files] == [("model.bin", 7), ("shards/0.bin", 0)]
    assert manifest.size_bytes == 7
    assert manifest.created_at.endswith("Z")


def test_verified_manifest_is_the_committed_one(draft, tmp_path):
    manifest = _manifest.commit(draft, tmp_path / "final", make_manifest(data_position={"tokens": 9}))

    assert _manifest.verify(tmp_path / "final") == manifest


def test_metrics_that_are_no_numbers_stay_valid_json(draft, tmp_path):
    _manifest.commit(draft, tmp_path / "final", make_manifest(metrics={"loss": float("nan")}))

    assert _manifest.verify(tmp_path / "final").metrics == {"loss": "NaN"}


def test_empty_directory_is_refused(tmp_path):
    (tmp_path / "draft").mkdir()

    with pytest.raises(ValueError, match="empty"):
        _manifest.commit(tmp_path / "draft", tmp_path / "final", make_manifest())

    assert not (tmp_path / "final").exists()


@pytest.mark.parametrize("name", ["file-link", "folder-link"])
def test_links_are_refused(draft, tmp_path, name):
    (draft / name).symlink_to("model.bin" if name == "file-link" else "shards")

    with pytest.raises(ValueError, match=name):
        _manifest.commit(draft, tmp_path / "final", make_manifest())

    assert not (tmp_path / "final").exists()


def test_existing_checkpoint_is_never_replaced(draft, committed):
    (draft / "shards").mkdir(parents=True)

    with pytest.raises(FileExistsError):
        _manifest.commit(draft, committed, make_manifest())


def test_leftover_manifest_of_an_earlier_try_is_replaced(draft, tmp_path):
    (draft / _manifest.NAME).write_text("{")

    _manifest.commit(draft, tmp_path / "final", make_manifest())

    assert len(_manifest.verify(tmp_path / "final").files) == 2


@pytest.mark.parametrize(
    ("content", "what"), [(b"weightS", "SHA-256"), (b"weight", "6 bytes, not 7"), (None, "missing")]
)
def test_changed_file_is_found(committed, content, what):
    path = committed / "model.bin"
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(CorruptCheckpoint, match=what) as caught:
        _manifest.verify(committed)

    assert caught.value.file == "model.bin"


def test_additional_file_is_found(committed):
    (committed / "shards" / "1.bin").write_bytes(b"late")

    with pytest.raises(CorruptCheckpoint, match="not listed"):
        _manifest.verify(committed)


def test_additional_link_is_found(committed):
    (committed / "link").symlink_to("/etc/passwd")

    with pytest.raises(CorruptCheckpoint, match="regular file"):
        _manifest.verify(committed)


def test_directory_without_manifest_was_never_completed(tmp_path):
    with pytest.raises(CorruptCheckpoint, match="never completed"):
        _manifest.verify(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"format": 1, "files": [{}], "job_id": "j"}'])
def test_unreadable_manifest_is_corrupt(committed, text):
    (committed / _manifest.NAME).write_text(text)

    with pytest.raises(CorruptCheckpoint, match="manifest"):
        _manifest.verify(committed)


def test_manifest_of_another_format_is_corrupt(committed):
    rewrite(committed, format=2)

    with pytest.raises(CorruptCheckpoint, match="format 2"):
        _manifest.verify(committed)


def test_unknown_fields_of_a_newer_version_are_ignored(committed):
    rewrite(committed, colour="green")

    assert _manifest.verify(committed).step == 3


@pytest.mark.parametrize("path", ["/etc/passwd", "../model.bin", "shards/../../x", "a//b"])
def test_path_that_leaves_the_checkpoint_is_corrupt(committed, path):
    rewrite(committed, files=[{"path": path, "size": 1, "sha256": "00"}])

    with pytest.raises(CorruptCheckpoint, match="leaves"):
        _manifest.verify(committed)


def test_digest_depends_on_content_only(committed):
    manifest = _manifest.verify(committed)
    reordered = make_manifest(step=99, files=tuple(reversed(manifest.files)))
    other = make_manifest(files=manifest.files[:1])

    assert _manifest.digest(manifest) == _manifest.digest(reordered)
    assert _manifest.digest(manifest) != _manifest.digest(other)


def test_discard_of_nothing_is_fine(tmp_path):
    _manifest.discard(tmp_path / "nothing")

    assert not (tmp_path / "nothing").exists()


@pytest.mark.timeout(10)
@pytest.mark.parametrize("swap", [os.mkfifo, lambda path: path.symlink_to("/etc/hostname")])
def test_file_swapped_for_a_pipe_or_link_is_corrupt_and_does_not_hang(committed, swap):
    manifest = _manifest.read(committed)
    (committed / "model.bin").unlink()
    swap(committed / "model.bin")

    with pytest.raises(CorruptCheckpoint, match="not a regular file"):
        _manifest._check(committed, manifest.files[0])
    with pytest.raises(CorruptCheckpoint):
        _manifest.verify(committed)
