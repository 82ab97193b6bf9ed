"""Start estimates of waiting jobs: a time where it can be computed, otherwise null."""

import re
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, update

from app.database.engine import Database
from app.domain.lifecycle.states import JobState
from app.domain.scheduling.resources import Request
from app.domain.scheduling.start_estimates import LOOK_AHEAD
from app.models import Job, Project, Queue
from app.models.base import utc_now
from app.services.jobs import details
from app.services.requests.short_cache import ShortCache
from app.services.scheduling.start_estimates import PASS_SECONDS, REMEMBERED_SECONDS, Estimates
from tests.builders.factories import make_attempt, make_document, make_job, make_node, make_queue
from tests.builders.statements import statements
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def running(api: Api, *, eta_seconds: float | None, name: str = "local") -> str:
    """A job that holds the only device of a node."""
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session, name, devices=1))
        job.status, job.eta_seconds = JobState.TRAINING, eta_seconds
        return str(job.id)


def estimated_wait(api: Api, **changes: object) -> float | None:
    seconds: float | None = api.data(api.post("/v1/jobs", make_document(**changes)), 201)["estimated_wait_seconds"]
    return seconds


def seconds_until(start: str) -> float:
    return (datetime.fromisoformat(start) - utc_now()).total_seconds()


def test_free_node_means_about_a_second(api: Api):
    with api.db.write() as session:
        make_node(session, devices=2)

    assert estimated_wait(api) == PASS_SECONDS


def test_busy_node_means_the_time_that_its_job_says(api: Api):
    running(api, eta_seconds=120.0)

    assert estimated_wait(api) == 120.0

    job = api.get("/v1/jobs")["jobs"][0]
    assert job["queue_position"] == 1
    assert 110 < seconds_until(job["estimated_start_at"]) <= 120
    assert api.get(f"/v1/jobs/{job['job_id']}")["estimated_start_at"] is not None


def test_nothing_is_made_up(api: Api):
    assert estimated_wait(api) is None  # no node yet
    running(api, eta_seconds=None)
    assert estimated_wait(api) is None  # the running job reports no ETA
    assert [job["estimated_start_at"] for job in api.get("/v1/jobs?status=PENDING")["jobs"]] == [None, None]


def test_no_estimate_behind_a_job_of_unknown_length(api: Api):
    running(api, eta_seconds=60.0)
    api.submit()

    assert estimated_wait(api) is None
    assert estimated_wait(api, scheduling_config={"priority": 9}) == 60.0


def test_paused_queue_has_no_estimate_and_takes_nothing_from_others(api: Api):
    with api.db.write() as session:
        make_node(session, devices=1)
        make_queue(session, "later").is_paused = True
    api.submit(scheduling_config={"queue": "later", "priority": 9})

    assert estimated_wait(api, scheduling_config={"queue": "later"}) is None
    assert estimated_wait(api) == PASS_SECONDS


def test_queue_with_room_for_one_tells_only_the_first(api: Api):
    with api.db.write() as session:
        make_node(session, devices=4)
        session.get_one(Queue, "default").max_running_jobs = 1

    assert [estimated_wait(api), estimated_wait(api)] == [PASS_SECONDS, None]


def test_backoff_counts(api: Api):
    with api.db.write() as session:
        make_node(session, devices=1)
        make_job(session, not_before_at=utc_now() + timedelta(hours=1))

    assert seconds_until(api.get("/v1/jobs")["jobs"][0]["estimated_start_at"]) > 3500
    assert estimated_wait(api) == PASS_SECONDS  # the planner skips jobs in backoff
    assert seconds_until(api.get("/v1/jobs")["jobs"][0]["estimated_start_at"]) < 60


def test_no_estimate_far_back_in_a_long_queue(api: Api):
    with api.db.write() as session:
        make_node(session, devices=100)
        for _ in range(LOOK_AHEAD):
            make_job(session)

    assert estimated_wait(api) is None

    starts = {job["queue_position"]: job["estimated_start_at"] for job in api.get("/v1/jobs?page_size=100")["jobs"]}
    assert [place for place, start in sorted(starts.items()) if start is None] == [LOOK_AHEAD + 1]


def test_equal_jobs_one_after_the_other_are_estimated_together_where_no_limit_is_in_between(database: Database):
    estimates, one = Estimates(), Request(device_count=1, device_kind="cpu")

    def several(count: int, queue: str = "default") -> list[float | None]:
        with database.read() as session:
            return estimates.of_several(
                session, one, count, queue=queue, priority=5, project="default", preemptible=False
            )

    with database.write() as session:
        make_node(session, devices=2)
        make_queue(session, "narrow").max_running_jobs = 5

    assert several(3) == [PASS_SECONDS, PASS_SECONDS, None]
    assert len(several(2 * LOOK_AHEAD)) == LOOK_AHEAD
    assert several(3, "narrow") == [PASS_SECONDS]
    with database.write() as session:
        make_job(session)
        session.execute(update(Project).values(quota={"max_running_jobs": 5}))
    assert several(3) == [PASS_SECONDS], "before the next one its quota is asked again"


