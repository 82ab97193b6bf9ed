"""A rank that changes a checkpoint while it is taken over gets no file of others into the storage."""

import ctypes
import os
import shutil
import struct
import threading
import uuid
from pathlib import Path

import pytest

from app.database.engine import Database, make_engine
from app.services.attempts import work_orders
from app.storage.beneath import DIRECTORY
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_job, make_node
from tests.integration.services.attempts.test_checkpoint_store import Taker
from trainyard.protocol import checkpoint_manifest

LIBC = ctypes.CDLL(None, use_errno=True)
IN_CLOSE_NOWRITE, IN_OPEN, IN_MOVED_FROM, IN_NONBLOCK = 0x10, 0x20, 0x40, os.O_NONBLOCK
CANARY = b"the platform's own secret"
LARGE_BYTES = 48 << 20


class Swapper(threading.Thread):
    """Replaces a file by a link to the secret once ``a.bin`` was opened ``opens`` times.

    0: alternates between link and file until it is ended. It holds the directory open, wherever that is moved.
    """

    def __init__(self, directory: Path, secret: Path, opens: int) -> None:
        super().__init__(daemon=True)
        self._secret, self._opens = secret, opens
        self._directory = os.open(directory, DIRECTORY)
        self._over = threading.Event()
        self._events = LIBC.inotify_init1(IN_NONBLOCK)
        assert LIBC.inotify_add_watch(self._events, os.fsencode(directory), IN_OPEN | IN_MOVED_FROM) > 0

    def run(self) -> None:
        left = self._opens
        while not self._over.is_set():
            if self._opens:
                left -= self._opens_seen()
            if left <= 0:
                self._swap()
                if self._opens:
                    return

    def end(self) -> None:
        self._over.set()
        self.join()
        os.close(self._events)
        os.close(self._directory)

    def _opens_seen(self) -> int:
        try:
            data = os.read(self._events, 1 << 16)
        except BlockingIOError:
            return 0
        seen = 0
        while data:
            _, mask, _, length = struct.unpack_from("iIII", data)
            name, data = data[16 : 16 + length].rstrip(b"\0"), data[16 + length :]
            # Moving it says as much as opening it: the supervisor is about to come to the other one.
            seen += name == b"a.bin" and mask & (IN_OPEN | IN_MOVED_FROM) != 0
        return seen

    def _swap(self) -> None:
        here = self._directory
        try:
            os.symlink(self._secret, "link", dir_fd=here)
            if not self._opens:
                os.link("z.txt", "kept", src_dir_fd=here, dst_dir_fd=here, follow_symlinks=False)
            os.rename("link", "z.txt", src_dir_fd=here, dst_dir_fd=here)
            if not self._opens:
                os.rename("kept", "z.txt", src_dir_fd=here, dst_dir_fd=here)
        except OSError:  # the directory was emptied meanwhile
            self._over.set()


@pytest.fixture
def elsewhere(tmp_path):
    """A directory on another file system than the run directory, which ``tmp_path`` has."""
    shm = Path("/dev/shm", f"trainyard-test-{uuid.uuid4().hex}")
    shm.mkdir()
    assert shm.stat().st_dev != tmp_path.stat().st_dev, "run the tests with TMPDIR on a disk"
    yield shm
    shutil.rmtree(shm)


@pytest.fixture
def taker(sqlite_url, tmp_path, elsewhere, request):
    db = Database().bind(make_engine(sqlite_url))
    with db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job_id = job.id
    place = {"file": elsewhere, "same": tmp_path}
    kind = request.param

    def storage(_: str) -> Storage:
        return Storage(f"file://{place[kind]}/files" if kind in place else f"memory://{uuid.uuid4().hex}")

    taker = Taker(db, work_orders.load_work(db, job_id, 1), tmp_path, storage)
    yield taker
    taker.close()
    db.close()


def offered(taker: Taker, large_bytes: int = LARGE_BYTES) -> Path:
    draft = taker.run.path / "work" / "draft"
    draft.mkdir()
    with (draft / "a.bin").open("wb") as file:
        file.truncate(large_bytes)
    (draft / "z.txt").write_bytes(b"what the rank trained")
    final = taker.run.checkpoints / "5"
    checkpoint_manifest.commit(draft, final, checkpoint_manifest.Manifest(job_id=taker.work.job_id, attempt=1, step=5))
    return final


@pytest.mark.parametrize("opens", [2, 0])
@pytest.mark.parametrize("taker", ["file", "same", "memory"], indirect=True)
def test_link_swapped_in_while_a_checkpoint_is_taken_over_is_not_followed(taker, tmp_path, opens):
    secret = tmp_path / "admin.key"
    secret.write_bytes(CANARY)
    directory = offered(taker)
    swapper = Swapper(directory, secret, opens)
    swapper.start()

    answer = taker.take(5, directory)

    swapper.end()
    files = [file.key for file in taker.storage.list("jobs")]
    assert not [key for key in files if CANARY in taker.storage.read(key)]
    assert not [key for key in files if (path := taker.storage.local_path(key)) and path.is_symlink()]
    assert answer.type == ("checkpoint_saved" if files else "checkpoint_failed")


@pytest.mark.parametrize("taker", ["file", "same", "memory"], indirect=True)
def test_rank_that_keeps_its_directory_open_can_put_nothing_into_the_storage(taker, tmp_path):
    directory = offered(taker)
    kept = os.open(directory, DIRECTORY)

    assert taker.take(5, directory).type == "checkpoint_saved"

    with pytest.raises(FileNotFoundError):  # it was emptied and removed
        os.symlink("/etc/passwd", "z.txt", dir_fd=kept)
    os.close(kept)
    assert len(taker.storage.list("jobs")) == 3


class Writer(threading.Thread):
    """Writes into a file that it has kept open once another one was opened for the second time, wherever that lies."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self._kept = (directory / "z.txt").open("r+b", buffering=0)
        self._events = LIBC.inotify_init1(0)
        # Closing, too: of two events in a row that are the same, the kernel tells one.
        mask = IN_OPEN | IN_CLOSE_NOWRITE
        assert LIBC.inotify_add_watch(self._events, os.fsencode(directory / "a.bin"), mask) > 0

    def run(self) -> None:
        opens = 0
        while opens < 2:
            data = os.read(self._events, 1 << 16)
            opens += sum(bool(mask & IN_OPEN) for _, mask, _, _ in struct.iter_unpack("iIII", data))
        with self._kept:
            self._kept.write(b"else")
        os.close(self._events)


@pytest.mark.parametrize("taker", ["file", "memory"], indirect=True)
def test_file_that_is_changed_after_it_was_verified_makes_no_checkpoint(taker):
    directory = offered(taker, 3 * LARGE_BYTES)
    writer = Writer(directory)
    writer.start()

    answer = taker.take(5, directory)

    writer.join(5)
    assert (answer.type, taker.storage.list("jobs")) == ("checkpoint_failed", ())
    assert "z.txt was changed while it was being stored" in answer.message
