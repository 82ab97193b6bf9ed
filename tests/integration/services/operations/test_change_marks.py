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
from app.services.operations.change_marks import MOST_TOPICS, ChangeMarks, Mark, topics_of
from app.services.requests.short_cache import ShortCache
from app.services.telemetry.sparklines import sampled
from app.storage.storage import Storage
from tests.builders.factories import make_attempt, make_job, make_node, make_project

pytestmark = pytest.mark.both_databases

EVERYTHING = Caller(key_id="key-1", role=Role.SUPER_ADMIN, project=None)
OF_DEFAULT = Caller(key_id="key-2", role=Role.VIEWER, project="default")


@pytest.fixture
def mark(database: Database, tmp_path: Path) -> Callable[..., Mark]:
    """The mark of a topic, always computed anew."""
    moments = iter(range(0, 10**6, 10))
    marks = ChangeMarks(ShortCache(lambda: float(next(moments))))
    storage = Storage(f"file://{tmp_path}")

    def of(topic: str, caller: Caller = EVERYTHING) -> Mark:
        return marks.of(database, storage, caller, topics_of([topic]))[0]

    return of


def change(db: Database, action: Callable[[Session], object]) -> None:
    with db.write() as session:
        action(session)


def test_progress_of_a_job_changes_its_marks_and_that_of_its_project(database: Database, mark: Callable[..., Mark]):
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


def test_the_end_of_a_job_changes_the_mark_of_all_jobs(database: Database, mark: Callable[..., Mark]):
    with database.write() as session:
        make_job(session, state=JobState.TRAINING)
    before = mark("jobs"), mark("jobs", OF_DEFAULT)

    change(database, lambda session: session.execute(update(Job).values(status=JobState.FAILED)))

    assert mark("jobs").text != before[0].text
    assert mark("jobs", OF_DEFAULT).text != before[1].text


def test_pausing_a_queue_and_a_new_waiting_job_change_the_mark_of_the_queue(
    database: Database, mark: Callable[..., Mark]
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
    database: Database, mark: Callable[..., Mark]
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


def test_a_sweep_of_another_project_looks_like_none(database: Database, mark: Callable[..., Mark]):
    sweep_id = "sweep-00000000-0000-0000-0000-000000000001"
    with database.write() as session:
        make_project(session, "other")
        session.add(Sweep(id=sweep_id, project="other", created_by="k", submits_as="k", name="s", spec={}, base={}))
    before = mark(f"sweep:{sweep_id}")

    change(database, lambda session: session.execute(update(Sweep).values(seq=1)))

    assert mark(f"sweep:{sweep_id}").text != before.text
    assert mark(f"sweep:{sweep_id}", OF_DEFAULT) == Mark()


def test_too_many_topics_are_refused():
    with pytest.raises(InvalidRequest, match="at most 64"):
        topics_of(["jobs"] * (MOST_TOPICS + 1))


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
        found = sampled(session, job_id, "loss", last_step=1005, points=11)
        nothing = sampled(session, job_id, "lr", last_step=1005, points=11)
        at_start = sampled(session, job_id, "loss", last_step=0, points=11)

    assert found[:3] == [100.0, 200.0, 300.0]
    assert len(found) == 10
    assert math.isnan(found[-1])
    assert nothing == at_start == []
