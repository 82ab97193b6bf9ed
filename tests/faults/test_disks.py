"""A full disk, and a database file that another process has locked: on SQLite, where both are on one machine."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.checking import assert_sound
from tests.faults.cluster import SHORT, Cluster
from tests.systems.system import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

MEGABYTE = 1 << 20
ROOM = 32 * MEGABYTE


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, owned_pids: set[int]) -> Iterator[Cluster]:
    """One whose storage is a small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs, the disk that gets full here: run `make test-long` as root")
    folder = tmp_path_factory.mktemp("small_disk")
    system = Cluster(folder / "system", SHORT)
    storage = folder / "disk"
    storage.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(storage)], check=True)
    try:
        system.data_dir.mkdir(parents=True)
        system.storage.symlink_to(storage)
        system.start("n1")
        owned_pids.update(process.pid for process in system.everything())
        yield system
    finally:
        system.stop()
        subprocess.run(["umount", str(storage)], check=True)


@pytest.fixture
def cluster(standing: Cluster) -> Iterator[Cluster]:
    yield standing
    (standing.storage / "filler").unlink(missing_ok=True)


def fill(cluster: Cluster) -> Path:
    """Take all the room there is, with one file to delete afterwards."""
    filler = cluster.storage / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"x" * (MEGABYTE // 4))
        except OSError:
            return filler


def test_a_job_waits_for_room_and_resumes_by_itself(cluster: Cluster) -> None:
    job_id = cluster.train(steps=150, step_seconds=0.06, weight_bytes=MEGABYTE)
    cluster.wait_until_witnessed(job_id, 12)

    filler = fill(cluster)

    waiting = wait_for(lambda: _waiting(cluster, job_id), seconds=60, what="the job says that it waits for room")
    assert waiting.startswith("disk_full")
    assert cluster.call("GET", f"/v1/jobs/{job_id}")[0] == 200
    filler.unlink()
    freed = time.monotonic()
    cluster.wait_until_witnessed(job_id, 12, attempt=2)
    assert time.monotonic() - freed < 30
    cluster.wait_for_end(job_id)
    assert_sound(cluster)


def test_a_moment_without_room_costs_no_attempt(cluster: Cluster) -> None:
    job_id = cluster.train(steps=80, step_seconds=0.06, weight_bytes=MEGABYTE)
    cluster.wait_until_witnessed(job_id, 12)

    filler = fill(cluster)
    time.sleep(1)  # some checkpoints long, and shorter than the supervisor waits for room
    filler.unlink()

    assert cluster.wait_for_end(job_id)["attempt"] == 1
    assert_sound(cluster)


def test_a_job_survives_a_locked_database(cluster: Cluster) -> None:
    job_id = cluster.train(steps=120, step_seconds=0.06)
    cluster.wait_until_witnessed(job_id, 12)

    with closing(sqlite3.connect(cluster.data_dir / "trainyard.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert cluster.call("GET", f"/v1/jobs/{job_id}")[0] == 200, "readers are not blocked"
        time.sleep(2)  # longer than a renewal and a report wait
        connection.execute("ROLLBACK")

    assert cluster.wait_for_end(job_id)["attempt"] == 1
    assert_sound(cluster)


def _waiting(cluster: Cluster, job_id: str) -> str:
    job = cluster.job(job_id)
    return str(job["pending_reason"] or "") if job["status"] == "QUEUED" else ""
