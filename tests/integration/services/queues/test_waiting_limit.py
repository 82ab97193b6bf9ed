"""The limit of waiting jobs of a project without one of its own."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app.database.engine import Database
from app.domain.errors import QuotaExceeded
from app.domain.lifecycle.states import JobState
from app.models import Job, Project
from app.services.access import projects
from app.services.queues.waiting_jobs import WaitingLimit
from tests.builders.factories import make_document
from tests.builders.statements import statements
from tests.builders.walks import job_of, make_job
from tests.systems.apps import Api


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def limited(database: Database) -> tuple[Callable[..., str], Clock]:
    """What submits a job of a project of which 3 may wait, and a clock that stands still."""
    clock = Clock()
    limit = WaitingLimit(3, clock)

    def submit(project: str = "default") -> str:
        with database.write() as session:
            limit.refuse_one_too_many(session, project)
        return make_job(database, state=JobState.QUEUED, project=project)

    return submit, clock


def test_as_many_jobs_are_taken_as_may_wait(limited: tuple[Callable[..., str], Clock]) -> None:
    submit, clock = limited

    for _ in range(3):
        submit()
    with pytest.raises(QuotaExceeded, match=r"3 waiting jobs of at most 3 \(TRAINYARD_SCHEDULER_MAX_WAITING_JOBS\)"):
        submit()
    clock.now += 60
    with pytest.raises(QuotaExceeded, match="the project default has 3 waiting jobs"):
        submit()


def test_room_that_becomes_free_is_seen_within_seconds(
    database: Database, limited: tuple[Callable[..., str], Clock]
) -> None:
    submit, clock = limited
    first, *_ = [submit() for _ in range(3)]
    with database.write() as session:
        session.get_one(Job, first).status = JobState.CANCELLED

    with pytest.raises(QuotaExceeded):
        submit()
    clock.now += 2

    assert job_of(database, submit()).state is JobState.QUEUED


def test_other_projects_and_a_quota_of_its_own_are_not_concerned(
    database: Database, limited: tuple[Callable[..., str], Clock]
) -> None:
    submit, _ = limited
    with database.write() as session:
        projects.ensure(session, "other", actor="test")
        projects.ensure(session, "large", actor="test")
        session.get_one(Project, "large").quota = {"max_waiting_jobs": 100}
    for _ in range(3):
        submit()

    waiting = [submit(project) for project in ("other", *["large"] * 5)]

    assert {job_of(database, job_id).state for job_id in waiting} == {JobState.QUEUED}
    with pytest.raises(QuotaExceeded, match="the project default"):
        submit()


def test_jobs_are_not_counted_for_each_submission(database: Database) -> None:
    limit = WaitingLimit(100, Clock())
    make_job(database)
    with database.write() as session:
        limit.refuse_one_too_many(session, "default")

    with statements(database) as seen, database.write() as session:
        limit.refuse_one_too_many(session, "default")

    assert [each for each in seen if "SELECT" in each] == []


def test_submission_beyond_it_is_refused_with_the_way_out(database: Database, tmp_path: Path) -> None:
    with closing(Api(database, tmp_path, TRAINYARD_SCHEDULER_MAX_WAITING_JOBS="2")) as api:
        for _ in range(2):
            api.submit()

        refused = api.post("/v1/jobs", make_document())

        problem = api.problem(refused, 429)
    assert problem["code"] == "QUOTA_EXCEEDED"
    assert "have its quota set max_waiting_jobs" in problem["message"]
    assert int(refused.headers["Retry-After"]) > 0
