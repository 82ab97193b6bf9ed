"""What vocabularies of other systems ask of services: the newest change, rows that still exist, numbers of projects."""

from app.database.engine import Database
from app.models import JobEvent, Project
from app.security.permissions import Caller, Role
from app.services.access import projects
from app.services.jobs import history, listing, lookup
from app.services.requests import existing_rows
from tests.builders.factories import make_job, make_project

EVERYTHING = Caller(key_id="key-1", role=Role.SUPER_ADMIN, project=None)
OURS = Caller(key_id="key-2", role=Role.ADMIN, project="default")


def test_newest_change_counts_the_callers_jobs_and_differs_after_each_change(database: Database) -> None:
    with database.write() as session:
        make_project(session, "other")
        job = make_job(session)
        make_job(session, project="other")
    with database.read() as session:
        before, of_all = listing.newest_change(session, OURS), listing.newest_change(session, EVERYTHING)
    with database.write() as session:
        session.get_one(type(job), job.id).version += 1
    with database.read() as session:
        after = listing.newest_change(session, OURS)

    assert (before[0], of_all[0], after[0]) == (1, 2, 1)
    assert before != after


def test_existing_and_deleted_rows_are_distinguished_for_any_number_of_ids(database: Database, monkeypatch) -> None:
    monkeypatch.setattr(existing_rows, "_MOST_PARAMETERS", 2)
    with database.write() as session:
        ids = {make_job(session).id for _ in range(5)}
        events = {event.id for event in session.query(JobEvent)}
    with database.read() as session:
        assert listing.existing(session, [*ids, "job-gone"]) == ids
        assert history.existing_events(session, [*events, "evt-gone"]) == events
        assert listing.existing(session, []) == set()


def test_job_is_found_as_it_is_now_until_it_is_deleted(database: Database) -> None:
    with database.write() as session:
        job_id = make_job(session, name="mine").id
    with database.read() as session:
        found = lookup.current(session, job_id)

        assert found is not None
        assert found.name == "mine"
        assert lookup.current(session, "job-gone") is None


def test_project_is_known_by_its_number(database: Database) -> None:
    with database.write() as session:
        make_project(session, "other")
    with database.read() as session:
        assert projects.number_of(session, "other") == session.get_one(Project, "other").number
