"""Queues over HTTP: made, paused, limited, and what submitting to them says then."""

from datetime import timedelta

import pytest
from sqlalchemy import event

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.queues import service_order
from app.services.scheduling import planner
from tests.builders.factories import make_attempt, make_document, make_job, make_node, make_queue
from tests.systems.apps import Api

PAUSED = "the queue default is paused: it takes jobs and starts none until it is resumed"


def test_a_queue_is_made_read_and_listed(api: Api) -> None:
    made = api.post("/v1/queues", {"name": "night", "max_running_jobs": 2})

    queue = api.data(made, 201)
    assert made.headers["Location"] == "/v1/queues/night"
    assert {key: value for key, value in queue.items() if key != "created_at"} == {
        "name": "night",
        "paused": False,
        "max_running_jobs": 2,
        "max_waiting_jobs": None,
        "weight": None,
        "waiting": 0,
        "running": 0,
    }
    assert api.get("/v1/queues/night") == queue
    assert [each["name"] for each in api.get("/v1/queues")["queues"]] == ["default", "night"]
    assert api.submit(scheduling_config={"queue": "night"})


def test_making_a_queue_again_is_a_conflict_unless_it_is_the_same_request(api: Api) -> None:
    first = api.post("/v1/queues", {"name": "night"}, headers={"Idempotency-Key": "k"})
    again = api.post("/v1/queues", {"name": "night"}, headers={"Idempotency-Key": "k"})
    other = api.post("/v1/queues", {"name": "night"})

    assert api.data(again, 201) == api.data(first, 201)
    assert again.headers["Location"] == "/v1/queues/night"
    assert "PATCH /v1/queues/night" in api.problem(other, 409)["message"]


def test_a_paused_queue_takes_jobs_and_says_why_they_wait(api: Api) -> None:
    with api.db.write() as session:
        make_node(session)
        job_id = make_job(session).id

    paused = api.data(api.call("PATCH", "/v1/queues/default", json={"paused": True}))

    assert (paused["paused"], paused["waiting"]) == (True, 1)
    assert api.submit()
    assert planner.plan_once(api.db) == []
    assert api.get(f"/v1/jobs/{job_id}")["pending_reason"] == PAUSED
    reasons = {entry["job_id"]: entry["pending_reason"] for entry in api.get("/v1/queue")["entries"]}
    assert reasons[job_id] == PAUSED
    api.data(api.call("PATCH", "/v1/queues/default", json={"paused": False}))
    assert [dispatched.job_id for dispatched in planner.plan_once(api.db)] == [job_id]


def test_positions_count_jobs_that_can_start(api: Api) -> None:
    with api.db.write() as session:
        checked, first, second = [
            make_job(session, state=state, created_at=utc_now()).id
            for state in (JobState.PENDING, JobState.QUEUED, JobState.QUEUED)
        ]
        late = make_job(session, state=JobState.PENDING, created_at=utc_now()).id

    places = {entry["job_id"]: entry["position"] for entry in api.get("/v1/queue")["entries"]}

    assert places == {checked: 1, first: 1, second: 2, late: 3}
    assert {job_id: api.get(f"/v1/jobs/{job_id}")["queue_position"] for job_id in places} == places
    plan = api.data(api.post("/v1/jobs?dry_run=true", make_document()))["plan"]
    assert plan["queue_position"] == 3
    moved = api.data(api.call("PATCH", f"/v1/jobs/{late}", json={"priority": 9}))
    assert moved["queue_position"] == 1


def test_a_limit_is_set_kept_and_taken_away(api: Api) -> None:
    limits = {"max_running_jobs": 3, "max_waiting_jobs": 0}

    api.data(api.call("PATCH", "/v1/queues/default", json=limits))
    kept = api.data(api.call("PATCH", "/v1/queues/default", json={"paused": True}))
    taken = api.data(api.call("PATCH", "/v1/queues/default", json={"max_running_jobs": None}))

    assert limits.items() <= kept.items()
    assert (taken["max_running_jobs"], taken["max_waiting_jobs"], taken["paused"]) == (None, 0, True)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs?dry_run=true"])
