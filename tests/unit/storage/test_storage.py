"""The storage: whole or not at all, nothing outside its root, and errors that say whether to try again."""

import errno
import os
import socket
import uuid
from pathlib import Path

import pytest

from app.domain.errors import InvalidRequest, NotFound, TransientStorageError
from app.storage.beneath import RefusedFile
from app.storage.failures import StorageRefused, translated
from app.storage.object_keys import BadKey, artifacts_key, attempts_key, checked_key, checkpoint_key, job_key, logs_key
from app.storage.storage import Storage
from app.storage.trees import tree_files


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    root = tmp_path / "files" if request.param == "file" else uuid.uuid4().hex
    return Storage(f"{request.param}://{root}")


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path / 'files'}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "inner").mkdir(parents=True)
    (root / "weights [0].bin").write_bytes(b"w" * 1000)
    (root / "inner" / "state.pt").write_bytes(b"s")
    (root / "manifest.json").write_bytes(b"{}")
    return root


def test_tree_comes_back_as_it_was(storage: Storage, tree: Path, tmp_path: Path) -> None:
    storage.put_tree(tree, "jobs/a/checkpoints/c1")
    storage.fetch_tree("jobs/a/checkpoints/c1", tmp_path / "back")

    back = {
        str(p.relative_to(tmp_path / "back")): p.read_bytes() for p in (tmp_path / "back").rglob("*") if p.is_file()
    }
    assert back == {"weights [0].bin": b"w" * 1000, "inner/state.pt": b"s", "manifest.json": b"{}"}


def test_files_are_listed_with_sizes_and_full_keys(storage: Storage, tree: Path) -> None:
    storage.put_tree(tree, "jobs/a/artifacts")

    assert [(f.key, f.size_bytes) for f in storage.list("jobs/a")] == [
        ("jobs/a/artifacts/inner/state.pt", 1),
        ("jobs/a/artifacts/manifest.json", 2),
        ("jobs/a/artifacts/weights [0].bin", 1000),
    ]
    assert storage.names("jobs/a/artifacts") == ("inner", "manifest.json", "weights [0].bin")


def test_moving_gives_up_the_source_and_copying_keeps_it(storage: Storage, tree: Path) -> None:
    storage.put_tree(tree, "jobs/a/one", move=False)
    assert (tree / "manifest.json").exists()

    storage.put_tree(tree, "jobs/a/two")
    assert not (tree / "manifest.json").exists()
    assert len(storage.list("jobs/a")) == 6


def test_second_tree_replaces_the_first_completely(storage: Storage, tree: Path, tmp_path: Path) -> None:
    storage.put_tree(tree, "jobs/a/artifacts")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "only").write_bytes(b"1")

    storage.put_tree(tmp_path / "new", "jobs/a/artifacts")

    assert [f.key for f in storage.list("jobs/a")] == ["jobs/a/artifacts/only"]


def test_reading_starts_at_the_offset(storage: Storage) -> None:
    storage.write("jobs/a/report.json", b"0123456789")

    with storage.open("jobs/a/report.json", 4) as stream:
        assert stream.read(3) == b"456"
    assert storage.read("jobs/a/report.json", 8) == b"89"
    assert storage.size("jobs/a/report.json") == 10


def test_what_is_missing_is_not_found_or_empty(storage: Storage, tmp_path: Path) -> None:
    assert not storage.exists("jobs/none")
    assert storage.list("jobs/none") == ()
    assert storage.names("jobs/none") == ()
    storage.delete_tree("jobs/none")
    with pytest.raises(NotFound):
        storage.open("jobs/none")
    with pytest.raises(NotFound):
        storage.size("jobs/none")
    with pytest.raises(NotFound):
        storage.fetch_tree("jobs/none", tmp_path / "x")


def test_a_folder_is_no_file(local: Storage, tree: Path) -> None:
    local.put_tree(tree, "jobs/a/artifacts")

    with pytest.raises(NotFound):
        local.open("jobs/a/artifacts")
    with pytest.raises(NotFound):
        local.size("jobs/a/artifacts/inner")


def test_deleted_tree_is_gone(storage: Storage, tree: Path) -> None:
    storage.put_tree(tree, "jobs/a/checkpoints/c1")

    storage.delete_tree("jobs/a/checkpoints/c1")

    assert not storage.exists("jobs/a/checkpoints/c1")
    assert storage.list("jobs/a") == ()


