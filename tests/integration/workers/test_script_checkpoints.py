"""Checkpoints of scripts that write files of their own and know nothing of the platform."""

import json

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Checkpoint
from tests.systems.supervising import rows, try_again

# Resumes from its newest file, as scripts do; the first attempt fails after the third one.
SAVES = r"""
import pathlib, sys, time
folder = pathlib.Path("out")
folder.mkdir(exist_ok=True)
found = sorted(folder.glob("step-*.txt"))
start = int(found[-1].stem.rpartition("-")[2]) if found else 0
print("starts at", start, flush=True)
for step in range(start + 1, 6):
    print(f"step {step} loss={1 / step}", flush=True)
    time.sleep(0.3)
    draft = folder / "draft"
    draft.write_text(str(step))
    draft.rename(folder / f"step-{step}.txt")
    if step == 3 and not start:
        while WAITS and not pathlib.Path("go-on").exists():
            time.sleep(0.05)
        sys.exit(9)
"""
CONFIG = {"checkpoint_glob": "out/step-*.txt", "metric.step": r"step (\d+)", "metric.loss": r"loss=([.\d]+)"}


def steps(world):
    return sorted(each.step for each in rows(world, Checkpoint))


def go_on(world, job_id):
    (world.data_dir / "run" / "jobs" / job_id / "1" / "work" / "go-on").touch()


def content(world, job_id, checkpoint):
    return world.storage.read(f"jobs/{job_id}/checkpoints/{checkpoint.id}/work/out/step-{checkpoint.step}.txt")


@pytest.mark.long
@pytest.mark.parametrize("waits", [True, False], ids=["while it runs", "at its end"])
def test_files_that_a_script_leaves_are_checkpoints_from_which_it_goes_on(world, waits):
    job_id = world.start(SAVES.replace("WAITS", str(waits)), framework_config=CONFIG)
    if waits:
        world.wait(lambda: steps(world) == [1, 2, 3], 20, job_id)
        go_on(world, job_id)
    assert world.wait_for_end(job_id).state is JobState.FAILED
    assert steps(world) == [1, 2, 3], world.describe(job_id)
    assert [content(world, job_id, each) for each in rows(world, Checkpoint)] == [b"1", b"2", b"3"]
    newest = max(rows(world, Checkpoint), key=lambda each: each.step)
    assert newest.metrics["loss"] == pytest.approx(1 / 3)
    manifest = json.loads(world.storage.read(f"jobs/{job_id}/checkpoints/{newest.id}/manifest.json"))
    assert manifest["step"] == 3

    job = try_again(world, job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert "starts at 3" in world.log(job_id)
    assert world.attempt(job_id, 2).start_step == 3
    assert steps(world)[-2:] == [4, 5]


@pytest.mark.long
def test_one_file_that_is_written_anew_is_kept_each_time(world):
    job_id = world.start(
        "import os, time\n"
        "for text in ('one', 'two'):\n"
        "    open('draft', 'w').write(text)\n"
        "    os.rename('draft', 'last.ckpt')\n"
        "    while text == 'one' and not os.path.exists('go-on'): time.sleep(0.05)\n",
        framework_config={"checkpoint_glob": "**/last.ckpt"},
    )
    world.wait(lambda: steps(world) == [1], 20, job_id)
    go_on(world, job_id)

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)

    kept = sorted(rows(world, Checkpoint), key=lambda each: each.step)
    texts = [world.storage.read(f"jobs/{job_id}/checkpoints/{each.id}/work/last.ckpt") for each in kept]
    assert [each.step for each in kept] == [1, 2]
    assert texts == [b"one", b"two"]


@pytest.mark.long
def test_directories_are_kept_without_links(world, tmp_path):
    (tmp_path / "secret").write_text("not the script's")
    job_id = world.start(
        "import os\n"
        "os.makedirs('runs/checkpoint-40/part')\n"
        "open('runs/checkpoint-40/weights', 'w').write('w')\n"
        "open('runs/checkpoint-40/part/state', 'w').write('s')\n"
        f"os.symlink({str(tmp_path / 'secret')!r}, 'runs/checkpoint-40/link')\n"
        "os.makedirs('runs/checkpoint-50')\n",
        framework_config={"checkpoint_glob": "runs/checkpoint-*"},
    )

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)

    (kept,) = rows(world, Checkpoint)
    assert kept.step == 40
    manifest = json.loads(world.storage.read(f"jobs/{job_id}/checkpoints/{kept.id}/manifest.json"))
    places = {"work/runs/checkpoint-40/part/state", "work/runs/checkpoint-40/weights"}
    assert {each["path"] for each in manifest["files"]} == places


def test_script_that_is_ended_by_a_requeue_may_still_save(world):
    job_id = world.start(
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    open('step-7.txt', 'w').write('7')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n",
        framework_config={"checkpoint_glob": "step-*.txt"},
    )
    world.wait_for_line(job_id, "ready")

    world.request(job_id, "requeue")

    assert world.wait_for_end(job_id).state is JobState.QUEUED, world.describe(job_id)
    assert steps(world) == [7]
