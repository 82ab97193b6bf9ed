"""What an evaluation has measured becomes points of the job that made its model."""

import math
from typing import Any

import pytest
from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.states import JobState
from app.models import Job, Metric
from app.services.telemetry import evaluated_points, stored_metrics
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.shards import batch_document

pytestmark = pytest.mark.both_databases

VALUES = {"bench/f1/f1": 0.5, "loss": 3.0, "bench/" + "x" * 200: 1.0}


def start(db: Database, *, step: int | None, planned: bool = True, **columns: Any) -> tuple[str, str]:
    """(id of a completed training with 9 steps, id of the running evaluation of it)."""
    with db.write() as session:
        trained = make_job(session, state=JobState.COMPLETED, current_step=9, attempt=2, latest_metrics={"loss": 2.0})
        job = make_job(
            session,
            document=batch_document(benchmarks=1, inference={"planned": planned}),
            **{"evaluated_job_id": trained.id, "evaluated_step": step, **columns},
        )
        make_attempt(session, job, make_node(session))
        return trained.id, job.id


def points(db: Database, job_id: str) -> list[tuple[str, int, float | None, str | None, int]]:
    with db.read() as session:
        rows = session.scalars(select(Metric).where(Metric.job_id == job_id).order_by(Metric.name, Metric.step))
        return [(row.name, row.step, row.value, row.special, row.seq) for row in rows]


def latest(db: Database, job_id: str) -> dict[str, Any]:
    with db.read() as session:
        return session.get_one(Job, job_id).latest_metrics


def store(db: Database, evaluation_id: str, values: dict[str, float], fence: int = 1) -> None:
    evaluated_points.store(db, evaluation_id=evaluation_id, fence=fence, values=values)


@pytest.mark.parametrize(("step", "at"), [(4, 4), (None, 9)], ids=["checkpoint", "result"])
def test_benchmarks_are_points_at_the_step_of_the_model(database: Database, step: int | None, at: int) -> None:
    trained, evaluation = start(database, step=step)

    for _ in range(2):  # a repeated write replaces them
        store(database, evaluation, VALUES)

    assert points(database, trained) == [("bench/f1/f1", at, 0.5, None, 2)]
    assert latest(database, trained) == {"loss": 2.0, "bench/f1/f1": 0.5}


def test_older_checkpoint_that_is_measured_later_does_not_replace_the_latest_value(database: Database) -> None:
    trained, evaluation = start(database, step=6)
    store(database, evaluation, VALUES)
    with database.write() as session:
        session.get_one(Job, evaluation).evaluated_step = 2

    store(database, evaluation, {"bench/f1/f1": 0.1})

    assert latest(database, trained)["bench/f1/f1"] == 0.5
    with database.read() as session:
        (series,) = stored_metrics.series(session, trained).values()
    assert [(point.step, point.value) for point in series] == [(2, 0.1), (6, 0.5)]


def test_value_that_is_not_finite_is_named(database: Database) -> None:
    trained, evaluation = start(database, step=4)

    store(database, evaluation, {"bench/perplexity/perplexity": math.inf})

    assert points(database, trained) == [("bench/perplexity/perplexity", 4, None, "Infinity", 1)]


def test_stale_attempt_writes_nothing(database: Database) -> None:
    trained, evaluation = start(database, step=4)

    with pytest.raises(LeaseLost):
        store(database, evaluation, VALUES, fence=7)

    assert points(database, trained) == []


def test_evaluation_that_was_asked_for_leaves_the_curves_of_the_training_alone(database: Database) -> None:
    trained, evaluation = start(database, step=4, planned=False)

    store(database, evaluation, VALUES)

    assert (points(database, trained), latest(database, trained)) == ([], {"loss": 2.0})


def test_model_of_a_place_has_no_curves(database: Database) -> None:
    trained, evaluation = start(database, step=None, evaluated_job_id=None)

    store(database, evaluation, VALUES)

    assert points(database, trained) == []
