"""The node's cache: objects in use stay, the least recently used goes first, and no partial one is returned."""

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time

import pytest

from workers.fetching import cache as cache_module
from workers.fetching.cache import Cache, CacheEntry
from workers.fetching.directory_locks import DirectoryLock, locked, sweep
from workers.fetching.failures import FetchTooLarge, NoRoom, Trouble


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def store(root):
    return Cache(root, 1000)


@pytest.fixture
def used(root):
    """The directory of a process that uses the cache."""
    with DirectoryLock(root / "uses", "use") as directory:
        yield directory.path


def add(cache, target, content):
    with cache.scratch(len(content)) as directory:
        part = directory / "data"
        part.write_bytes(content)
        return cache.adopt(part, target)


def names(root):
    return {path.name for path in (root / "objects").glob("??/*")}


def age(root, sha256, seconds):
    then = time.time() - seconds
    os.utime(root / "records" / sha256, (then, then))


def test_content_is_kept_by_its_digest_and_handed_out_by_link(store, root, used):
    sha256 = add(store, used / "a", b"content")

    assert sha256 == hashlib.sha256(b"content").hexdigest()
    assert store.link(sha256, used / "deep/b") == 7
    assert (used / "a").samefile(used / "deep/b")
    assert names(root) == {sha256}
    assert list((root / "parts").iterdir()) == []


def test_unknown_content_is_not_handed_out(store, used):
    assert store.link("0" * 64, used / "a") is None


def test_what_is_known_of_a_uri_can_be_read_again(store, root):
    entry = CacheEntry(location="s3://b/k", version="1", sha256="0" * 64, size=3)
    store.remember("key", entry)

    assert store.entry("key") == entry
    assert store.entry("other") is None
    next((root / "index").iterdir()).write_text("{")
    assert store.entry("key") is None


def test_longest_unused_goes_first(store, root, tmp_path):
    digests = [add(store, tmp_path / str(n), bytes([n]) * 300) for n in range(3)]
    for n, digest in enumerate(digests):
        (tmp_path / str(n)).unlink()
        age(root, digest, 100 - n)
    store.link(digests[0], tmp_path / "again")  # now it is the youngest
    (tmp_path / "again").unlink()

    store.make_room(300)

    assert names(root) == {digests[0], digests[2]}


def test_what_is_in_use_is_never_evicted(store, root, used):
    kept = add(store, used / "a", b"a" * 600)
    age(root, kept, 1000)

    with pytest.raises(NoRoom, match="in use"):
        store.make_room(600)

    assert names(root) == {kept}


def test_users_that_died_use_nothing(store, root):
    program = (
        "import sys, os, pathlib; from workers.fetching.directory_locks import DirectoryLock\n"
        "from workers.fetching.cache import Cache\n"
        "root = pathlib.Path(sys.argv[1]); cache = Cache(root, 1000); use = DirectoryLock(root / 'uses', 'use')\n"
        "with cache.scratch(600) as d: (d / 'x').write_bytes(b'a' * 600); cache.adopt(d / 'x', use.path / 'x')\n"
        "DirectoryLock(root / 'parts', '300')  # a download in its middle\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(root)], check=False)
    assert len(names(root)) == 1
    assert len(list((root / "uses").glob("*/x"))) == 1

    store.make_room(900)

    assert names(root) == set()
    assert [list((root / each).iterdir()) for each in ("uses", "parts")] == [[], []]


def test_larger_than_the_cache_is_refused(store):
    with pytest.raises(FetchTooLarge, match="TRAINYARD_CACHE_MAX_BYTES"):
        store.make_room(1001)


def test_announced_downloads_count(store):
    with store.scratch(600), pytest.raises(NoRoom, match="TRAINYARD_CACHE_MAX_BYTES"):
        store.make_room(600)


def test_disk_without_room_is_waited_for(root):
    with pytest.raises(NoRoom, match="free disk space"):
        Cache(root, 1 << 62).make_room(1 << 61)


def test_file_changed_on_the_disk_is_not_handed_out(store, root, used):
    sha256 = add(store, used / "a", b"content")
    stored = root / "objects" / sha256[:2] / sha256
    stored.chmod(0o644)
    stored.write_bytes(b"CONTENT")

    assert store.link(sha256, used / "b") is None
    assert names(root) == set()
    assert not (used / "b").exists()


def test_periodic_read_finds_silent_corruption(store, root, used, monkeypatch):
    sha256 = add(store, used / "a", b"content")
    stored = root / "objects" / sha256[:2] / sha256
    before = stored.stat()
    stored.chmod(0o644)
    stored.write_bytes(b"CONTENT")
    os.utime(stored, ns=(before.st_atime_ns, before.st_mtime_ns))
    monkeypatch.setattr(cache_module, "RECHECK_SECONDS", -1.0)

    assert store.link(sha256, used / "b") is None


def test_lost_record_costs_a_reading_and_nothing_else(store, root, used):
    sha256 = add(store, used / "a", b"content")
    (root / "records" / sha256).unlink()

    assert store.link(sha256, used / "b") == 7
    assert (root / "records" / sha256).exists()


def test_other_bytes_than_expected_are_not_taken_over(store, root, used):
    with store.scratch(3) as directory:
        (directory / "data").write_bytes(b"abc")
        with pytest.raises(Trouble, match="the content differs"):
            store.adopt(directory / "data", used / "a", expected="0" * 64)

    assert names(root) == set()


def test_file_system_without_hard_links_copies(store, root, used, monkeypatch):
    def refuse(source, target):
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)

    sha256 = add(store, used / "a", b"content")

    assert store.link(sha256, used / "b") == 7
    assert (used / "b").read_bytes() == b"content"


def test_only_one_at_a_time_holds_a_lock(tmp_path):
    entered = []

    def enter(name):
        with locked(tmp_path / "lock"):
            entered.append(name)
            time.sleep(0.05)  # time for the others to enter, if they could
            entered.append(name)

    threads = [threading.Thread(target=enter, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert entered[::2] == entered[1::2]
    assert list(tmp_path.iterdir()) == []


def test_sweep_lets_the_living_alone(tmp_path):
    with DirectoryLock(tmp_path, "a") as living:
        assert sweep(tmp_path) == 0
        assert living.path.is_dir()
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead.lock").touch()

    assert sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_notes_not_written_for_long_are_forgotten(store, root):
    for key in ("old", "new"):
        store.note(key, key)
    then = time.time() - cache_module.FORGET_SECONDS - 1
    old = next(path for path in (root / "index").iterdir() if path.read_text() == "old")
    os.utime(old, (then, then))

    store.make_room(0)

    assert store.noted("old") is None
    assert store.noted("new") == "new"


def test_lock_is_not_inherited(tmp_path):
    held = DirectoryLock(tmp_path, "a")
    child = subprocess.Popen(["sleep", "5"])
    descriptor = os.open(held.path.with_name(held.path.name + ".lock"), os.O_RDWR)
    os.close(held._lock)

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the child had it

    assert child.poll() is None, "it lives still"
    os.close(descriptor)
    child.kill()
    child.wait()