def test_growing_again_after_a_torn_write_repairs_it(storage: Storage) -> None:
    storage.grow("jobs/a/log", offset=0, tail=b"one\ntw", whole=b"one\ntw")

    storage.grow("jobs/a/log", offset=4, tail=b"two\n", whole=b"one\ntwo\n")

    assert storage.read("jobs/a/log") == b"one\ntwo\n"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "a/../b",
        "..",
        ".",
        "a//b",
        "a/",
        "a/./b",
        "a\0b",
        "a\nb",
        "\ud800",
        "a/.trainyard-tmp-1-x",
        "x" * 256,
        "/".join(["a"] * 600),
    ],
)
def test_key_that_leaves_the_root_or_means_two_things_is_refused(storage: Storage, key: str) -> None:
    with pytest.raises(BadKey):
        checked_key(key)
    with pytest.raises(InvalidRequest):
        storage.open(key)
    with pytest.raises(BadKey):
        storage.delete_tree(key)


def test_keys_of_the_kinds_of_things() -> None:
    assert job_key("job-1") == "jobs/job-1"
    assert checkpoint_key("job-1", "ckpt-2") == "jobs/job-1/checkpoints/ckpt-2"
    assert artifacts_key("job-1") == "jobs/job-1/artifacts"
    assert artifacts_key("job-1", "model/a b.txt") == "jobs/job-1/artifacts/model/a b.txt"
    assert attempts_key("job-1") == "jobs/job-1/attempts"
    assert logs_key("job-1", 2) == "jobs/job-1/attempts/2/logs"
    with pytest.raises(BadKey):
        artifacts_key("job-1", "../../job-2/artifacts/secret")


def test_uri_and_key_are_each_others_inverse(local: Storage) -> None:
    uri = local.uri("jobs/a/checkpoints/c1")

    assert uri.startswith("file:///")
    assert local.key_of(uri) == "jobs/a/checkpoints/c1"
    with pytest.raises(BadKey):
        local.key_of("s3://bucket/jobs/a")
    with pytest.raises(BadKey):
        local.key_of(uri + "/../../../../etc")


def test_uri_holds_no_credentials_although_the_storages_own_url_does() -> None:
    storage = Storage("memory://me:hunter2@host/files")

    uri = storage.uri("jobs/a/artifacts")

    assert uri == "memory://host/files/jobs/a/artifacts"
    assert storage.key_of(uri) == "jobs/a/artifacts"
    assert storage.key_of("memory://me:hunter2@host/files/jobs/a") == "jobs/a"
    with pytest.raises(BadKey, match="the configured storage memory://host/files") as refused:
        storage.key_of("memory://other/files/jobs/a")
    assert "hunter2" not in str(refused.value)


def test_url_without_a_scheme_is_refused() -> None:
    with pytest.raises(BadKey, match="file:///"):
        Storage("/srv/files")


def test_only_files_have_a_local_path(tmp_path: Path) -> None:
    assert Storage(f"file://{tmp_path}").local_path("jobs/a") == tmp_path / "jobs/a"
    assert Storage("memory://x").local_path("jobs/a") is None


def test_link_inside_becomes_a_file_and_link_to_a_folder_is_left_out(local: Storage, tree: Path) -> None:
    (tree / "latest").symlink_to("inner")
    (tree / "copy.pt").symlink_to("inner/state.pt")

    local.put_tree(tree, "jobs/a/artifacts")

    path = local.local_path("jobs/a/artifacts/copy.pt")
    assert path is not None
    assert path.read_bytes() == b"s"
    assert not path.is_symlink()
    assert local.names("jobs/a/artifacts") == ("copy.pt", "inner", "manifest.json", "weights [0].bin")


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "/nowhere", "/etc", "self"])
@pytest.mark.parametrize("move", [True, False])
def test_link_that_leads_out_or_nowhere_is_refused(
    storage: Storage,
    tree: Path,
    target: str,
    move: bool,  # noqa: FBT001
) -> None:
    (tree.parent / "secret").write_text("x")
    (tree / "self").symlink_to(target)

    with pytest.raises(RefusedFile):
        storage.put_tree(tree, "jobs/a/artifacts", move=move)

    assert storage.list("jobs/a") == ()


