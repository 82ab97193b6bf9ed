"""Ranks that reach for what is not theirs, or talk without end: no other job is harmed, their own says why it ended."""

import pytest

from app.domain.lifecycle.states import JobState
from app.domain.spec.model import OutputConfig
from app.models import Artifact, Checkpoint, Metric
from config.settings import load_settings
from tests.systems.supervising import rows, training
from workers.supervisor.recording.model_export import MAX_PATH, find_output, output_limits

SPEAKS = """
import json, os, shutil, socket, sys, time
run = os.environ["TRAINYARD_RUN_DIR"]
s = socket.socket(socket.AF_UNIX); fd = os.open(run, os.O_RDONLY)
s.connect(f"/proc/self/fd/{fd}/channel")
def say(**m): s.sendall(json.dumps(m).encode() + b"\\n")
say(type="hello", rank=0, can_checkpoint=True)
"""
ENDS = '\nsay(type="result", stopped=None, step=1)\n'


@pytest.fixture
def theirs(world):
    """What another job has stored."""
    folder = world.data_dir / "files" / "jobs" / "job-other" / "artifacts"
    folder.mkdir(parents=True)
    (folder / "model.bin").write_text("secret")
    (folder / "latest").symlink_to("model.bin")
    return folder


@pytest.mark.parametrize("place", ["theirs", "/etc"])
def test_link_in_place_of_the_output_is_not_exported(world, theirs, place):
    target = str(theirs) if place == "theirs" else place
    job_id = world.start(SPEAKS + f"os.rmdir(run + '/output'); os.symlink({target!r}, run + '/output')" + ENDS)

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "EXPORT_FAILED"), world.describe(job_id)
    assert rows(world, Artifact) == []
    assert sorted(path.name for path in theirs.iterdir()) == ["latest", "model.bin"]
    assert (theirs / "latest").is_symlink()


@pytest.mark.long
def test_link_in_place_of_the_checkpoints_takes_nothing_from_others(world):
    first = world.start(training(steps=4, save_at=(2,)))
    world.wait_for_end(first)
    (saved,) = rows(world, Checkpoint)
    stored = world.storage.local_path(f"jobs/{first}/checkpoints")
    reach = f"shutil.rmtree(run + '/checkpoints'); os.symlink({str(stored)!r}, run + '/checkpoints')\n"
    offer = f"say(type='checkpoint', step=2, path=run + '/checkpoints/{saved.id}', metrics={{}})\ntime.sleep(0.5)"

    job_id = world.start(SPEAKS + reach + offer + ENDS)
    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert [event.type for event in world.events(job_id)].count("checkpoint.failed") == 1
    assert (stored / saved.id / "manifest.json").is_file()


def test_script_that_removes_its_output_directory_has_an_empty_output(world):
    job_id = world.start("import os\nos.rmdir(os.environ['TRAINYARD_RUN_DIR'] + '/output')\n")

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert rows(world, Artifact) == []


def test_built_in_trainer_must_leave_an_output_directory(tmp_path):
    with pytest.raises(Exception, match="EXPORT_FAILED"):
        find_output(tmp_path / "output", output_limits(OutputConfig(), load_settings({}).storage), custom=False)


def test_output_beyond_its_limit_is_an_export_that_failed_and_stores_nothing(world):
    script = "import os\nopen('../output/sparse', 'wb').truncate((1 << 20) + 1)\n"
    job_id = world.start(script, document={"output_config": {"max_output_size_mb": 1}})

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "EXPORT_FAILED"), world.describe(job_id)
    assert "larger than the 1 MB that output_config.max_output_size_mb allows" in job.error_message
    assert rows(world, Artifact) == []


def test_path_that_no_table_takes_is_an_export_that_failed(world):
    deep = "/".join(["d" * 100] * 6)
    job_id = world.start(f"import os\nos.chdir('../output')\nos.makedirs({deep!r})\nopen({deep!r} + '/f', 'w')\n")

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "EXPORT_FAILED"), world.describe(job_id)
    assert deep in job.error_message
    assert repr(Artifact.__table__.c["path"].type) == f"String(length={MAX_PATH})"


def test_finished_training_is_not_lost_by_what_its_result_says_besides(world):
    writes = "open(run + '/output/model.bin', 'wb').write(b'weights')\n"
    end = "say(type='result', stopped=None, step=5.0, tokens=1e6, weight_files='all',\n"
    job_id = world.start(SPEAKS + writes + end + "    final_metrics={f'm{n}': n for n in range(1002)})\n")

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert job.report["weight_files"] == ["model.bin"]
    assert len(job.report["final_metrics"]) == 1000
    assert (job.current_step, job.tokens) == (5, 1_000_000)


FLOODS = """
for n in range(3000):
    say(type="phase", phase=("TRAINING", "CHECKPOINTING")[n % 2])
    say(type="nonsense", n=n)
    say(type="progress", step=-n)
    say(type="error", rank=n, error_type="SCRIPT_ERROR", message="x" * 1000, stack="")
    say(type="checkpoint", step=n, path=run + "/checkpoints/no\\ud800ne", metrics={})
    say(type="checkpoint", step=n, path=run + "/checkpoints/none", metrics={})
for n in range(1100):
    say(type="metric", step=1, values={f"name-{n}": n})
"""


def test_floods_neither_fill_the_history_nor_the_log_nor_fail_the_job(world):
    job_id = world.start(SPEAKS + FLOODS + ENDS)

    job = world.wait_for_end(job_id, 60)

    assert job.state is JobState.COMPLETED, world.describe(job_id)[-3000:]
    kinds = [event.type for event in world.events(job_id)]
    assert kinds.count("checkpoint.failed") <= 25
    assert kinds.count("job.status") <= 60
    assert kinds.count("job.warning") == 1
    assert len(rows(world, Metric)) == 1000
    assert len(job.latest_metrics) == 1000
    assert (world.data_dir / "log" / "supervisors.log").stat().st_size < 200_000


def test_script_that_cannot_decide_whether_it_saves_is_taken_at_its_first_yes(world):
    wavering = "for n in range(2001): say(type='hello', rank=0, can_checkpoint=n % 2 == 0 and n < 2000)"
    job_id = world.start(SPEAKS + wavering + ENDS)

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert world.attempt(job_id).can_checkpoint is True
