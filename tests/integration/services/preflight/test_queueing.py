"""Jobs that are queued together, on both databases: none holds up the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from app.database.engine import Database
from app.domain.errors import StaleJob
from app.domain.lifecycle.states import JobState
from app.domain.spec.locations.paths import ReadingRules
from app.services.lifecycle import transitions
from app.services.preflight import admission, queueing
from app.services.preflight.queueing import Gathered
from tests.builders.inspecting import document, reading_rules
from tests.builders.walks import job_of, make_job

pytestmark = pytest.mark.both_databases


@pytest.fixture
def rules(tmp_path: Path) -> ReadingRules:
    return reading_rules(tmp_path)


def states(db: Database, job_ids: Sequence[str]) -> list[JobState]:
    return [job_of(db, job_id).state for job_id in job_ids]


def failing(monkeypatch: pytest.MonkeyPatch, broken: str, error: Exception) -> list[list[str]]:
    """Transactions fail that the job is in; the list fills with the jobs of each transaction."""
    tried: list[list[str]] = []
    original = queueing._queue_together

    def queue(db: Database, job_ids: Sequence[str]) -> list[str]:
        tried.append(list(job_ids))
        if broken in job_ids:
            raise error
        return original(db, job_ids)

    monkeypatch.setattr(queueing, "_queue_together", queue)
    return tried


def test_chunk_that_fails_holds_up_no_other(
    database: Database, rules: ReadingRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "TOGETHER", 2)
    monkeypatch.setattr(queueing, "GATHER_SECONDS", 60.0)
    jobs = sorted(make_job(database) for _ in range(4))
    unparsed = make_job(database, document={**document(rules), "data_config": []})
    tried = failing(monkeypatch, jobs[1], OperationalError("UPDATE", {}, Exception("lock timeout")))
    failures: dict[str, str] = {}

    def failed(job_ids: Sequence[str], error: Exception) -> None:
        failures.update(dict.fromkeys(job_ids, type(error).__name__))

    assert admission.admit_waiting(database, rules, failed=failed) == 2

    assert tried == [jobs[:2], jobs[2:]]
    assert states(database, jobs) == [JobState.PENDING] * 2 + [JobState.QUEUED] * 2
    assert failures == {**dict.fromkeys(jobs[:2], "OperationalError"), unparsed: "TypeError"}


@pytest.mark.parametrize(("error", "failures"), [(StaleJob("changed"), 0), (RuntimeError("of its webhook"), 1)])
def test_job_that_can_not_be_queued_leaves_those_beside_it(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception, failures: int
) -> None:
    jobs, failed = sorted(make_job(database) for _ in range(3)), list[Any]()
    failing(monkeypatch, jobs[1], error)
    gathered = Gathered(database, lambda *failure: failed.append(failure))
    for job_id in jobs:
        gathered.add(job_id)

    assert gathered.queue() == [jobs[0], jobs[2]]

    assert failed == [([jobs[1]], error)] * failures
    assert states(database, jobs) == [JobState.QUEUED, JobState.PENDING, JobState.QUEUED]


def test_job_that_is_cancelled_after_its_check_is_not_queued(
    database: Database, rules: ReadingRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "GATHER_SECONDS", 60.0)
    first, cancelled = sorted(make_job(database) for _ in range(2))
    original = admission._settled

    def settled(db: Database, job: Any, *others: Any) -> bool | None:
        found = original(db, job, *others)
        if job.id == cancelled:
            with db.write() as session:
                locked = transitions.load_for_change(session, cancelled)
                transitions.transition(session, locked, JobState.CANCELLED, actor="alice")
        return found

    monkeypatch.setattr(admission, "_settled", settled)

    assert list(admission.admit_each(database, [first, cancelled], rules)) == [first]
    assert states(database, [first, cancelled]) == [JobState.QUEUED, JobState.CANCELLED]


def test_jobs_are_queued_before_other_files_are_looked_for(
    database: Database, rules: ReadingRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "GATHER_SECONDS", 60.0)
    first, second = sorted(make_job(database) for _ in range(2))
    slow = make_job(database, document=document(rules))
    seen: list[list[JobState]] = []

    def look(*_: Any) -> None:
        seen.append(states(database, [first, second]))

    monkeypatch.setattr(admission, "missing_input", look)
    admission.admit_waiting(database, rules)

    assert seen == [[JobState.PENDING] * 2, [JobState.PENDING] * 2, [JobState.QUEUED] * 2]
    assert job_of(database, slow).state is JobState.QUEUED


def test_jobs_wait_for_others_only_a_moment_and_only_so_many(
    database: Database, rules: ReadingRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    gathered = Gathered(database, lambda *_: None, lambda: now[0])
    was_due = []
    for number in range(queueing.TOGETHER):
        was_due.append(gathered.is_due)
        gathered.add(f"job-{number}")
    assert (any(was_due), gathered.is_due) == (False, True), "so many"
    assert (gathered.queue(), gathered.is_due) == ([], False)
    was_due.clear()
    for later in (0.0, 0.04, 0.02):
        now[0] += later
        gathered.add(f"job-{later}")
        was_due.append(gathered.is_due)
    assert was_due == [False, False, True]

    monkeypatch.setattr(queueing, "GATHER_SECONDS", 0.0)
    first, second = sorted(make_job(database) for _ in range(2))
    admitted = admission.admit_each(database, [first, second], rules)
    assert next(admitted) == first
    assert states(database, [first, second]) == [JobState.QUEUED, JobState.PENDING]
    assert list(admitted) == [second]
