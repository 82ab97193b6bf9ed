"""An attempt under its real supervisor, on a real database: how it trains, resumes and is prepared."""

import hashlib
import json
import time

import pytest

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.model_cards.inputs import ReadInputs, ReadModel
from app.models import Artifact, Checkpoint, Job, Lease, Metric, Reservation
from app.storage.object_keys import is_run_file
from tests.systems.supervising import SLEEPS, rows, training, try_again
from workers.prepare.inputs.model_files import digest_of


def test_script_that_knows_nothing_of_us_completes_and_everything_is_given_back(world):
    job_id = world.start("print('hello')\nprint('world')\n")

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert world.states(job_id) == ["PREPARING", "TRAINING", "COMPLETED"]
    assert world.log(job_id) == ["hello", "world"]
    assert job.progress == 1.0
    assert rows(world, Reservation) == []
    assert [lease.released_at is not None for lease in rows(world, Lease)] == [True]
    assert world.processes(job_id) == []
    assert list((world.data_dir / "run" / "jobs").iterdir()) == []


def test_training_leaves_model_metrics_and_report(world):
    job_id = world.start(training(steps=5))

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert (job.current_step, job.total_steps) == (5, 5)
    assert sorted(m.step for m in rows(world, Metric, name="loss")) == [1, 2, 3, 4, 5]
    assert job.latest_metrics == {"loss": 0.2}
    result = [a for a in rows(world, Artifact) if not is_run_file(a.path)]
    assert {a.path: a.size_bytes for a in result} == {"model.bin": 7, "readme.txt": 7}
    assert job.report["weight_files"] == ["model.bin"]
    assert job.report is not None
    assert job.report["model_hash"] == hashlib.sha256(b"weights").hexdigest()
    assert job.report["final_metrics"] == {"loss": 0.2}
    assert world.storage.read(f"jobs/{job_id}/artifacts/model.bin") == b"weights"
    assert job.elapsed_seconds > 0
    assert "EXPORTING" in world.states(job_id)


def test_ranks_of_one_job_train_together(world):
    job_id = world.start(training(steps=4), ranks=2)

    job = world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert sorted(world.log(job_id)) == sorted([f"step {n}" for n in (1, 2, 3, 4)] * 2)


def test_checkpoint_is_stored_verified_and_recorded(world):
    job_id = world.start(training(steps=4, save_at=(2,)))

    job = world.wait_for_end(job_id)

    (checkpoint,) = rows(world, Checkpoint)
    assert (checkpoint.step, checkpoint.metrics, checkpoint.world_size) == (2, {"loss": 0.5}, 1)
    assert job.latest_checkpoint_id == checkpoint.id
    manifest = json.loads(world.storage.read(f"jobs/{job_id}/checkpoints/{checkpoint.id}/manifest.json"))
    assert manifest["step"] == 2
    assert world.states(job_id)[:4] == ["PREPARING", "TRAINING", "CHECKPOINTING", "TRAINING"]


