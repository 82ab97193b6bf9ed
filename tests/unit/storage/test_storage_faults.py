"""Storing a tree when something goes wrong on the way: the only copy survives, and nothing foreign is taken for it."""

import errno
import hashlib
import os
import shutil
import uuid
from pathlib import Path

import pytest

from app.domain.errors import NotFound, TransientStorageError
from app.storage.beneath import FileDigest, RefusedFile
from app.storage.storage import Storage
from app.storage.trees import replace_links, tree_files

KEY = "jobs/a/checkpoints/c1"


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path / 'files'}")


@pytest.fixture
def memory() -> Storage:
    return Storage(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "state.pt").write_bytes(b"s")
    (root / "manifest.json").write_bytes(b"{}")
    return root


def content_of(data: bytes) -> FileDigest:
    return FileDigest(len(data), hashlib.sha256(data).hexdigest())


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_refused_tree_leaves_no_part_of_it_in_an_object_store(memory: Storage, tree: Path) -> None:
    known = {"inner/state.pt": content_of(b"s"), "manifest.json": content_of(b"[]")}

    with pytest.raises(RefusedFile, match=r"manifest\.json"):
        memory.put_tree(tree, KEY, known=known)

    assert memory.list("jobs") == ()
    assert names(tree) == {"inner/state.pt", "manifest.json"}


@pytest.mark.parametrize("failing_call", range(9))
def test_move_that_fails_gives_the_source_back_and_can_be_repeated(
    local: Storage, tree: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    """Whichever flush fails: the parents', the source's, or the one after the last rename."""
    calls, real = iter(range(100)), os.fsync
    wrong = OSError(errno.EIO, "no")

    def fsync(descriptor: int) -> None:
        if next(calls) == failing_call:
            raise wrong
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    with pytest.raises(TransientStorageError):
        local.put_tree(tree, KEY)
    assert names(tree) == {"inner/state.pt", "manifest.json"}
    assert not local.exists(KEY)

    local.put_tree(tree, KEY)
    assert [file.key for file in local.list(KEY)] == [f"{KEY}/inner/state.pt", f"{KEY}/manifest.json"]


def test_everything_is_flushed_before_it_is_moved(local: Storage, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there_when_flushed: list[bool] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        there_when_flushed.append((tree / "inner" / "state.pt").exists())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    local.put_tree(tree, KEY)

    assert there_when_flushed[-1:] == [False]  # the rename itself
    assert set(there_when_flushed[:-1]) == {True}


def test_second_try_without_a_source_deletes_nothing(local: Storage, tree: Path) -> None:
    """The first one may have been killed between its two renames: then the leftover is the only copy."""
    path = local.local_path(KEY)
    assert path is not None
    path.parent.mkdir(parents=True)
    leftover = tree.rename(path.with_name(".trainyard-tmp-00000000-c1"))

    with pytest.raises(NotFound):
        local.put_tree(tree, KEY)

    assert names(leftover) == {"inner/state.pt", "manifest.json"}


def test_old_tree_that_cannot_be_deleted_does_not_fail_the_new_one(
    local: Storage, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tree, tmp_path / "old")
    local.put_tree(tmp_path / "old", KEY)

    def rmtree(path: Path, **_options: object) -> None:
        raise OSError(errno.EIO, "no", str(path))

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    local.put_tree(tree, KEY)

    assert len(local.list(KEY)) == 2


def test_source_that_cannot_be_deleted_does_not_fail_an_upload(
    memory: Storage, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rmdir(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EBUSY, "no")

    monkeypatch.setattr(os, "rmdir", rmdir)
    memory.put_tree(tree, KEY)

    assert len(memory.list(KEY)) == 2


@pytest.mark.parametrize("where", ["local", "memory"])
@pytest.mark.parametrize("move", [True, False])
def test_link_in_place_of_the_directory_is_refused(
    request: pytest.FixtureRequest,
    tree: Path,
    tmp_path: Path,
    where: str,
    move: bool,  # noqa: FBT001
) -> None:
    (tree / "latest").symlink_to("manifest.json")
    link = tmp_path / "output"
    link.symlink_to(tree)

    with pytest.raises(RefusedFile):
        request.getfixturevalue(where).put_tree(link, KEY, move=move)
    with pytest.raises(RefusedFile):
        replace_links(link)
    with pytest.raises(RefusedFile):
        tree_files(link)

    assert (tree / "latest").is_symlink()
    assert request.getfixturevalue(where).list("jobs") == ()


def test_sweep_deletes_what_dead_writers_left_when_it_is_old(local: Storage, tree: Path) -> None:
    local.put_tree(tree, KEY)
    folder = local.local_path("jobs/a/checkpoints")
    assert folder is not None
    (folder / ".trainyard-tmp-00000000-c2").mkdir()
    (folder / ".trainyard-tmp-00000000-c2" / "big").write_bytes(b"1")

    assert local.sweep("jobs/a/checkpoints", older_than_seconds=60) == 0
    assert local.sweep("jobs/a/checkpoints", older_than_seconds=-1) == 1

    assert [entry.name for entry in folder.iterdir()] == ["c1"]
    assert local.sweep("jobs/none", older_than_seconds=-1) == 0