def test_a_full_queue_refuses_with_a_time_to_try_again(api: Api, path: str) -> None:
    api.data(api.call("PATCH", "/v1/queues/default", json={"max_waiting_jobs": 1}))
    api.submit()

    refused = api.post(path, make_document())

    error = api.problem(refused, 429)
    assert error["code"] == "QUOTA_EXCEEDED"
    assert "the queue default holds 1 waiting jobs of at most 1" in error["message"]
    assert refused.headers["Retry-After"] == str(error["retry_after"])
    assert api.get("/v1/jobs")["total_count"] == 1


def test_a_full_queue_does_not_affect_another_one(api: Api) -> None:
    with api.db.write() as session:
        make_queue(session, "night").max_waiting_jobs = 0

    assert api.submit()
    assert api.problem(api.post("/v1/jobs", make_document(scheduling_config={"queue": "night"})), 429)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"weight": 0}, 422, "weight"),
        ({"weight": "3"}, 422, "weight"),
        ({"paused": "yes"}, 422, "paused"),
        ({"paused": None}, 422, "paused"),
        ({"max_running_jobs": 0}, 422, "max_running_jobs"),
        ({"max_running_jobs": True}, 422, "max_running_jobs"),
        ({"max_waiting_jobs": -1}, 422, "max_waiting_jobs"),
        ({"max_waiting_jobs": 1_000_001}, 422, "max_waiting_jobs"),
        ({"pasued": True}, 422, "pasued"),
        ({"name": "other"}, 422, "name"),
    ],
)
def test_a_bad_change_names_the_field_and_changes_nothing(
    sqlite_api: Api, body: dict[str, object], status: int, field: str
) -> None:
    before = sqlite_api.get("/v1/queues/default")

    error = sqlite_api.problem(sqlite_api.call("PATCH", "/v1/queues/default", json=body), status)

    assert [detail["field"] for detail in error["details"]] == [field]
    assert sqlite_api.get("/v1/queues/default") == before


@pytest.mark.parametrize("name", ["", "Night", "a:b", "-a", "a-", "a" * 64, "a/b", "n\u00e4cht"])
def test_a_bad_name_is_refused(sqlite_api: Api, name: str) -> None:
    error = sqlite_api.problem(sqlite_api.post("/v1/queues", {"name": name}), 422)

    assert "lower-case letters, digits and dashes" in error["message"]


def test_an_unknown_queue_is_missing(sqlite_api: Api) -> None:
    for answer in (
        sqlite_api.call("GET", "/v1/queues/nigth"),
        sqlite_api.call("PATCH", "/v1/queues/nigth", json={"paused": True}),
    ):
        assert "no queue 'nigth'" in sqlite_api.problem(answer, 404)["message"]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.USER, Role.ADMIN])
def test_only_cluster_administrators_change_queues(sqlite_api: Api, role: Role) -> None:
    key = sqlite_api.make_key(role)

    sqlite_api.problem(sqlite_api.call("PATCH", "/v1/queues/default", key=key, json={"paused": True}), 403)
    sqlite_api.problem(sqlite_api.post("/v1/queues", {"name": "night"}, key=key), 403)
    assert sqlite_api.get("/v1/queues/default", key=key)["paused"] is False


@pytest.mark.both_databases
def test_counts_are_of_the_jobs_that_the_key_sees(api: Api) -> None:
    with api.db.write() as session:
        make_job(session, project="other")
        make_job(session, project="other", state=JobState.TRAINING)
        make_job(session)
    key = api.make_key(Role.VIEWER, "other")

    mine, everybodys = api.get("/v1/queues/default", key=key), api.get("/v1/queues/default")

    assert (mine["waiting"], mine["running"]) == (1, 1)
    assert (everybodys["waiting"], everybodys["running"]) == (2, 1)


def two_projects(api: Api) -> dict[str, str]:
    """Jobs by name: research waits longest, but uses a device already, so that support is served first."""
    with api.db.write() as session:
        node = make_node(session, devices=4)
        make_attempt(session, make_job(session, project="research", state=JobState.QUEUED), node)
        made = [
            (name, make_job(session, project=project, queued_at=utc_now() - timedelta(minutes=minutes)).id)
            for name, project, minutes in (
                ("r1", "research", 40),
                ("r2", "research", 30),
                ("s1", "support", 20),
                ("s2", "support", 10),
            )
        ]
    return {job_id: name for name, job_id in made}


