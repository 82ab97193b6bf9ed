"""The built-in trainer under its real supervisor and sandbox: put back while it trains, finished by another attempt."""

import hashlib
import shutil

import pytest

from app.domain.job_state import JobState
from app.models import Artifact, Checkpoint, Metric
from tests.factories import make_document, make_job
from tests.supervising import NODE, World, rows, try_again
from workers.spawning import start_attempt


@pytest.fixture
def world(tmp_path, sqlite_url, assets):
    world = World(tmp_path, sqlite_url)
    shutil.copytree(assets, tmp_path / "mine" / "demo")
    yield world
    world.close()


def test_sft_on_two_ranks_is_requeued_and_finished(world):
    document = make_document(
        training_config={
            "base_model": {"model_id": "demo/model"},
            "hyperparameters": {"max_steps": "12", "learning_rate": "1e-3"},
        },
        data_config={"sources": [{"path": "demo/train.jsonl", "format": "jsonl"}], "batch_size": 2},
        output_config={"checkpoint": {"save_strategy": "steps", "save_steps": 4}},
        resource_config={"gpu_count": 2},
    )
    with world.db.write() as session:
        job_id = make_job(session, document=document).id
    start_attempt(world.settings, world.db, job_id, world.dispatch(job_id, ranks=2), node=NODE)
    world.wait(lambda: world.job(job_id).current_step >= 2, 60, job_id)
    world.wish(job_id, "requeue")
    assert world.wait_for_end(job_id, 60).state is JobState.QUEUED, world.describe(job_id)
    saved_at = max(checkpoint.step for checkpoint in rows(world, Checkpoint))

    job = try_again(world, job_id, ranks=2, seconds=60)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert world.attempt(job_id, 2).start_step == saved_at
    assert sorted(m.step for m in rows(world, Metric, name="loss")) == list(range(1, 13))
    assert (job.current_step, job.total_steps) == (12, 12)
    stored = world.storage.local_path(f"jobs/{job_id}/artifacts")
    assert stored is not None
    assert job.report is not None
    weights = b"".join((stored / name).read_bytes() for name in job.report["weight_files"])
    assert job.report["model_hash"] == hashlib.sha256(weights).hexdigest()
    assert "model.safetensors" in [artifact.path for artifact in rows(world, Artifact)]


def test_broken_record_fails_with_its_row(world):
    (world.directory / "mine" / "odd.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": 5}\n')
    document = make_document(
        training_config={"base_model": {"model_id": "demo/model"}},
        data_config={"sources": [{"path": "odd.jsonl", "format": "jsonl"}]},
    )
    with world.db.write() as session:
        job_id = make_job(session, document=document).id
    start_attempt(world.settings, world.db, job_id, world.dispatch(job_id), node=NODE)

    job = world.wait_for_end(job_id, 60)

    assert (job.state, job.error_type) == (JobState.FAILED, "DATA_INVALID"), world.describe(job_id)
    assert job.retries_used == 0