def test_a_long_line_is_remembered_for_a_moment_and_for_its_priority_only(database: Database):
    now = [10.0]
    estimates = Estimates(clock=lambda: now[0])
    with database.write() as session:
        make_node(session, devices=100)
        waiting = [make_job(session) for _ in range(LOOK_AHEAD)]

    def estimate_at(priority: int) -> float | None:
        with database.read() as session:
            return estimates.of_new(
                session,
                Request(device_count=1, device_kind="cpu"),
                queue="default",
                priority=priority,
                project="default",
                preemptible=False,
            )

    assert estimate_at(waiting[0].priority) is None
    with database.write() as session:
        session.execute(update(Job).values(status=JobState.CANCELLED))
    assert estimate_at(waiting[0].priority) is None
    assert estimate_at(10) == PASS_SECONDS
    now[0] += REMEMBERED_SECONDS + 0.1
    assert estimate_at(waiting[0].priority) == PASS_SECONDS


@pytest.mark.parametrize(("priority", "place"), [(9, 1), (5, 2), (1, 3)])
def test_changed_job_gets_its_new_position_and_start(api: Api, priority: int, place: int):
    running(api, eta_seconds=90.0, name="first")
    with api.db.write() as session:
        make_node(session, devices=3)
    with api.db.write() as session:
        first, job_id, last = [make_job(session).id for _ in range(3)]

    changed = api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"priority": priority}))
    shown = api.get(f"/v1/jobs/{job_id}")

    assert changed["queue_position"] == shown["queue_position"] == place
    assert seconds_until(changed["estimated_start_at"]) == pytest.approx(
        seconds_until(shown["estimated_start_at"]), abs=5
    )
    assert {api.get(f"/v1/jobs/{other}")["queue_position"] for other in (first, last)} == {1, 2, 3} - {place}


def test_changed_job_far_back_gets_only_its_position(api: Api):
    with api.db.write() as session:
        make_node(session, devices=100)
        for _ in range(LOOK_AHEAD):
            make_job(session)
    job_id = api.submit()

    changed = [api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"priority": priority})) for priority in (4, 6)]

    assert [(job["queue_position"], job["estimated_start_at"] is None) for job in changed] == [(21, True), (1, False)]


def test_change_and_cancel_do_not_look_at_the_line_in_their_transaction(api: Api):
    running(api, eta_seconds=90.0)
    job_id, other = api.submit(), api.submit()

    with statements(api.db, of_writers=True) as sent:
        api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"priority": 9}))
        api.data(api.post(f"/v1/jobs/{other}/cancel"))

    assert [statement for statement in sent if re.search(r"FROM (node|device|reservation)|row_number", statement)] == []
    of_jobs = [statement for statement in sent if "FROM job" in statement and "job.status" in statement]
    assert [statement for statement in of_jobs if "job.id = " not in statement] == []


def test_job_that_runs_or_has_ended_has_no_start_to_come(api: Api):
    job_id = running(api, eta_seconds=10.0)
    with api.db.write() as session:
        make_job(session, state=JobState.COMPLETED)
        assert session.scalars(select(Job.id)).all()

    assert {job["estimated_start_at"] for job in api.get("/v1/jobs")["jobs"]} == {None}
    assert api.get(f"/v1/jobs/{job_id}")["queue_position"] is None


def test_what_viewers_share_is_what_the_api_says(api: Api, db: Database):
    running(api, eta_seconds=60.0)
    made = [api.submit(name=f"job-{n}", scheduling_config={"priority": n % 3}) for n in range(4)]
    shared = ShortCache()

    with db.read() as session:
        for job_id in made:
            job = session.get_one(Job, job_id)
            said, viewed = details.details(session, job), details.viewed(session, job, shared)
            assert viewed.queue_position == said.queue_position
            assert (viewed.estimated_start_at is None) == (said.estimated_start_at is None)
    assert viewed.queue_position is not None


def test_viewers_of_many_jobs_ask_for_the_front_of_the_line_once(api: Api, db: Database):
    running(api, eta_seconds=60.0)
    made, shared = [api.submit(name=f"job-{n}") for n in range(3)], ShortCache()
    with db.read() as session:
        jobs = [session.get_one(Job, job_id) for job_id in made]
        details.viewed(session, jobs[0], shared)

        with statements(db) as asked:
            details.viewed(session, jobs[1], shared)

    assert not [each for each in asked if "reservation" in each]


def test_readers_of_the_api_share_estimates_which_miss_no_new_job(api: Api, db: Database):
    running(api, eta_seconds=60.0)
    first = api.submit()
    said = api.get(f"/v1/jobs/{first}")["estimated_start_at"]

    with statements(db) as asked:
        assert api.get(f"/v1/jobs/{first}")["estimated_start_at"] == said
        assert api.get("/v1/jobs")["jobs"][0]["estimated_start_at"] == said
    urgent = api.submit(scheduling_config={"priority": 9})

    assert not [each for each in asked if "reservation" in each]
    assert api.get(f"/v1/jobs/{urgent}")["estimated_start_at"]