def test_the_queue_is_listed_in_order_of_service(api: Api) -> None:
    names = two_projects(api)

    entries = api.get("/v1/queue")["entries"]
    latest_first = api.get("/v1/queue?order_by=-priority")["entries"]

    assert [(names[e["job_id"]], e["position"], e["position_in_project"]) for e in entries] == [
        ("s1", 1, 1),
        ("r1", 2, 1),
        ("s2", 3, 2),
        ("r2", 4, 2),
    ]
    assert [names[e["job_id"]] for e in latest_first] == ["r2", "s2", "r1", "s1"]


def test_a_filter_by_queue_keeps_the_places_in_the_whole_line(api: Api) -> None:
    names = two_projects(api)
    with api.db.write() as session:
        make_queue(session, "night")
        night = make_job(session, queue="night", project="research").id

    (entry,) = api.get("/v1/queue?queue=night")["entries"]

    assert (entry["job_id"], entry["position"]) == (night, len(names) + 1)


def test_pages_of_the_queue_go_on_behind_a_job_that_has_started(api: Api) -> None:
    names = two_projects(api)
    first = api.get("/v1/queue?page_size=2")
    with api.db.write() as session:
        session.get_one(Job, first["entries"][1]["job_id"]).status = JobState.CANCELLED

    second = api.get(f"/v1/queue?page_size=2&page_token={first['next_page_token']}")

    assert [names[e["job_id"]] for page in (first, second) for e in page["entries"]] == ["s1", "r1", "r2", "s2"]
    assert second["next_page_token"] == ""


def test_a_line_that_is_too_long_is_listed_by_age(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    names = two_projects(api)
    monkeypatch.setattr(service_order, "MOST_ORDERED", 3)

    first = api.get("/v1/queue?page_size=3")
    second = api.get(f"/v1/queue?page_size=3&page_token={first['next_page_token']}")

    entries = [*first["entries"], *second["entries"]]
    assert [(names[e["job_id"]], e["position"]) for e in entries] == [("r1", 1), ("r2", 2), ("s1", 3), ("s2", 4)]


def test_page_of_the_queue_loads_only_its_own_jobs(api: Api) -> None:
    two_projects(api)
    loaded: list[Job] = []
    note = lambda job, _context: loaded.append(job)  # noqa: E731
    event.listen(Job, "load", note)
    try:
        (entry,) = api.get("/v1/queue?page_size=1")["entries"]
    finally:
        event.remove(Job, "load", note)

    assert [job.id for job in loaded] == [entry["job_id"]]


def test_page_of_a_line_that_stays_as_it_is_reads_no_documents(api: Api) -> None:
    names = two_projects(api)
    asked: list[str] = []
    note = lambda _connection, _cursor, statement, *_: asked.append(statement)  # noqa: E731
    api.get("/v1/queue?page_size=1")
    event.listen(api.db.engine, "before_cursor_execute", note)
    try:
        api.get("/v1/queue?page_size=1")
        unchanged = [each for each in asked if "AS spec" in each]
        last = next(job_id for job_id, name in names.items() if name == "r2")
        api.data(api.call("PATCH", f"/v1/jobs/{last}", json={"priority": 10}))
        asked.clear()
        entries = api.get("/v1/queue")["entries"]
    finally:
        event.remove(api.db.engine, "before_cursor_execute", note)

    assert unchanged == []
    assert [each for each in asked if "AS spec" in each] != []
    assert [names[each["job_id"]] for each in entries].index("r2") < [names[each["job_id"]] for each in entries].index(
        "r1"
    )


def test_malformed_document_comes_last_in_the_queue_and_hides_no_other_job(api: Api) -> None:
    names = two_projects(api)
    with api.db.write() as session:
        broken = make_job(session, project="research", priority=10)
        broken.spec = {**broken.spec, "resource_config": {"gpu_count": 1, "gpu_type": 7}}
        names[broken.id] = "broken"

    entries = api.get("/v1/queue")["entries"]

    assert [names[each["job_id"]] for each in entries] == ["s1", "r1", "s2", "r2", "broken"]
