"""How much an attempt keeps in its run directory, and what is reported when that is too much."""

import os
import threading
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from workers.run_dir.sizes import allocated_bytes
from workers.supervisor.recording import run_size
from workers.supervisor.recording.run_size import RunSizeWatch

LEVELS = 100  # more than are open at a time


def test_disk_space_counts_not_the_length_of_sparse_files_nor_what_links_lead_to(tmp_path):
    (tmp_path / "work" / "deep").mkdir(parents=True)
    (tmp_path / "work" / "deep" / "full").write_bytes(b"x" * 3_000_000)
    with (tmp_path / "work" / "sparse").open("wb") as file:
        file.truncate(10**12)
    (tmp_path / "work" / "link").symlink_to("/usr")

    assert 3_000_000 <= allocated_bytes(tmp_path) < 3_200_000


def test_files_without_content_take_space_too(tmp_path):
    for number in range(500):
        (tmp_path / str(number)).touch()

    assert allocated_bytes(tmp_path) >= 500 * 4096


def test_checkpoint_that_the_platform_has_fetched_is_not_the_jobs(tmp_path):
    for directory in (tmp_path / "resume", tmp_path / "work" / "resume"):
        directory.mkdir(parents=True)
        (directory / "model").write_bytes(b"x" * 3_000_000)

    assert allocated_bytes(tmp_path) > 6_000_000
    assert 3_000_000 < allocated_bytes(tmp_path, besides="resume") < 3_200_000


def test_directories_below_a_path_longer_than_the_kernel_takes_count(tmp_path):
    open_before = open_descriptors()
    with at_the_end_of_a_long_path(tmp_path) as deepest:
        file = os.open("large", os.O_CREAT | os.O_WRONLY, dir_fd=deepest)
        os.write(file, b"x" * 3_000_000)
        os.close(file)
        (tmp_path / "beside").write_bytes(b"x" * 1_000_000)  # counted whether before the descent or after it

        assert 4_000_000 + 2 * LEVELS * 4096 <= allocated_bytes(tmp_path) < 4_200_000 + 2 * LEVELS * 4096
    assert open_descriptors() == open_before


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def at_the_end_of_a_long_path(directory):
    """A descriptor of the last of LEVELS directories; each has another one beside it, so that it is gone back to."""
    with ExitStack() as stack:
        held = [os.open(directory, os.O_RDONLY)]
        stack.callback(lambda: os.close(held[0]))
        for _ in range(LEVELS):
            os.mkdir("d" * 200, dir_fd=held[0])
            os.mkdir("e", dir_fd=held[0])
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=held[0])
            os.close(held[0])
            held[0] = below
        yield held[0]


def test_file_that_vanishes_ends_not_the_count_of_its_directory(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"x" * 1_000_000)
    scandir = os.scandir

    def losing_one(descriptor):
        """As if the first entry had been removed after it was read."""
        entries = list(scandir(descriptor))
        os.unlink(entries[0].name, dir_fd=descriptor)
        return nullcontext(entries)

    monkeypatch.setattr(os, "scandir", losing_one)
    assert 2_000_000 <= allocated_bytes(tmp_path) < 2_200_000


def test_count_stops_where_it_is_too_much(tmp_path):
    for number in range(300):
        (tmp_path / str(number)).touch()

    assert allocated_bytes(tmp_path, most_bytes=10 * 4096) == 11 * 4096


def test_directory_that_is_not_there_is_empty(tmp_path):
    assert allocated_bytes(tmp_path / "none") == 0


def test_too_much_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run_size, "PERIOD_SECONDS", 0.01)
    found, reported = [], threading.Event()

    def on_exceeded(megabytes):
        found.append(megabytes)
        reported.set()

    watch = RunSizeWatch(tmp_path, 2, on_exceeded)
    watch.start()
    (tmp_path / "small").write_bytes(b"x" * 1_000_000)
    assert not reported.wait(0.1)
    large = tmp_path.with_name(f"{tmp_path.name}-large")
    large.write_bytes(b"x" * (5 << 20))
    large.rename(tmp_path / "large")  # as a whole, since it is measured meanwhile
    assert reported.wait(10)

    assert not threading.Event().wait(0.1)
    assert len(found) == 1
    assert found[0] >= 5
