"""Copying what a rank wrote: only regular files, by descriptors, whole and as they were known to be."""

import hashlib
import os
import socket
import uuid
from pathlib import Path

import pytest

from app.storage.beneath import FileDigest, RefusedFile, copied, directory_opened, file_opened
from app.storage.storage import Storage
from app.storage.trees import copy_tree
from workers.attempt_failed import AttemptFailed
from workers.supervisor.recording.model_export import OutputLimits, find_output

SECRET = b"not this job's"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_bytes(SECRET)
    root = tmp_path / "tree"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "file").write_bytes(b"ours")
    return root


def content(data: bytes) -> FileDigest:
    return FileDigest(len(data), hashlib.sha256(data).hexdigest())


def read(root: Path, path: str) -> bytes:
    with directory_opened(root) as descriptor, file_opened(descriptor, path) as file:
        return file.read()


def put_link(path: Path, tree: Path) -> None:
    path.symlink_to(tree.parent / "secret" / "file")


def put_link_inside(path: Path, tree: Path) -> None:
    path.symlink_to(tree / "other")


def put_pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def put_directory(path: Path, _: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("put", [put_link, put_link_inside, put_pipe, put_socket, put_directory])
def test_only_a_regular_file_is_opened(tree: Path, put) -> None:
    (tree / "other").write_bytes(b"x")
    (tree / "inner" / "file").unlink()
    put(tree / "inner" / "file", tree)

    with pytest.raises(RefusedFile, match="inner/file is not a regular file"):
        read(tree, "inner/file")


def test_directory_swapped_for_a_link_is_not_followed(tree: Path) -> None:
    (tree / "inner").rename(tree / "moved")
    (tree / "inner").symlink_to(tree.parent / "secret")

    with pytest.raises(RefusedFile, match="lies behind a link"):
        read(tree, "inner/file")


def test_directory_swapped_after_it_was_opened_changes_nothing(tree: Path) -> None:
    with directory_opened(tree) as root:
        tree.rename(tree.parent / "moved")
        tree.symlink_to(tree.parent / "secret")
        with file_opened(root, "inner/file") as file:
            assert file.read() == b"ours"


@pytest.mark.parametrize("size", [0, 3, 5_000_000])
def test_file_whose_size_changes_while_it_is_copied_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * 4_000_000)
    read_so_far = 0

    def change(block: bytes) -> None:
        nonlocal read_so_far
        read_so_far += len(block)
        os.truncate(tmp_path / "file", size)

    with (
        directory_opened(tmp_path) as root,
        file_opened(root, "file") as file,
        pytest.raises(RefusedFile, match="was changed"),
    ):
        copied(file, "file", change)
    assert read_so_far <= 4_000_000, "a file that grows for ever must not be read for ever"


def test_copy_holds_every_byte_and_says_what_it_holds(tree: Path, tmp_path: Path) -> None:
    data = os.urandom(3_000_001)
    (tree / "inner" / "file").write_bytes(data)

    copy_tree(tree, tmp_path / "copy", {"inner/file": content(data)})

    assert (tmp_path / "copy" / "inner" / "file").read_bytes() == data


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize(
    "known",
    [
        {"inner/file": content(b"OURS")},
        {"inner/file": content(b"our")},
        {},
        {"inner/file": content(b"ours"), "b": content(b"")},
    ],
    ids=["other bytes", "another size", "unknown file", "missing file"],
)
def test_tree_that_is_not_what_is_known_of_it_is_not_stored(tree: Path, tmp_path: Path, kind: str, known) -> None:
    storage = Storage(f"{kind}://{tmp_path / 'files' if kind == 'file' else uuid.uuid4().hex}")

    with pytest.raises(RefusedFile, match="was changed"):
        storage.put_tree(tree, "jobs/a/checkpoints/c", move=False, known=known)

    assert storage.list("jobs/a/checkpoints") == ()


def test_output_with_too_many_files_is_refused_before_any_is_read(tree: Path) -> None:
    for number in range(10):
        (tree / str(number)).touch(mode=0)  # not even we may need to read it

    with pytest.raises(AttemptFailed, match="more than 10 files, the most that TRAINYARD_STORAGE_MAX_OUTPUT_FILES"):
        find_output(tree, OutputLimits(files=10, size_mb=1, size_rule="x"), custom=True)

    assert len(find_output(tree, OutputLimits(files=11, size_mb=1, size_rule="x"), custom=True).files) == 11


def test_sparse_files_count_with_their_full_size(tree: Path) -> None:
    with (tree / "sparse").open("wb") as file:
        file.truncate(4 << 40)
    limits = OutputLimits(files=10, size_mb=1000, size_rule="output_config.max_output_size_mb")

    with pytest.raises(AttemptFailed, match=r"larger than the 1000 MB that output_config\.max_output_size_mb allows"):
        find_output(tree, limits, custom=True)


def test_size_is_allowed_to_the_last_byte(tree: Path) -> None:
    limits = OutputLimits(files=10, size_mb=1, size_rule="x")
    (tree / "inner" / "file").write_bytes(b"x" * (1 << 20))
    assert find_output(tree, limits, custom=True).files == {"inner/file": "inner/file"}

    (tree / "one more byte").write_bytes(b"x")
    with pytest.raises(AttemptFailed, match="larger than the 1 MB"):
        find_output(tree, limits, custom=True)
