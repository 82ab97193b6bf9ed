"""A plan that can't become a job costs a training neither its checkpoint nor its end."""

from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DataError, OperationalError

from app.database.engine import Database
from app.domain.errors import BadSpec
from app.domain.evaluations import planned
from app.domain.lifecycle.outcomes import Outcome
from app.domain.spec.model import JobDocument, PlannedEvaluation
from app.models import Checkpoint, Job, JobEvent
from app.services.attempts import work_orders
from tests.builders import factories
from tests.builders.recovering import training
from tests.builders.walks import NO_WAIT, job_of, save

pytestmark = pytest.mark.both_databases

ERRORS = [BadSpec("no such place", field="x"), DataError("INSERT", {}, ValueError("NUL")), KeyError("x")]


def planning(*events: str) -> dict[str, Any]:
    names = ("exact_match", "f1", "bleu")
    plans = [
        {"on": event, "benchmarks": [{"name": name, "dataset": {"path": "/srv/data/q.jsonl"}}]}
        for name, event in zip(names, events, strict=False)
    ]
    return factories.make_document(training_config={"evaluations": plans})


def break_the_first(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    whole = planned.evaluation

    def broken(plan: PlannedEvaluation, *args: Any, **kwargs: Any) -> JobDocument:
        if plan.benchmarks[0].name == "exact_match":
            raise error
        return whole(plan, *args, **kwargs)

    monkeypatch.setattr(planned, "evaluation", broken)


def measured(db: Database) -> list[str]:
    with db.read() as session:
        jobs = session.scalars(select(Job).where(Job.training_type == "EVALUATION"))
        return [each.name for job in jobs if (section := job.document.inference) for each in section.benchmarks]


def refusals(db: Database, job_id: str) -> list[JobEvent]:
    of_it = (JobEvent.job_id == job_id, JobEvent.reason == "EVALUATION_NOT_PLANNED")
    with db.read() as session:
        return list(session.scalars(select(JobEvent).where(*of_it)))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_checkpoint_is_recorded_and_the_other_plans_are_made(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    work = training(database, document=planning("checkpoint", "checkpoint"))
    break_the_first(monkeypatch, error)

    saved = save(database, work, 2).checkpoint_id

    with database.read() as session:
        assert session.get_one(Checkpoint, saved).step == 2
    assert job_of(database, work.job_id).latest_checkpoint_id == saved
    assert measured(database) == ["f1"]
    (event,) = refusals(database, work.job_id)
    assert "step 2" in event.message
    assert event.data["checkpoint_id"] == saved


def test_row_that_the_database_refuses_undoes_nothing_else(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    work = training(database, document=planning("checkpoint"))
    monkeypatch.setattr("app.services.attempts.planned_evaluations.new_id", lambda _: work.job_id)  # is taken

    saved = save(database, work, 2).checkpoint_id

    assert job_of(database, work.job_id).latest_checkpoint_id == saved
    assert (measured(database), len(refusals(database, work.job_id))) == ([], 1)


def test_training_is_completed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    work = training(database, document=planning("end", "end"))
    break_the_first(monkeypatch, KeyError("x"))

    work_orders.finish(database, work, Outcome(kind="completed", end_step=9), NO_WAIT)

    assert (job_of(database, work.job_id).status, measured(database)) == ("COMPLETED", ["f1"])
    assert len(refusals(database, work.job_id)) == 1


def test_database_that_is_away_is_tried_again_as_a_whole(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    work = training(database, document=planning("checkpoint"))
    break_the_first(monkeypatch, OperationalError("INSERT", {}, ValueError("gone")))

    with pytest.raises(OperationalError):
        save(database, work, 2)

    assert job_of(database, work.job_id).latest_checkpoint_id is None