def test_pipes_and_sockets_are_refused(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(RefusedFile, match="pipe"):
        tree_files(tree)
    (tree / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "s"))
        with pytest.raises(RefusedFile):
            tree_files(tree)


def test_link_placed_in_the_storage_by_hand_is_not_followed_out_of_it(local: Storage, tmp_path: Path) -> None:
    local.write("jobs/a/x", b"1")
    path = local.local_path("jobs")
    assert path is not None
    (path / "evil").symlink_to("/etc")

    with pytest.raises(BadKey):
        local.open("jobs/evil/passwd")


def test_reader_never_sees_half_a_tree(local: Storage, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing fails before the rename: nothing may be visible, and the next try succeeds and clears the remains."""
    real_fsync = os.fsync
    monkeypatch.setattr(os, "fsync", _failing_fsync)
    with pytest.raises(TransientStorageError):
        local.put_tree(tree, "jobs/a/artifacts", move=False)
    monkeypatch.setattr(os, "fsync", real_fsync)

    assert local.list("jobs") == ()
    assert not local.exists("jobs/a/artifacts")

    local.put_tree(tree, "jobs/a/artifacts")
    path = local.local_path("jobs/a")
    assert path is not None
    assert [entry.name for entry in path.iterdir()] == ["artifacts"]


def test_half_deleted_tree_is_invisible_and_deleting_again_ends_it(local: Storage, tree: Path) -> None:
    local.put_tree(tree, "jobs/a/artifacts")
    folder = local.local_path("jobs/a")
    assert folder is not None
    (folder / "artifacts").rename(folder / ".trainyard-tmp-00000000-artifacts")

    assert local.list("jobs/a") == ()
    assert local.names("jobs/a") == ()
    local.delete_tree("jobs/a/artifacts")
    assert list(folder.iterdir()) == []


def test_tree_from_another_file_system_is_copied(local: Storage, tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs /dev/shm on another file system than the temporary directory, as Linux usually has it")
    source = shm / f"trainyard-test-{uuid.uuid4().hex}"
    source.mkdir()
    (source / "a").write_bytes(b"1")

    local.put_tree(source, "jobs/a/artifacts")

    assert not source.exists()
    assert local.read("jobs/a/artifacts/a") == b"1"


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, TransientStorageError),
        (errno.EIO, TransientStorageError),
        (errno.ETIMEDOUT, TransientStorageError),
        (errno.EACCES, StorageRefused),
        (errno.EROFS, StorageRefused),
        (errno.ENOENT, NotFound),
        (errno.EISDIR, NotFound),
    ],
)
def test_error_says_whether_to_try_again(number: int, expected: type[Exception]) -> None:
    with pytest.raises(expected), translated("jobs/a"):
        raise OSError(number, os.strerror(number))


def test_timeout_of_a_remote_storage_may_be_tried_again() -> None:
    with pytest.raises(TransientStorageError), translated("jobs/a"):
        raise TimeoutError


def _failing_fsync(_descriptor: int) -> None:
    raise OSError(errno.EIO, "no")


def test_created_file_is_complete_when_its_block_has_ended(storage: Storage) -> None:
    with storage.create("user-files/p/a") as writer:
        writer.write(b"first ")
        writer.write(b"second")

    assert storage.read("user-files/p/a") == b"first second"
    assert storage.names("user-files/p") == ("a",)


def test_created_file_is_not_there_before_its_block_has_ended(local: Storage) -> None:
    with local.create("user-files/p/a") as writer:
        writer.write(b"first ")

        assert not local.exists("user-files/p/a")
        assert local.names("user-files/p") == ()


def test_block_that_raises_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    def cut_off() -> None:
        with storage.create("user-files/p/a") as writer:
            writer.write(b"first ")
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        cut_off()

    assert storage.list("user-files") == ()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_file_that_can_not_be_made_durable_is_not_there(local: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    writer = local.begin("user-files/p/a")
    writer.write(b"text")
    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(TransientStorageError):
        writer.commit()

    assert local.names("user-files/p") == ()
    assert local.sweep("user-files/p", older_than_seconds=-1) == 0
