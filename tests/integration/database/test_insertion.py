"""Rows that are written at once are those that a session would have written."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, StatementError

from app.models import AuditEntry, Base, Job, JobEvent, JobLabel
from app.models.base import utc_now
from app.models.insertion import insert_now
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases

TEXTS = ["", "plain", "'; DROP TABLE job; --", '"\\u0041" \\', "%s %(a)s $1 :a {}", "ä € 🙂 \u202e\n\t\x7f", "null"]
DOCUMENT = {
    "nothing": None,
    "yes": True,
    "small": 5e-324,
    "large": 1.7976931348623157e308,
    "third": 1 / 3,
    "whole": 2**53 + 1,
    "list": [[], {}, [None, False, 0, -1.5]],
    "Ключ": {"'": {'"': "\\"}},
    "texts": TEXTS,
}
AT = datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-7)))


def job(number: int, **columns: Any) -> Job:
    given = {"project": "default", "name": f"job {number}", "spec": DOCUMENT, "training_type": "SFT", **columns}
    return Job(id=f"job-{number}", framework="HF_TRAINER", queue="default", priority=5, **given)


def columns_of(row: Base) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in row.__table__.columns}


def test_values_of_every_kind_arrive_as_by_a_session(api: Api) -> None:
    values: list[dict[str, Any]] = [
        {
            "created_at": AT,
            "updated_at": AT,
            "queued_at": None,
            "progress": 1 / 3,
            "tokens": 2**62,
            "eta_seconds": 1e-9,
        },
        {"created_at": AT, "updated_at": AT, "pause_saves": False, "report": {"a": [1]}, "node_names": ["a", "b"]},
        *({"created_at": AT, "updated_at": AT, "name": text, "labels": {"text": text}} for text in TEXTS),
    ]

    with api.db.write() as session:
        for number, columns in enumerate(values):
            insert_now(session, (job(number, **columns),))
            session.add(job(1000 + number, **{"name": f"job {number}", **columns}))

    with api.db.read() as session:
        for number in range(len(values)):
            at_once, one_by_one = (columns_of(session.get_one(Job, f"job-{n}")) for n in (number, 1000 + number))
            assert {**at_once, "id": ""} == {**one_by_one, "id": ""}
        assert session.get_one(Job, "job-0").created_at == datetime(2026, 3, 1, 6, 59, 59, 999000, tzinfo=UTC)


def test_rows_of_one_table_that_fill_other_columns_are_refused(api: Api) -> None:
    with pytest.raises(ValueError, match="rows of Job"), api.db.write() as session:
        insert_now(session, (job(1), job(2, max_runtime_seconds=60)))


def test_document_with_a_time_in_it_is_refused_by_both_databases(api: Api) -> None:
    with pytest.raises((TypeError, StatementError)), api.db.write() as session:
        insert_now(session, (job(1, labels={"at": AT}),))


def test_rows_of_one_table_are_all_written(api: Api) -> None:
    labels = [
        JobLabel(
            job_id="job-1",
            key=key,
            value=key,
            project="default",
            training_type="SFT",
            queue="default",
            framework="HF_TRAINER",
            created_at=AT,
            ended_as=None,
        )
        for key in "abc"
    ]

    with api.db.write() as session:
        insert_now(session, (job(1), *labels))

    with api.db.read() as session:
        assert session.scalars(select(JobLabel.key).order_by(JobLabel.key)).all() == ["a", "b", "c"]


def test_rows_are_written_at_once_with_what_they_do_not_say(api: Api) -> None:
    job = Job(
        id="job-1",
        project="default",
        name="x",
        spec={},
        training_type="SFT",
        framework="HF_TRAINER",
        queue="default",
        priority=5,
    )
    event = JobEvent(id="evt-1", job_id="job-1", seq=1, type="submitted")

    with api.db.write() as session:
        insert_now(session, (job, event))
        read = session.get_one(Job, "job-1")

    assert (read.status, read.version, read.node_names) == ("PENDING", 1, [])
    assert utc_now() - read.created_at < timedelta(minutes=1)


def test_rows_that_violate_a_constraint_are_refused_and_leave_nothing(api: Api) -> None:
    orphan = JobEvent(id="evt-1", job_id="job-unknown", seq=1, type="submitted")
    line = AuditEntry(id="audit-1", actor="test", action="job.submit", project=None)

    with pytest.raises(IntegrityError), api.db.write() as session:
        insert_now(session, (line, orphan))

    with api.db.write() as session:
        assert session.get(AuditEntry, "audit-1") is None
        insert_now(session, (line,))
    with api.db.read() as session:
        assert session.get(AuditEntry, "audit-1") is not None
