"""A real supervisor has a finished model published where its job asks for it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.domain.spec.model import OutputConfig
from app.models import Artifact, Job
from app.services.attempts import work_orders
from app.services.jobs import reports
from app.storage.storage import Storage
from config.settings import load_settings
from tests.builders.walks import NO_WAIT
from tests.doubles.hub import OWNER, TOKEN, Hub, running_hub
from tests.systems.supervising import World, rows, training, try_again
from workers.supervisor.recording.model_export import find_output, output_limits, store_model
from workers.supervisor.recording.upload import Patience

FILES = {"model.bin": b"weights", "readme.txt": b"a model"}
PUSH = {"push_to_hub": True, "hub_repo_id": f"{OWNER}/tiny"}


@pytest.fixture
def hub(monkeypatch) -> Iterator[Hub]:
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


def start(world: World, **output: object) -> str:
    return world.start(training(steps=2, save_at=(1,)), document={"output_config": output})


def artifacts(world: World, job_id: str) -> dict[str, bytes]:
    """What the API would hand out."""
    return {
        artifact.path: world.storage.read(f"jobs/{job_id}/artifacts/{artifact.path}")
        for artifact in rows(world, Artifact, job_id=job_id)
        if not artifact.path.startswith("tensorboard/")
    }


def exported(world: World, job_id: str) -> list[dict[str, object]]:
    return [event.data or {} for event in world.events(job_id) if event.type == "job.exported"]


def model_uri(world: World, job_id: str) -> str:
    with world.db.read() as session:
        return reports.completion_report(session, session.get_one(Job, job_id)).model_uri


def published(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".")}


@pytest.mark.long
def test_model_is_copied_and_pushed_and_kept(world, hub):
    target = world.directory / "mine" / "out"
    job_id = start(world, output_path=str(target), **PUSH)

    job = world.wait_for_end(job_id, 40)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert published(target) == FILES == hub.files(f"{OWNER}/tiny") == artifacts(world, job_id)
    assert model_uri(world, job_id) == f"file://{target}"
    copied, pushed = exported(world, job_id)
    assert (copied["uri"], pushed["hub_url"]) == (f"file://{target}", f"{hub.url}/{OWNER}/tiny")
    assert world.states(job_id)[-2:] == ["EXPORTING", "COMPLETED"]


@pytest.mark.long
def test_model_that_cannot_be_published_is_kept(world, hub):
    hub.fail("POST /api/repos/create", 403)
    job_id = start(world, **PUSH)

    job = world.wait_for_end(job_id, 40)

    assert (job.state, job.error_type) == (JobState.FAILED, "EXPORT_FAILED"), world.describe(job_id)
    assert "kept among the job's artifacts" in job.error_message
    assert "the hub answers 403" in job.error_message
    assert artifacts(world, job_id) == FILES
    assert model_uri(world, job_id) == f"{world.storage.uri(f'jobs/{job_id}/artifacts')}"
    assert (job.report["weight_files"], job.current_step) == (["model.bin"], 2)
    assert job.latest_checkpoint_id is not None


@pytest.mark.long
def test_cancel_ends_an_upload(world, hub):
    hub.stall("POST .*/preupload/")
    job_id = start(world, **PUSH)
    world.wait(hub.stalled.is_set, 40, job_id)
    assert world.job(job_id).state is JobState.EXPORTING
    counter = world.lease(job_id).counter
    world.wait(lambda: world.lease(job_id).counter > counter, 10, job_id)

    world.request(job_id, "cancel")
    job = world.wait_for_end(job_id, 5)

    assert job.state is JobState.CANCELLED
    assert artifacts(world, job_id) == FILES
    assert world.processes(job_id) == []


@pytest.mark.long
def test_upload_that_dies_with_its_supervisor_is_done_by_the_next(world, hub):
    hub.stall("POST .*/commit/")
    target = world.directory / "mine" / "out"
    job_id = start(world, output_path=str(target), **PUSH)
    world.wait(hub.stalled.is_set, 40, job_id)
    supervisor = world.lease(job_id).supervisor_pid
    children = [int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()]

    os.kill(supervisor, signal.SIGKILL)
    world.wait(lambda: not world.supervisor_alive(job_id, 1), 5)
    world.wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 5)
    with world.db.write() as session:
        lost = Outcome(kind="failed", cause="SUPERVISOR_LOST")
        work_orders.end_attempt(session, session.get_one(Job, job_id), 1, lost, NO_WAIT, actor="reaper")
    job = try_again(world, job_id, seconds=40)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert hub.files(f"{OWNER}/tiny") == FILES
    assert published(target) == FILES
    assert model_uri(world, job_id) == f"file://{target}"


@pytest.mark.parametrize("link", [True, False])
def test_place_outside_the_roots_fails_before_anything_is_trained(world, tmp_path, link):
    outside = tmp_path / "outside"
    outside.mkdir()
    (world.directory / "mine" / "way-out").symlink_to(outside)
    job_id = start(world, output_path=str(world.directory / "mine/way-out/out" if link else outside / "out"))

    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, "INVALID_CONFIG")
    assert "TRAINYARD_STORAGE_ROOTS" in job.error_message
    assert "TRAINING" not in world.states(job_id)
    assert list(outside.iterdir()) == []


def test_link_that_the_training_puts_in_the_way_is_not_followed(bare_world, tmp_path):
    outside, target = tmp_path / "outside", bare_world.directory / "mine" / "out"
    outside.mkdir()
    script = f"import os\nos.symlink({str(outside)!r}, {str(target)!r})\n" + training(steps=1)
    job_id = bare_world.start(script, document={"output_config": {"output_path": str(target)}})

    job = bare_world.wait_for_end(job_id, 40)

    assert (job.state, job.error_type) == (JobState.FAILED, "EXPORT_FAILED"), bare_world.describe(job_id)
    assert list(outside.iterdir()) == []
    assert artifacts(bare_world, job_id) == FILES


def test_storage_elsewhere_leaves_the_model_here_until_it_is_published(tmp_path):
    for path, data in FILES.items():
        tmp_path.joinpath("output").mkdir(exist_ok=True)
        tmp_path.joinpath("output", path).write_bytes(data)
    elsewhere = Storage(f"memory://{tmp_path.name}")

    limits = output_limits(OutputConfig(), load_settings({}).storage)
    output, patience = (
        find_output(tmp_path / "output", limits, custom=True),
        Patience(rest=lambda _: False, waits=lambda _: False),
    )
    model = store_model(elsewhere, "job-1", output, None, patience=patience, keep=True)

    assert published(model.directory) == FILES
    assert elsewhere.read("jobs/job-1/artifacts/model.bin") == b"weights"
