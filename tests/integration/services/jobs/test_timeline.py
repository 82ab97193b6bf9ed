"""Events and trained steps of a job in one list."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.models import JobEvent, Metric
from app.services.jobs import timeline
from app.services.jobs.timeline import Entry, Key
from tests.builders.factories import make_job
from tests.systems.apps import Api

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
# Steps 1 to 6 were measured in the first minutes; after a resume at 20 steps 3 and 4 were measured again.
STEPS = {1: 1, 2: 2, 3: 21, 4: 22, 5: 5, 6: 6}
EVENTS = {1: 0, 2: 4, 3: 20, 4: 23}  # number → minute
NEWEST = ["event 4", "event 3", "step 6", "step 5", "step 4", "step 3", "event 2", "step 2", "step 1", "event 1"]


def add_history(session: Session) -> str:
    job_id = make_job(session).id
    for seq, minute in EVENTS.items():
        session.add(JobEvent(id=new_id("evt"), job_id=job_id, seq=seq, at=at(minute), type="warning"))
    for step, minute in STEPS.items():
        row = {"job_id": job_id, "step": step, "at": at(minute), "attempt": 1, "special": None}
        session.add(Metric(**row, name="loss", value=1.0, seq=step))
    session.flush()
    return job_id


def at(minute: int) -> datetime:
    return BEGAN + timedelta(minutes=minute)


def key_of(session: Session, job_id: str, entry: Entry) -> Key | None:
    if isinstance(entry, JobEvent):
        return timeline.key_of_event(session, job_id, entry.id)
    return timeline.key_of_step(session, job_id, "loss", entry.step)


def words(entry: Entry) -> str:
    return f"event {entry.seq}" if isinstance(entry, JobEvent) else f"step {entry.step}"


@pytest.mark.parametrize("limit", [1, 2, 3, 20])
def test_steps_measured_again_have_one_place_on_all_pages(sqlite_api: Api, limit: int) -> None:
    found: list[str] = []
    with sqlite_api.db.write() as session:
        job_id, after = add_history(session), None
        while entries := timeline.newest(session, job_id, ["loss"], limit=limit, after=after):
            found += map(words, entries)
            after = key_of(session, job_id, entries[-1])
            assert len(found) <= len(NEWEST)
    assert found == NEWEST


def test_step_that_was_not_measured_has_no_place(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        job_id = add_history(session)
        assert timeline.key_of_step(session, job_id, "loss", 7) is None
        assert timeline.key_of_step(session, job_id, "loss", 0) is None
