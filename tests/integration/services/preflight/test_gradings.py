"""Python graders that clients try are run by coordinators, and answered once."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from app.database.engine import Database
from app.models import Inspection
from app.services.preflight import gradings, inspections
from app.services.preflight.gradings import GradingTask
from app.services.preflight.inspection_queue import AbandonedInspections, InspectionQueue
from app.services.preflight.inspections import MOST_TRIES
from app.services.requests.wakeups import Dispatcher
from config.settings import load_settings
from tasks.background.preflight import PreflightRunner
from tasks.celery_app import Runtime
from tests.builders.factories import make_project
from tests.systems.system import wait_for

SOURCE = "def grade(sample, item):\n    return item['worth']"


class Asking:
    """A request that waits for its answer in a thread."""

    def __init__(self, db: Database, sample: dict[str, Any], seconds: float = 60.0) -> None:
        self.report: dict[str, Any] | None = None
        arguments = (db, "default", SOURCE, sample, {"worth": 0.25}, seconds)
        self._thread = threading.Thread(target=self._ask, args=arguments)
        self._thread.start()

    def _ask(self, *arguments: Any) -> None:
        self.report = gradings.report_of(*arguments)

    def answer(self) -> dict[str, Any] | None:
        self._thread.join()
        return self.report


@pytest.fixture
def db(database: Database) -> Database:
    with database.write() as session:
        make_project(session)
    return database


def rows(db: Database) -> int:
    with db.read() as session:
        return session.scalar(select(func.count()).select_from(Inspection)) or 0


def claimed(db: Database, queue: InspectionQueue) -> GradingTask:
    wait_for(lambda: bool(queue.free([], 0.0)), seconds=20, what="a run is requested")
    task = gradings.claim(db, queue.free([], 0.0)[0], queue.me)
    assert task is not None
    return task


def test_coordinator_runs_graders_even_where_preflights_are_off(db: Database, tmp_path: Path) -> None:
    settings = load_settings(
        {
            "TRAINYARD_DATA_DIR": str(tmp_path / "data"),
            "TRAINYARD_PREFLIGHT_ENABLED": "false",
            "TRAINYARD_SCHEDULER_POLL_SECONDS": "0.1",
        }
    )
    runner = PreflightRunner(Runtime(settings, db, Dispatcher(settings)), "coordinator")
    asking = Asking(db, {"output_text": "a"})
    wait_for(lambda: rows(db) == 1, seconds=20, what="a run is requested")
    runner.start()
    try:
        found = asking.answer()
    finally:
        runner.stop()
        runner.join()

    assert found == {"reward": 0.25}
    assert rows(db) == 0


def test_whatever_a_sample_holds_reaches_the_grader(db: Database) -> None:
    queue = InspectionQueue(db, without_models=True)
    sample = {"output_json": {"a": "\0", "b": float("inf")}, "output_text": '{"a": "\\u0000", "b": 1e999}'}
    asking = Asking(db, sample)

    task = claimed(db, queue)
    gradings.conclude(db, task, {"runtime_error": "a\0b"})

    assert json.loads(task.question) == {"source": SOURCE, "sample": sample, "item": {"worth": 0.25}}
    assert asking.answer() == {"runtime_error": "a\ufffdb"}


@pytest.mark.parametrize(
    ("report", "answer"),
    [
        ({"reward": float("nan")}, {"runtime_error": "the grader has no result"}),
        ({"unavailable": "no sandbox"}, {"unavailable": "no sandbox"}),
        ({"left_out": ["it ended without a result"]}, {"runtime_error": "it ended without a result"}),
    ],
)
def test_only_what_can_be_stored_is_answered(db: Database, report: dict[str, Any], answer: dict[str, Any]) -> None:
    asking = Asking(db, {})

    gradings.conclude(db, claimed(db, InspectionQueue(db)), report)

    assert asking.answer() == answer


def test_run_whose_coordinators_end_is_given_up(db: Database) -> None:
    asking = Asking(db, {})
    queue = InspectionQueue(db)
    for _ in range(MOST_TRIES):
        assert claimed(db, queue).report is None

    last = claimed(db, queue)
    assert last.report is not None
    gradings.conclude(db, last, last.report)

    assert asking.answer() == {"unavailable": "the coordinators that ran the grader ended 3 times"}


def test_run_without_an_answer_leaves_nothing(db: Database) -> None:
    queue = InspectionQueue(db)
    asking = Asking(db, {}, seconds=1.0)
    task = claimed(db, queue)

    assert asking.answer() == {"unavailable": "no coordinator has answered within 1 s"}
    assert rows(db) == 0
    assert not inspections.renew(db, task)
    assert not gradings.conclude(db, task, {"reward": 1.0})


@pytest.mark.long
def test_graders_are_no_preflights(db: Database) -> None:
    asking = Asking(db, {}, seconds=2.0)
    task = claimed(db, InspectionQueue(db))
    with db.read() as session:
        ahead = inspections.waiting_before(session, "")

    assert ahead == 0
    assert AbandonedInspections(db).left(1000.0) == []
    assert inspections.open_ones(db, of_models=True) == []
    assert [each.id for each in inspections.open_ones(db, of_models=False)] == [task.id]
    asking.answer()