@pytest.mark.long
@pytest.mark.both_databases
def test_second_attempt_goes_on_from_the_last_checkpoint(any_world):
    world = any_world
    job_id = world.start(training(steps=6, save_at=(3,), fail_at_end=True))
    assert world.wait_for_end(job_id).state is JobState.FAILED

    job = try_again(world, job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert "resumed at 3" in world.log(job_id)
    assert world.attempt(job_id, 2).start_step == 3
    assert world.attempt(job_id, 1).lost_steps == 3
    assert job.report is not None
    assert job.report["model_hash"] == hashlib.sha256(b"weights").hexdigest()


@pytest.mark.long
def test_corrupt_checkpoint_is_passed_over_for_an_older_one(world):
    job_id = world.start(training(steps=6, save_at=(2, 4), fail_at_end=True))
    assert world.wait_for_end(job_id).state is JobState.FAILED
    newest = max(rows(world, Checkpoint), key=lambda c: c.step)
    world.storage.local_path(f"jobs/{job_id}/checkpoints/{newest.id}/state").write_text("9")

    job = try_again(world, job_id)

    assert job.state is JobState.COMPLETED, world.describe(job_id)
    assert "resumed at 2" in world.log(job_id)
    (fallback,) = [e for e in world.events(job_id) if e.type == "job.resume_fallback"]
    assert fallback.data["checkpoint_id"] == newest.id


@pytest.mark.parametrize(
    ("changes", "error_type", "said"),
    [
        ({"training_config": {"base_model": {"model_id": "/nowhere/model"}}}, "MODEL_NOT_FOUND", "STORAGE_ROOTS"),
        ({"data_config": {"sources": [{"path": "missing.jsonl"}]}}, "DATA_NOT_FOUND", "missing.jsonl"),
        ({"data_config": {"sources": [{"path": "/etc/passwd"}]}}, "DATA_NOT_FOUND", "outside"),
        ({"data_config": {"sources": [{"path": "empty.jsonl"}]}}, "DATA_INVALID", "empty"),
        ({"training_config": {"framework": {"custom_script_path": "gone.py"}}}, "INVALID_CONFIG", "gone.py"),
    ],
)
def test_what_cannot_be_prepared_fails_precisely(world, changes, error_type, said):
    (world.directory / "mine" / "empty.jsonl").touch()
    job_id = world.submit("pass\n")
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        spec = json.loads(json.dumps(job.spec))
        for part, change in changes.items():
            for key, value in change.items():
                spec[part][key] = {**spec[part][key], **value} if isinstance(value, dict) else value
        job.spec = spec

    world.take_up(job_id)
    job = world.wait_for_end(job_id)

    assert (job.state, job.error_type) == (JobState.FAILED, error_type)
    assert said in job.error_message


def test_environment_of_the_job_reaches_the_script(world):
    document = {"name": "with-environment"}
    job_id = world.submit("import os\nprint(os.environ['COLOUR'])\n", document=document)
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        training_config = {**job.spec["training_config"], "environment": {"COLOUR": "green"}}
        job.spec = {**job.spec, "training_config": training_config}

    world.take_up(job_id)
    world.wait_for_end(job_id)

    assert world.log(job_id) == ["green"]


def test_what_an_attempt_has_read_is_recorded(world):
    model = world.directory / "mine" / "tiny"
    model.mkdir()
    (model / "config.json").write_text("{}")
    job_id = world.submit("print('hello')\n")
    with world.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "training_config": {**job.spec["training_config"], "base_model": {"model_id": "tiny"}}}

    world.take_up(job_id)
    world.wait_for_end(job_id)

    (event,) = [each for each in world.events(job_id) if each.type == EventType.INPUTS]
    read = ReadInputs.from_json(event.data)
    assert (read.base, event.data["attempt"]) == (ReadModel(sampled_sha256=digest_of([model])), 1)
    assert [(each.index, each.sha256) for each in read.data] == [(0, None)]  # a script's data is not read before it


@pytest.mark.long
def test_log_flood_is_stored_whole_and_does_not_stop_the_job(world):
    script = "print('x' * 100_000)\nfor n in range(100_000): print('line', n, 'y' * 600)\nprint('the end')\n"
    job_id = world.start(script)

    job = world.wait_for_end(job_id, 30)

    assert job.state is JobState.COMPLETED, job.error_message
    lines = world.log(job_id)
    assert lines[0].endswith("[trainyard: line cut at 16 KiB]")
    assert lines[1:-1] == [f"line {n} {'y' * 600}" for n in range(100_000)]
    assert lines[-1] == "the end"


def test_script_that_prints_faster_than_lines_are_stored_waits_and_loses_none(world):
    job_id = world.start("for n in range(150_000): print(n)\n")

    job = world.wait_for_end(job_id, 60)

    assert job.state is JobState.COMPLETED, job.error_message
    assert world.log(job_id) == [str(n) for n in range(150_000)]


def test_first_line_appears_quickly(world):
    began = time.monotonic()
    job_id = world.start(SLEEPS)

    world.wait_for_line(job_id, "ready")

    assert time.monotonic() - began < 4
    world.request(job_id, "cancel")
    world.wait_for_end(job_id)


def test_metrics_that_are_no_numbers_arrive(any_world):
    script = "from trainyard import hooks\nrun = hooks.init()\nrun.log_metrics({'loss': float('nan')}, step=1)\n"
    job_id = any_world.start(script)

    job = any_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, any_world.describe(job_id)
    assert job.latest_metrics == {"loss": "NaN"}
    assert job.report is not None
    assert job.report["final_metrics"] == {"loss": "NaN"}


def test_plain_process_group_trains_and_saves(bare_world):
    job_id = bare_world.start(training(steps=4, save_at=(2,)), ranks=2)

    job = bare_world.wait_for_end(job_id)

    assert job.state is JobState.COMPLETED, bare_world.describe(job_id)
    assert [c.step for c in rows(bare_world, Checkpoint)] == [2]


@pytest.mark.parametrize(("asked", "devices", "ranks"), [(1, 2, 1), (3, 1, 3)])
def test_script_has_as_many_ranks_as_it_asks_for(world, asked, devices, ranks):
    job_id = world.start(
        "import os\nprint('rank', *[os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')])\n",
        ranks=devices,
        distributed={"config": {"num_proc_per_node": asked}},
    )

    assert world.wait_for_end(job_id).state is JobState.COMPLETED, world.describe(job_id)
    assert sorted(world.log(job_id)) == [f"rank {rank} {ranks} {ranks}" for rank in range(ranks)]
