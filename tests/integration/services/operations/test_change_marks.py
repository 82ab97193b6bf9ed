"""Marks of topics differ when something changed; curves as small as a word are sampled by index."""

import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import InvalidRequest
from app.domain.lifecycle.states import JobState
from app.models import Job, Metric, Node, Queue, Sweep
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.operations.change_marks import MOST_TOPICS, ChangeMark, ChangeMarks, topics_of
from app.services.requests.short_cache import ShortCache
from app.services.telemetry.sparklines import Series, sampled
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_job, make_node, make_project
from tests.builders.statements import statements

pytestmark = pytest.mark.both_databases

EVERYTHING = Caller(key_id="key-1", role=Role.SUPER_ADMIN, project=None)
OF_DEFAULT = Caller(key_id="key-2", role=Role.VIEWER, project="default")


@pytest.fixture
def mark(database: Database, tmp_path: Path) -> Callable[..., ChangeMark]:
    """The mark of a topic, always computed anew."""
    moments = iter(range(0, 10**6, 10))
    marks = ChangeMarks(ShortCache(lambda: float(next(moments))))
    storage = Storage(f"file://{tmp_path}")

    def of(topic: str, caller: Caller = EVERYTHING) -> ChangeMark:
        return marks.of(database, storage, caller, topics_of([topic]))[0]

    return of


def change(db: Database, action: Callable[[Session], object]) -> None:
    with db.write() as session:
        action(session)


def test_progress_of_a_job_changes_its_marks_and_that_of_its_project(
    database: Database, mark: Callable[..., ChangeMark]
):
    with database.write() as session:
        job_id = make_job(session, state=JobState.TRAINING).id
        make_project(session, "other")
        make_job(session, project="other", state=JobState.TRAINING)
    topics = ["jobs", f"job:{job_id}", f"metrics:{job_id}"]
    before = [mark(topic, OF_DEFAULT) for topic in topics]

    change(database, lambda session: session.execute(update(Job).where(Job.project == "other").values(version=8)))
    unchanged = [mark(topic, OF_DEFAULT) for topic in topics]
    change(database, lambda session: session.execute(update(Job).values(metric_seq=3, updated_at=utc_now())))
    after = [mark(topic, OF_DEFAULT) for topic in topics]

    assert unchanged == before
    assert all(new.text != old.text for new, old in zip(after, before, strict=True))
    assert all(each.at is not None and utc_now() - each.at < timedelta(minutes=1) for each in after)


def test_the_end_of_a_job_changes_the_mark_of_all_jobs(database: Database, mark: Callable[..., ChangeMark]):
    with database.write() as session:
        make_job(session, state=JobState.TRAINING)
    before = mark("jobs"), mark("jobs", OF_DEFAULT)

    change(database, lambda session: session.execute(update(Job).values(status=JobState.FAILED)))

    assert mark("jobs").text != before[0].text
    assert mark("jobs", OF_DEFAULT).text != before[1].text


def test_pausing_a_queue_and_a_new_waiting_job_change_the_mark_of_the_queue(
    database: Database, mark: Callable[..., ChangeMark]
):
    with database.write() as session:
        make_job(session)
    seen = [mark("queue").text]
    change(database, lambda session: session.execute(update(Queue).values(is_paused=True)))
    seen.append(mark("queue").text)
    change(database, make_job)
    seen.append(mark("queue").text)

    assert len(set(seen)) == 3


def test_states_labels_and_use_of_nodes_change_their_mark_and_heartbeats_do_not(
    database: Database, mark: Callable[..., ChangeMark]
):
    with database.write() as session:
        node = make_node(session)
        job = make_job(session)
        name = node.name
    seen = [mark("nodes").text]
    change(database, lambda session: session.execute(update(Node).values(heartbeat=9, last_seen_at=utc_now())))
    assert mark("nodes").text == seen[0]

    change(database, lambda session: make_attempt(session, session.get_one(Job, job.id), session.get_one(Node, name)))
    seen.append(mark("nodes").text)
    change(database, lambda session: session.execute(update(Node).values(state="draining")))
    seen.append(mark("nodes").text)
    change(database, lambda session: session.execute(update(Node).values(admin_labels=["fast"])))
    seen.append(mark("nodes").text)

    assert len(set(seen)) == 4


def test_a_sweep_of_another_project_looks_like_none(database: Database, mark: Callable[..., ChangeMark]):
    sweep_id = "sweep-00000000-0000-0000-0000-000000000001"
    with database.write() as session:
        make_project(session, "other")
        session.add(Sweep(id=sweep_id, project="other", created_by="k", submits_as="k", name="s", spec={}, base={}))
    before = mark(f"sweep:{sweep_id}")

    change(database, lambda session: session.execute(update(Sweep).values(seq=1)))

    assert mark(f"sweep:{sweep_id}").text != before.text
    assert mark(f"sweep:{sweep_id}", OF_DEFAULT) == ChangeMark()


def test_too_many_topics_and_logs_are_refused():
    with pytest.raises(InvalidRequest, match="at most 32"):
        topics_of(["jobs"] * (MOST_TOPICS + 1))
    with pytest.raises(InvalidRequest, match="names 3 logs; at most 2"):
        topics_of([f"log:job-00000000-0000-0000-0000-00000000000{number}" for number in range(3)])


def test_all_jobs_and_sweeps_of_a_page_are_read_by_one_query_each(database: Database, tmp_path: Path):
    with database.write() as session:
        ids = [make_job(session, state=JobState.TRAINING).id for _ in range(10)]
    unknown = "job-00000000-0000-0000-0000-000000000000"
    sweeps = [f"sweep:sweep-00000000-0000-0000-0000-00000000000{number}" for number in range(4)]
    topics = [f"{kind}:{of}" for kind in ("job", "metrics") for of in [*ids, unknown]] + sweeps
    moment = 0.0
    marks, storage = ChangeMarks(ShortCache(lambda: moment)), Storage(f"file://{tmp_path}")

    with statements(database) as first:
        found = marks.of(database, storage, EVERYTHING, topics_of(topics))
    with statements(database) as again:
        assert marks.of(database, storage, EVERYTHING, topics_of(topics[:15])) == found[:15]
    moment = 1.0
    with statements(database) as later:
        assert marks.of(database, storage, EVERYTHING, topics_of(topics)) == found

    assert [mark == ChangeMark() for mark in found] == [False] * 10 + [True] + [False] * 10 + [True] + [True] * 4
    assert (len(first), len(again), len(later)) == (2, 0, 2)


def test_a_curve_is_sampled_over_all_steps_with_its_first_and_last_value(database: Database):
    with database.write() as session:
        job_id = make_job(session).id
        for step in range(10, 1001, 10):
            session.add(
                Metric(
                    job_id=job_id,
                    name="loss",
                    step=step,
                    at=utc_now(),
                    value=None if step == 1000 else float(step),
                    special="NaN" if step == 1000 else None,
                    attempt=1,
                    seq=step,
                )
            )

    with database.read() as session:
        asked = [("loss", 1005), ("lr", 1005), ("loss", 0)]
        wanted = [Series(job_id=job_id, name=name, last_step=last_step) for name, last_step in asked]
        found, nothing, at_start = sampled(session, wanted, points=11)

    assert found[:3] == [100.0, 200.0, 300.0]
    assert len(found) == 10
    assert math.isnan(found[-1])
    assert nothing == at_start == []
