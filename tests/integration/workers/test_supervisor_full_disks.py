"""Full disks under a running attempt: nothing is corrupted, and the job waits until there is room and resumes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Checkpoint
from app.storage.object_keys import checkpoint_key
from tests.systems.disks import Disk
from tests.systems.supervising import World, rows, training, try_again
from trainyard.protocol import checkpoint_manifest

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk: run `make test-long` as root"),
]

SAVES = '            open(f"{path}/state", "w").write(str(step))'
LARGE = SAVES + '\n            open(f"{path}/ballast", "wb").write(bytes(300_000))'


@pytest.fixture
def storage_disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "small")
    disk.mount()
    yield disk
    disk.unmount()


@pytest.fixture
def runs_disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "data" / "run")
    yield disk
    disk.unmount()


@pytest.fixture
def stored_world(make_world, storage_disk):
    return make_world(TRAINYARD_STORAGE_URL=f"file://{storage_disk.path}/files", TRAINYARD_WATCH_DISK_FULL_SECONDS="2")


def warnings(world: World, job_id: str) -> list[str]:
    return [event.message for event in world.events(job_id) if event.reason == "DISK_FULL" and not event.to_status]


def waits_for_room(world: World, job_id: str) -> None:
    job = world.job(job_id)
    assert (job.state, job.error_type, job.retries_used) == (JobState.QUEUED, "DISK_FULL", 0), world.describe(job_id)
    assert job.pending_reason.startswith("disk_full")
    assert world.lease(job_id).released_at is not None


def test_checkpoint_without_room_leaves_the_one_before_and_the_job_waits(stored_world, storage_disk):
    world = stored_world
    job_id = world.start(training(steps=400, pause=0.1, save_at=(3, 6)).replace(SAVES, LARGE))
    world.wait(lambda: len(rows(world, Checkpoint)) == 1, 10, job_id)
    storage_disk.fill()

    world.wait_for_end(job_id, 20)

    waits_for_room(world, job_id)
    assert warnings(world, job_id) != []
    (kept,) = rows(world, Checkpoint)
    assert checkpoint_manifest.verify(world.storage.local_path(checkpoint_key(job_id, kept.id))).step == 3
    assert list(world.storage.names(f"jobs/{job_id}/checkpoints")) == [kept.id]

    storage_disk.clear()
    job = try_again(world, job_id, seconds=60)
    assert world.attempt(job_id, 2).start_step == 3, world.describe(job_id)
    assert job.state is JobState.COMPLETED, world.describe(job_id)


def test_training_goes_on_when_room_comes_back_in_time(make_world, storage_disk):
    world = make_world(
        TRAINYARD_STORAGE_URL=f"file://{storage_disk.path}/files", TRAINYARD_WATCH_DISK_FULL_SECONDS="60"
    )
    job_id = world.start(training(steps=60, pause=0.1, save_at=(8,)).replace(SAVES, LARGE))
    world.wait_for_line(job_id, "step 5")
    storage_disk.fill()
    world.wait(lambda: any("a checkpoint" in said for said in warnings(world, job_id)), 15, job_id)

    storage_disk.clear()
    job = world.wait_for_end(job_id, 30)

    assert (job.state, job.attempt) == (JobState.COMPLETED, 1), world.describe(job_id)
    assert [c.step for c in rows(world, Checkpoint)] == [8]
    assert [line for line in world.log(job_id) if line.startswith("step")] == [f"step {n}" for n in range(1, 61)]


def test_model_without_room_waits_too(stored_world):
    world = stored_world
    script = "from trainyard import hooks\nrun = hooks.init()\nrun.progress(1, 1)\n"
    job_id = world.start(script + "open(f'{run.output_dir}/model.bin', 'wb').write(bytes(2_000_000))\n")

    world.wait_for_end(job_id, 20)

    waits_for_room(world, job_id)
    assert list(world.storage.names(f"jobs/{job_id}/artifacts")) == []


def test_pause_does_not_wait_for_room(stored_world, storage_disk):
    world = stored_world
    script = (
        training(steps=400, pause=0.1)
        .replace(SAVES, LARGE)
        .replace("    if stop:\n", "    if stop and run.should_stop():\n")
    )
    job_id = world.start(script)
    world.wait_for_line(job_id, "step 5")
    storage_disk.fill(leaving=100_000)

    world.request(job_id, "pause")
    world.wait(lambda: any(e.type == "job.pause_failed" for e in world.events(job_id)), 10, job_id)

    world.wait(lambda: world.job(job_id).state is JobState.TRAINING, 5, job_id)
    assert world.job(job_id).attempt == 1
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)


def test_rank_that_finds_no_room_waits(make_world, runs_disk):
    runs_disk.mount()
    world = make_world()
    job_id = world.start(
        training(steps=400, pause=0.1, save_at=(3,)).replace(SAVES, LARGE.replace("300_000", "3_000_000"))
    )

    world.wait_for_end(job_id, 20)

    waits_for_room(world, job_id)
    assert "No space left" in world.job(job_id).error_message
    assert rows(world, Checkpoint) == []


def test_node_without_room_for_a_run_keeps_the_job_waiting(make_world, runs_disk):
    runs_disk.mount("size=1m,nr_inodes=4")
    world = make_world()
    job_id = world.start("print('hello')\n")

    world.wait_for_end(job_id, 20)

    waits_for_room(world, job_id)
