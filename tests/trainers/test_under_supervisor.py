"""The built-in trainer under its real supervisor and sandbox: put back while it trains, finished by another attempt."""

import hashlib
import os
import shutil
import signal

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Checkpoint, Metric, StuckDevice
from app.services.attempts import artifacts
from tests.builders.factories import make_document, make_job
from tests.doubles.unkillable import unkillable
from tests.systems.supervising import NODE, World, environment, rows, try_again
from trainyard.protocol.run_spec import RunSpec
from workers.prepare.inputs.kept_tokens import TOKENS
from workers.run_dir.layout import run_directory

# So many that what is done to the job finds it training: where it is, is seen up to 2 s later.
STEPS = 100


@pytest.fixture
def make_world(tmp_path, sqlite_url, assets, forked_supervisors, forked_agents):
    """A node in miniature, with settings of its own, that has the small model."""
    worlds = []

    def make(**variables):
        worlds.append(World(tmp_path, sqlite_url, spawn=forked_supervisors.spawn, **variables))
        forked_agents.serve(worlds[-1].data_dir)
        shutil.copytree(assets, tmp_path / "mine" / "demo")
        return worlds[-1]

    yield make
    for made in worlds:
        made.close()


@pytest.fixture
def world(make_world):
    return make_world()


def start_sft(world, *, save_steps, max_steps=STEPS, framework=None, ranks=2):
    """Starts a fine-tuning; returns the job's id."""
    document = make_document(
        training_config={
            "base_model": {"model_id": "demo/model"},
            "framework": framework or {"type": "HF_TRAINER"},
            "hyperparameters": {"max_steps": str(max_steps), "learning_rate": "1e-3"},
        },
        data_config={"sources": [{"path": "demo/train.jsonl", "format": "jsonl"}], "batch_size": 2},
        output_config={"checkpoint": {"save_strategy": "steps", "save_steps": save_steps}},
        resource_config={"gpu_count": ranks},
    )
    with world.db.write() as session:
        job_id = make_job(session, document=document).id
    world.take_up(job_id, ranks=ranks)
    return job_id


@pytest.mark.long
@pytest.mark.parametrize(
    "framework",
    [{"type": "HF_TRAINER"}, {"type": "MEGATRON", "config": {"tensor_parallel": "2"}}],
    ids=lambda framework: framework["type"],
)
def test_sft_on_two_ranks_is_requeued_and_finished(world, framework):
    job_id = start_sft(world, save_steps=40, framework=framework)
    world.wait(lambda: world.job(job_id).current_step >= 2, 60, job_id)
    world.request(job_id, "requeue")
    assert world.wait_for_end(job_id, 60).state is JobState.QUEUED, world.describe(job_id)
    saved_at = max(checkpoint.step for checkpoint in rows(world, Checkpoint))

    job = try_again(world, job_id, ranks=2, seconds=60)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert world.attempt(job_id, 2).start_step == saved_at
    assert sorted(m.step for m in rows(world, Metric, name="loss")) == list(range(1, STEPS + 1))
    assert (job.current_step, job.total_steps) == (STEPS, STEPS)
    stored = world.storage.local_path(f"jobs/{job_id}/artifacts")
    assert stored is not None
    assert job.report is not None
    weights = b"".join((stored / name).read_bytes() for name in job.report["weight_files"])
    assert job.report["model_hash"] == hashlib.sha256(weights).hexdigest()
    assert "model.safetensors" in [artifact.path for artifact in rows(world, Artifact)]


@pytest.mark.long
def test_rank_that_stands_still_in_a_step_is_noticed_and_the_job_finished(make_world):
    """The other one hangs with it, in the exchange of gradients."""
    world = make_world(TRAINYARD_WATCH_STEP_SECONDS="4")
    job_id = start_sft(world, save_steps=20)
    world.wait(lambda: rows(world, Checkpoint), 60, job_id)
    (stopped,) = [pid for pid in world.processes(job_id) if b"RANK=1" in environment(pid)]

    os.kill(stopped, signal.SIGSTOP)
    world.wait(lambda: world.job(job_id).attempt == 2, 60, job_id)

    first, second = world.attempt(job_id, 1), world.attempt(job_id, 2)
    assert (first.cause, first.end_recover, second.node_names) == ("HANG", "proc_restart", [NODE])
    assert "stopped by a signal (SIGSTOP): rank 1" in first.end_reason
    with world.db.read() as session:
        (found,) = artifacts.listed(session, job_id, artifacts.DIAGNOSTICS)
        with artifacts.opened(world.storage, found) as stream:
            stacks = stream.read().decode()
    waiting, _, still = stacks.partition("==== rank 1")
    assert "workers/trainers/" in waiting, "where rank 0 was when it waited for the other"
    assert "state T (stopped)" in still
    job = world.wait_for_end(job_id, 120)
    assert (job.state, job.attempt, job.current_step) == (JobState.COMPLETED, 2, STEPS), world.describe(job_id)
    assert world.attempt(job_id, 2).start_step == max(c.step for c in rows(world, Checkpoint) if c.attempt == 1)
    assert sorted(m.step for m in rows(world, Metric, name="loss")) == list(range(1, STEPS + 1))


@pytest.mark.long
def test_training_that_is_done_is_completed_though_a_rank_hangs_in_its_exit(make_world):
    world = make_world(TRAINYARD_WATCH_STUCK_SECONDS="2")
    job_id = start_sft(world, save_steps=40)
    world.wait(lambda: world.job(job_id).current_step >= 1, 60, job_id)
    (rank,) = [pid for pid in world.processes(job_id) if b"RANK=1" in environment(pid)]

    with unkillable(rank):
        job = world.wait_for_end(job_id, 60)

        assert (job.state, job.attempt, job.current_step) == (JobState.COMPLETED, 1, STEPS), world.describe(job_id)
        assert [row.device_index for row in rows(world, StuckDevice)] == [0, 1]


@pytest.mark.long
def test_second_job_reads_the_tokens_of_the_first_and_learns_the_same(make_world):
    world = make_world(TRAINYARD_NODE_KEEP_RUNS="true")
    hashes, tokens = [], []
    for _ in range(2):
        job_id = start_sft(world, max_steps=2, save_steps=2, ranks=1)
        job = world.wait_for_end(job_id, 60)
        assert job.state is JobState.COMPLETED, world.describe(job_id)
        assert job.report is not None
        hashes.append(job.report["model_hash"])
        run = run_directory(world.data_dir, job_id, 1)
        tokens.append((bool(RunSpec.read(run.spec).tokens_path), (run.path / TOKENS).exists()))

    assert hashes[0] == hashes[1]
    assert tokens == [(False, True), (True, False)], "whether they were given, and whether the ranks stored them"


@pytest.mark.long
def test_broken_record_fails_with_its_row(world):
    (world.directory / "mine" / "odd.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": 5}\n')
    document = make_document(
        training_config={"base_model": {"model_id": "demo/model"}},
        data_config={"sources": [{"path": "odd.jsonl", "format": "jsonl"}]},
    )
    with world.db.write() as session:
        job_id = make_job(session, document=document).id
    world.take_up(job_id)

    job = world.wait_for_end(job_id, 60)

    assert (job.state, job.error_type) == (JobState.FAILED, "DATA_INVALID"), world.describe(job_id)
    assert job.retries_used == 0
