"""Which checkpoint a job starts from and a retried attempt resumes from: named, newest, best."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.states import JobState
from app.models import Attempt, Checkpoint, Job, JobEvent
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.attempts import checkpoints, work_orders
from app.services.attempts.work_orders import WorkOrder
from tests.builders.factories import make_checkpoint, make_document
from tests.builders.walks import NO_WAIT, job_of, make_job, make_node, save, start_attempt
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

FIELD = "training_config.resume_from_checkpoint"


def from_best(**settings: Any) -> dict[str, Any]:
    return make_document(output_config={"checkpoint": {"resume_from_best": True, **settings}})


def fail(db: Database, work: WorkOrder, end_step: int) -> None:
    outcome = Outcome(kind="failed", cause="RANK_KILLED", end_step=end_step)
    assert work_orders.finish(db, work, outcome, NO_WAIT).state is JobState.QUEUED


def steps(work: WorkOrder) -> list[int]:
    return [candidate.step for candidate in work.resume]


def parent_with_checkpoints(
    api: Api, *, best: int | None = 10, training_type: str = "SFT"
) -> tuple[str, dict[int, str]]:
    """A submitted job with checkpoints at steps 10 and 20; their ids by step."""
    parent = api.submit(training_config={"training_type": training_type})
    with api.db.write() as session:
        job = session.get_one(Job, parent)
        made = {step: make_checkpoint(session, job, step=step, is_best=step == best).id for step in (10, 20)}
        job.latest_checkpoint_id = made[20]
        job.best_checkpoint_id = made[best] if best is not None else None
    return parent, made


def refusal(
    api: Api, wanted: str, *, key: str | None = None, training: Mapping[str, Any] = MappingProxyType({}), **changes: Any
) -> str:
    document = make_document(training_config={"resume_from_checkpoint": wanted, **training}, **changes)
    problem = api.problem(api.post("/v1/jobs", document, key=key), 400)
    assert problem["details"][0]["field"] == FIELD
    return str(problem["message"])


@pytest.mark.parametrize(("which", "step"), [("", 20), (":latest", 20), (":best", 10)])
def test_a_job_is_resumed_from_what_is_its_newest_or_best_now(api: Api, which: str, step: int):
    parent, made = parent_with_checkpoints(api)

    child = api.submit(training_config={"resume_from_checkpoint": parent + which})

    assert job_of(api.db, child).resume_checkpoint_id == made[step]
    assert job_of(api.db, child).spec["training_config"]["resume_from_checkpoint"] == parent + which


@pytest.mark.parametrize(("which", "step"), [("", 10), (":latest", 20)])
def test_a_new_job_that_resumes_from_the_best_means_the_best_of_the_job_that_it_names(api: Api, which: str, step: int):
    parent, made = parent_with_checkpoints(api)
    best = from_best(metric_for_best_model="loss")["output_config"]

    child = api.submit(training_config={"resume_from_checkpoint": parent + which}, output_config=best)
    named = api.submit(training_config={"resume_from_checkpoint": made[20]}, output_config=best)

    assert job_of(api.db, child).resume_checkpoint_id == made[step]
    assert job_of(api.db, named).resume_checkpoint_id == made[20]


def test_a_best_checkpoint_that_the_named_job_has_not_is_refused(api: Api):
    parent, _ = parent_with_checkpoints(api, best=None)
    best = from_best(metric_for_best_model="loss")["output_config"]

    assert f"say {parent}:latest" in refusal(api, parent, output_config=best)


def test_what_a_job_does_not_have_is_refused_with_a_remedy(api: Api):
    parent, _ = parent_with_checkpoints(api, best=None)
    empty = api.submit()

    assert f"say {parent}:latest" in refusal(api, f"{parent}:best")
    assert "has no checkpoint" in refusal(api, empty)
    assert "has no checkpoint" in refusal(api, f"{empty}:best")


def test_the_same_rules_hold_as_for_a_named_checkpoint(api: Api):
    parent, _ = parent_with_checkpoints(api)
    stranger = api.make_key(Role.USER, "other")

    assert refusal(api, f"{parent}:best", key=stranger) == f"the project other has no job {parent}"
    assert "data_config" in refusal(api, f"{parent}:best", data_config={"batch_size": 2})


@pytest.mark.parametrize(
    ("training_type", "hyperparameters"),
    [("SFT", {"optim": "sgd"}), ("LORA", {"lora_r": "4"}), ("LORA", {"lora_target_modules": "q_proj"})],
)
def test_what_a_checkpoint_holds_must_be_the_same(api: Api, training_type: str, hyperparameters: dict[str, str]):
    parent, _ = parent_with_checkpoints(api, training_type=training_type)
    training = {"training_type": training_type, "hyperparameters": hyperparameters}

    assert "another optimizer or adapter" in refusal(api, parent, training=training)


def test_what_the_next_job_may_set_anew_is_taken(api: Api):
    parent, made = parent_with_checkpoints(api)
    anew = {"learning_rate": "1e-6", "weight_decay": "0.1", "max_steps": "40"}

    child = api.submit(training_config={"resume_from_checkpoint": parent, "hyperparameters": anew})

    assert job_of(api.db, child).resume_checkpoint_id == made[20]


def test_a_checkpoint_that_was_just_retired_is_not_resumed_from(api: Api):
    parent, made = parent_with_checkpoints(api)
    with api.db.write() as session:
        session.get_one(Checkpoint, made[20]).deleted_at = utc_now()

    assert "has no checkpoint" in refusal(api, parent)


@pytest.mark.parametrize(("document", "order"), [(from_best(), [1, 3, 2]), (make_document(), [3, 2, 1])])
def test_retry_resumes_from_the_newest_unless_the_best_is_requested(database: Database, document, order):
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED, document=document)
    work = start_attempt(database, job_id)
    for step, loss in ((1, 0.5), (2, 0.9), (3, 0.8)):
        save(database, work, step, eval_loss=loss)
    fail(database, work, 3)

    assert steps(start_attempt(database, job_id)) == order


def test_history_says_that_the_best_was_chosen(database: Database):
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED, document=from_best())
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING, start_step=0)
    save(database, work, 1, eval_loss=0.5)
    save(database, work, 2, eval_loss=0.9)
    fail(database, work, 2)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING, start_step=1)

    with database.read() as session:
        said = session.scalars(
            select(JobEvent.message).where(JobEvent.job_id == job_id, JobEvent.type == "attempt.started")
        ).all()
    assert [bool(re.search("from step 1, its best checkpoint$", message)) for message in said] == [False, True]


def test_what_follows_the_best_is_newer_than_what_was_left_behind(database: Database):
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED, document=from_best(save_total_limit=2))
    work = start_attempt(database, job_id)
    save(database, work, 10, eval_loss=0.5)
    save(database, work, 20, eval_loss=0.9)
    fail(database, work, 20)
    work = start_attempt(database, job_id)
    work_orders.enter_phase(database, work, JobState.TRAINING, start_step=10)

    recorded = save(database, work, 15, eval_loss=0.7)
    fail(database, work, 17)

    assert [uri for _, uri in recorded.prune] == [f"jobs/{job_id}/checkpoints/20"]
    assert job_of(database, job_id).latest_checkpoint_id == recorded.checkpoint_id
    with database.read() as session:
        assert [c.step for c in checkpoints.list_for(session, job_id)] == [10, 15]
        assert session.get_one(Attempt, (job_id, 2)).lost_steps == 2


def test_attempt_that_never_trained_has_lost_nothing(database: Database):
    make_node(database)
    job_id = make_job(database, state=JobState.QUEUED)
    work = start_attempt(database, job_id)
    save(database, work, 10)
    fail(database, work, 10)

    fail(database, start_attempt(database, job_id), 0)

    with database.read() as session:
        assert session.get_one(Attempt, (job_id, 2)).lost_steps == 0


def test_the_highest_is_best_and_kept_where_greater_is_better(database: Database):
    make_node(database)
    settings = {"save_total_limit": 2, "metric_for_best_model": "accuracy", "greater_is_better": True}
    job_id = make_job(database, state=JobState.QUEUED, document=make_document(output_config={"checkpoint": settings}))
    work = start_attempt(database, job_id)

    for step, accuracy in ((1, 0.7), (2, 0.9), (3, 0.1), (4, 0.2)):
        save(database, work, step, eval_accuracy=accuracy)

    with database.read() as session:
        assert [(c.step, c.is_best) for c in checkpoints.list_for(session, job_id)] == [(2, True), (4, False)]
