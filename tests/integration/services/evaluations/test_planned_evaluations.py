"""Evaluations that a training plans: each is made once, with the checkpoint or the end that it is of."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.outcomes import NewArtifact, Outcome
from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job
from app.services.attempts import checkpoints, work_orders
from app.services.attempts.checkpoints import NewCheckpoint
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions
from app.services.operations.orphan_cleanup import OrphanSweep
from app.storage.object_keys import checkpoint_key
from app.storage.storage import Storage
from tests.builders import factories
from tests.builders.recovering import training
from tests.builders.walks import NO_WAIT, job_of, save

pytestmark = pytest.mark.both_databases

MATCH = {"name": "exact_match", "dataset": {"path": "/srv/data/q.jsonl"}, "num_samples": 4}


def planning(*events: str, keep: int = 3, **training_config: Any) -> dict[str, Any]:
    plans = [{"on": event, "benchmarks": [MATCH], "seed": 7} for event in events]
    return factories.make_document(
        labels={"team": "a"},
        training_config={"evaluations": plans, **training_config},
        output_config={"checkpoint": {"save_total_limit": keep, "metric_for_best_model": "eval_loss"}},
    )


def made(db: Database) -> list[Job]:
    with db.read() as session:
        return list(session.scalars(select(Job).where(Job.training_type == "EVALUATION").order_by(Job.id)))


def complete(db: Database, work: WorkOrder) -> None:
    files = [NewArtifact(path=path, size_bytes=1, sha256="0" * 64) for path in ("config.json", "model.safetensors")]
    work_orders.finish(db, work, Outcome(kind="completed", artifacts=files, end_step=9), NO_WAIT)


def test_each_checkpoint_is_evaluated_once_and_pinned(database: Database) -> None:
    work = training(database, document=planning("checkpoint", keep=1))

    saved = [save(database, work, step).checkpoint_id for step in (2, 4, 6)]

    jobs = made(database)
    assert [(job.evaluated_job_id, job.evaluated_step, job.resume_checkpoint_id) for job in jobs] == [
        (work.job_id, step, checkpoint_id) for step, checkpoint_id in zip((2, 4, 6), saved, strict=True)
    ]
    with database.read() as session:
        assert session.scalars(select(Checkpoint.deleted_at)).all() == [None, None, None]


def test_evaluation_is_a_preemptible_job_of_the_lowest_priority_with_the_trainings_labels(database: Database) -> None:
    work = training(database, document=planning("checkpoint"))
    save(database, work, 2)

    (job,) = made(database)

    document = job.document
    assert (job.status, job.priority, job.name) == (JobState.PENDING, 0, "tiny-sft step 2")
    assert job.labels == {"type": "evaluation", "team": "a"}
    assert (document.scheduling_config.preemptible, document.scheduling_config.on_preemption) == (True, "requeue")
    assert (document.resource_config.gpu_count, document.resource_config.device_type) == (1, "cpu")
    assert document.inference is not None
    assert (document.inference.seed, document.inference.benchmarks[0].num_samples) == (7, 4)
    assert document.inference.planned
    (source,) = document.data_config.sources
    assert (source.path, source.format) == ("/srv/data/q.jsonl", "jsonl")


def test_plan_that_asks_for_devices_gets_them(database: Database) -> None:
    document = planning("checkpoint")
    document["training_config"]["evaluations"][0]["resource_config"] = {"gpu_count": 2}  # of the training's device_type
    save(database, training(database, document=document), 2)

    (job,) = made(database)
    assert job.document.resource_config.to_json() == {"gpu_count": 2, "device_type": "cpu"}


def test_only_checkpoints_that_are_the_best_so_far_are_evaluated_on_best(database: Database) -> None:
    work = training(database, document=planning("best"))

    for step, loss in ((2, 3.0), (4, 4.0), (6, 2.0)):
        save(database, work, step, eval_loss=loss)

    assert [job.evaluated_step for job in made(database)] == [2, 6]


def test_end_is_evaluated_when_the_training_has_completed(database: Database) -> None:
    work = training(database, document=planning("end"))
    save(database, work, 4)
    assert made(database) == []

    complete(database, work)

    (job,) = made(database)
    assert (job.evaluated_job_id, job.evaluated_step, job.resume_checkpoint_id) == (work.job_id, None, None)
    assert job.name == "tiny-sft end"


def test_training_that_fails_has_no_end_to_evaluate(database: Database) -> None:
    work = training(database, document=planning("end"))

    work_orders.finish(database, work, Outcome(kind="failed", cause="DATA_INVALID", message="no"), NO_WAIT)

    assert (job_of(database, work.job_id).status, made(database)) == ("FAILED", [])


@pytest.mark.parametrize(
    ("output", "adapter", "base"),
    [
        ({}, True, "/srv/models/tiny"),
        ({"merge_lora": True}, False, "none"),
        ({"export_format": "merged"}, False, "none"),
    ],
    ids=["adapter", "merge_lora", "merged"],
)
def test_adapter_is_measured_with_its_base_model(
    database: Database, output: dict[str, Any], *, adapter: bool, base: str
) -> None:
    document = planning("end", training_type="LORA")
    document["output_config"] |= output
    work = training(database, document=document)

    complete(database, work)

    (job,) = made(database)
    assert job.document.inference is not None
    assert job.document.inference.model.adapter is adapter
    assert job.document.training_config.base_model.model_id == base


def test_retried_record_of_a_checkpoint_makes_no_second_evaluation(database: Database) -> None:
    work = training(database, document=planning("checkpoint"))
    new = NewCheckpoint(
        checkpoint_id=checkpoints.new_checkpoint_id(),
        step=2,
        epoch=1.0,
        world_size=1,
        threads_per_rank=1,
        size_bytes=1,
        sha256="0" * 64,
        uri="file:///x",
    )

    for _ in range(3):
        checkpoints.record(database, job_id=work.job_id, attempt=work.attempt, fence=work.fence, actor="test", new=new)

    assert len(made(database)) == 1


def end(db: Database, evaluation_id: str) -> None:
    with db.write() as session:
        job = transitions.load_for_change(session, evaluation_id)
        transitions.transition(session, job, JobState.CANCELLED, actor="test")


def kept_steps(db: Database) -> list[int]:
    with db.read() as session:
        return sorted(session.scalars(select(Checkpoint.step).where(Checkpoint.deleted_at.is_(None))))


def test_checkpoints_of_an_ended_training_are_retired_when_their_evaluations_have_ended(database: Database) -> None:
    work = training(database, document=planning("checkpoint", keep=1))
    for step in (2, 4, 6):
        save(database, work, step)
    complete(database, work)
    first, second, _ = made(database)
    assert checkpoints.retire_released(database, work.job_id) == 0  # none has ended

    end(database, first.id)
    assert (checkpoints.retire_released(database, work.job_id), kept_steps(database)) == (1, [4, 6])

    end(database, second.id)
    assert (checkpoints.retire_released(database, work.job_id), kept_steps(database)) == (1, [6])
    assert checkpoints.retire_released(database, work.job_id) == 0


def test_checkpoint_stays_within_the_limit(database: Database) -> None:
    work = training(database, document=planning("checkpoint", keep=2))
    for step in (2, 4):
        save(database, work, step)
    for job in made(database):
        end(database, job.id)

    assert (checkpoints.retire_released(database, work.job_id), kept_steps(database)) == (0, [2, 4])


def test_clean_up_retires_what_evaluations_that_never_ran_have_pinned(database: Database, tmp_path: Path) -> None:
    work = training(database, document=planning("checkpoint", keep=1))
    for step in (2, 4):
        save(database, work, step)
    complete(database, work)
    storage_url = f"file://{tmp_path}"
    Storage(storage_url).write(f"{checkpoint_key(work.job_id, made(database)[1].resume_checkpoint_id or '')}/a", b"1")
    end(database, made(database)[0].id)

    OrphanSweep(database, storage_url).run_round()

    assert kept_steps(database) == [4]
