"""How much an attempt keeps in its run directory, and what is reported when that is too much."""

import threading

from workers.run_dir.sizes import allocated_bytes
from workers.supervisor.recording import run_size
from workers.supervisor.recording.run_size import RunSizeWatch


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
    (tmp_path / "resume").mkdir()
    (tmp_path / "resume" / "model").write_bytes(b"x" * 3_000_000)

    assert allocated_bytes(tmp_path) < 100_000


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
