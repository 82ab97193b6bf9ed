"""A real supervisor copies the log of an attempt where its job wants it, however the attempt ends."""

from pathlib import Path

import pytest

from app.domain.lifecycle.states import JobState
from app.storage.logs import LogReader
from tests.systems.supervising import World, training

SAYS = "print('hello from the script', flush=True)\n"


def start(world: World, script: str, **output: object) -> str:
    return world.start(script, document={"output_config": output})


def log_of(world: World, place: Path, job_id: str, attempt: int = 1) -> str:
    found = place / job_id / f"attempt-{attempt}" / "rank-0.log"
    assert found.is_file(), world.describe(job_id)
    return found.read_text()


def exported(world: World, job_id: str) -> list[dict[str, object]]:
    return [event.data or {} for event in world.events(job_id) if event.type == "job.exported"]


def warnings(world: World, job_id: str) -> list[str]:
    return [event.message or "" for event in world.events(job_id) if event.type == "job.warning"]


@pytest.mark.long
def test_log_is_copied_beside_those_of_other_jobs(world):
    place = world.directory / "mine" / "logs"
    (place / "job-of-others").mkdir(parents=True)
    job_id = start(world, SAYS + training(steps=1), log_path=str(place))

    job = world.wait_for_end(job_id, 40)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    stamp, _, text = log_of(world, place, job_id).splitlines()[0].partition(" ")
    assert (stamp[-1], text) == ("Z", "hello from the script")
    (event,) = exported(world, job_id)
    assert event["log_uri"] == f"file://{place}/{job_id}/attempt-1"
    assert event["size_bytes"] == len(log_of(world, place, job_id).encode())


def test_log_of_a_failed_attempt_is_copied(world):
    place = world.directory / "mine" / "logs"
    job_id = start(world, SAYS + "raise ValueError('no good')\n", log_path=str(place))

    job = world.wait_for_end(job_id, 40)

    assert job.state is JobState.FAILED
    assert "ValueError: no good" in log_of(world, place, job_id)


def test_log_of_a_cancelled_attempt_is_copied(world):
    place = world.directory / "mine" / "logs"
    job_id = start(world, SAYS + training(steps=10_000), log_path=str(place))
    world.wait(lambda: bool(LogReader(world.storage, job_id).read()), 40, job_id)

    world.request(job_id, "cancel")
    job = world.wait_for_end(job_id, 40)

    assert job.state is JobState.CANCELLED
    assert "hello from the script" in log_of(world, place, job_id)


def test_place_that_becomes_a_file_is_a_warning_and_no_failure(bare_world):
    place = bare_world.directory / "mine" / "logs"
    script = f"from pathlib import Path\nPath({str(place)!r}).write_text('a file')\n" + training(steps=1)
    job_id = start(bare_world, SAYS + script, log_path=str(place))

    job = bare_world.wait_for_end(job_id, 40)

    assert job.state is JobState.COMPLETED, bare_world.describe(job_id)
    assert any("was not copied to log_path" in each for each in warnings(bare_world, job_id))


def test_place_outside_the_roots_fails_before_anything_is_trained(world, tmp_path):
    job_id = start(world, training(steps=1), log_path=str(tmp_path / "outside"))

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "INVALID_CONFIG")
    assert job.error_message.startswith("log_path ")
    assert "TRAINING" not in world.states(job_id)
