"""Changing a job that has not ended, and having it save now."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Attempt, AuditEntry, Job, Lease
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.scheduling import planner
from tests.builders.factories import make_attempt, make_document, make_job, make_node
from tests.systems.apps import Api

SCRIPT = {
    "training_type": "CUSTOM",
    "framework": {"type": "CUSTOM", "custom_script_path": "/srv/train.py"},
    "hyperparameters": {},
}


def events(api: Api, job_id: str) -> list[dict[str, Any]]:
    return list(api.get(f"/v1/jobs/{job_id}/events")["events"])


def audited(api: Api, action: str) -> list[dict[str, Any]]:
    with api.db.read() as session:
        found = session.scalars(select(AuditEntry).where(AuditEntry.action == action).order_by(AuditEntry.id))
        return [{"target": entry.target, "project": entry.project, "data": entry.data} for entry in found]


def training_job(api: Api, **document: Any) -> str:
    with api.db.write() as session:
        node = make_node(session)
        job = make_job(session, document=make_document(**document))
        make_attempt(session, job, node)
        job.status = JobState.TRAINING
        return str(job.id)


def test_priority_labels_and_preemptible_change_with_event_and_audit(api: Api):
    job_id = api.submit(labels={"team": "a", "old": "1"})
    version = api.get(f"/v1/jobs/{job_id}")["version"]

    wanted = {"priority": 9, "labels": {"team": "b"}, "preemptible": False}
    job = api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json=wanted))

    assert job["scheduling_config"]["priority"] == 9
    assert job["labels"] == {"team": "b"}
    assert job["version"] == version + 1
    changed = {"priority": {"from": 5, "to": 9}, "labels": {"from": {"team": "a", "old": "1"}, "to": {"team": "b"}}}
    assert [(event["type"], event["data"]) for event in events(api, job_id)][1:] == [("job.changed", changed)]
    assert audited(api, "job.patch") == [{"target": job_id, "project": "default", "data": changed}]
    assert [each["job_id"] for each in api.get("/v1/jobs?labels.team=b")["jobs"]] == [job_id]
    assert api.get("/v1/jobs?labels.old=1")["jobs"] == []


def test_change_keeps_what_a_newer_version_has_stored(api: Api):
    job_id = api.submit()
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.spec = {**job.spec, "data_config": {**job.spec["data_config"], "newer": 1}, "newer_section": {"a": None}}
        stored = job.spec

    api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"preemptible": True}))

    with api.db.read() as session:
        spec = session.get_one(Job, job_id).spec
    assert spec == {**stored, "scheduling_config": {**stored["scheduling_config"], "preemptible": True}}


def test_new_priority_reaches_message_line_and_planner(api: Api):
    first, second = api.submit(), api.submit()

    api.call("PATCH", f"/v1/jobs/{second}", json={"priority": 8})

    assert api.dispatcher.admitted[-1] == (second, "default", 8)
    assert [entry["job_id"] for entry in api.get("/v1/queue")["entries"]] == [second, first]
    with api.db.write() as session:
        make_node(session, devices=1)
        for job in session.scalars(select(Job)):
            job.status, job.queued_at = JobState.QUEUED, job.created_at
    placed = planner.plan_once(api.db)
    assert [(attempt.job_id, attempt.priority) for attempt in placed] == [(second, 8)]


def test_new_priority_is_that_of_a_repeated_announcement(api: Api):
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session), claimed=False)
        session.get_one(Attempt, (job.id, 1)).announced_at = job.created_at
        job_id = job.id

    api.call("PATCH", f"/v1/jobs/{job_id}", json={"priority": 10})

    assert [again.priority for again in planner.unannounced(api.db, older_than_seconds=-1)] == [10]


def test_change_to_the_same_values_changes_nothing(api: Api):
    job_id = api.submit(labels={"a": "b"})
    version = api.get(f"/v1/jobs/{job_id}")["version"]

    job = api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"priority": 5, "labels": {"a": "b"}}))

    assert job["version"] == version
    assert len(events(api, job_id)) == 1
    assert len(api.dispatcher.admitted) == 1


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_labels_of_a_job_that_has_ended_change(api: Api, state: JobState):
    with api.db.write() as session:
        job_id = make_job(session, state=state, labels={"team": "a"}).id

    job = api.data(api.call("PATCH", f"/v1/jobs/{job_id}", json={"labels": {"baseline": "yes"}}))

    assert (job["status"], job["labels"]) == (state, {"baseline": "yes"})
    changed = {"labels": {"from": {"team": "a"}, "to": {"baseline": "yes"}}}
    assert [each["data"] for each in events(api, job_id) if each["type"] == "job.changed"] == [changed]
    entries = api.get("/v1/audit?action=job.patch")["entries"]
    assert [(each["target"], each["data"]) for each in entries] == [(job_id, changed)]
    assert [each["job_id"] for each in api.get(f"/v1/jobs?labels.baseline=yes&status={state}")["jobs"]] == [job_id]
    assert api.get("/v1/jobs?labels.team=a")["jobs"] == []


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_job_that_has_ended_is_not_changed(sqlite_api: Api, state: JobState):
    with sqlite_api.db.write() as session:
        job_id = make_job(session, state=state).id

    both = {"priority": 1, "labels": {"a": "b"}}
    problem = sqlite_api.problem(sqlite_api.call("PATCH", f"/v1/jobs/{job_id}", json=both), 409)

    assert problem["code"] == "INVALID_STATE"
    assert problem["message"] == f"job {job_id} is {state}: priority cannot be changed any more, only labels can"
    assert sqlite_api.get(f"/v1/jobs/{job_id}")["labels"] == {}


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, None),
        ({"priority": None}, 400, None),
        ({"priority": 11}, 422, "priority"),
        ({"priority": "5"}, 422, "priority"),
        ({"preemptible": "yes"}, 422, "preemptible"),
        ({"labels": {"a b": "c"}}, 422, "labels.a b"),
        ({"labels": {"a": "x" * 256}}, 422, "labels.a"),
        ({"labels": {str(n): "" for n in range(65)}}, 422, "labels"),
        ({"name": "other"}, 422, "name"),
        ([], 400, None),
    ],
)
def test_bad_changes_are_refused_whole(sqlite_api: Api, body: Any, status: int, field: str | None):
    job_id = sqlite_api.submit()
    before = sqlite_api.get(f"/v1/jobs/{job_id}")

    problem = sqlite_api.problem(sqlite_api.call("PATCH", f"/v1/jobs/{job_id}", json=body), status)

    assert field is None or problem["details"][0]["field"] == field
    after = sqlite_api.get(f"/v1/jobs/{job_id}")
    assert {**after, "estimated_start_at": None} == {**before, "estimated_start_at": None}


def test_job_of_another_project_is_neither_changed_nor_saved_nor_deleted(sqlite_api: Api):
    job_id = sqlite_api.submit()
    stranger, viewer = sqlite_api.make_key(Role.ADMIN, "other"), sqlite_api.make_key(Role.VIEWER)
    path = f"/v1/jobs/{job_id}"
    asked = [("PATCH", path, {"priority": 1}), ("POST", f"{path}/checkpoint", {}), ("DELETE", path, None)]

    for method, where, body in asked:
        assert sqlite_api.call(method, where, key=stranger, json=body).status_code == 404
        assert sqlite_api.call(method, where, key=viewer, json=body).status_code == 403

    assert sqlite_api.get(path)["scheduling_config"]["priority"] == 5


@pytest.mark.parametrize("state", ["TRAINING", "CHECKPOINTING", "EVALUATING"])
def test_checkpoint_now_is_requested_recorded_and_nudged(api: Api, state: str):
    job_id = training_job(api)
    with api.db.write() as session:
        session.get_one(Job, job_id).status = state

    answer = api.call("POST", f"/v1/jobs/{job_id}/checkpoint")

    assert api.data(answer, 202)["status"] == state
    assert api.dispatcher.nudged == [(job_id, "local")]
    assert [event["type"] for event in events(api, job_id)] == ["job.checkpoint_requested"]
    assert [entry["target"] for entry in audited(api, "job.checkpoint")] == [job_id]
    with api.db.read() as session:
        assert session.get_one(Job, job_id).checkpoint_requests == 1


def test_checkpoint_now_under_one_key_is_one_checkpoint(api: Api):
    job_id = training_job(api)
    headers = {"Idempotency-Key": "once"}

    first = api.call("POST", f"/v1/jobs/{job_id}/checkpoint", headers=headers)
    again = api.call("POST", f"/v1/jobs/{job_id}/checkpoint", headers=headers)

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json == again.json
    with api.db.read() as session:
        assert session.get_one(Job, job_id).checkpoint_requests == 1


@pytest.mark.parametrize("state", sorted(set(JobState) - {"TRAINING", "CHECKPOINTING", "EVALUATING"}))
def test_only_a_job_that_trains_saves(sqlite_api: Api, state: JobState):
    with sqlite_api.db.write() as session:
        job_id = make_job(session, state=state).id

    problem = sqlite_api.problem(sqlite_api.call("POST", f"/v1/jobs/{job_id}/checkpoint"), 409)

    assert problem["code"] == "INVALID_STATE"
    assert state in problem["message"]
    assert "TRAINING" in problem["message"]


def test_job_that_is_about_to_stop_is_not_asked_to_save(sqlite_api: Api):
    job_id = training_job(sqlite_api)
    sqlite_api.call("POST", f"/v1/jobs/{job_id}/cancel")

    problem = sqlite_api.problem(sqlite_api.call("POST", f"/v1/jobs/{job_id}/checkpoint"), 409)

    assert "cancel requested" in problem["message"]


@pytest.mark.parametrize(("can", "status"), [(None, 409), (False, 409), (True, 202)])
def test_script_saves_on_request_only_if_it_said_so(sqlite_api: Api, can: bool | None, status: int):  # noqa: FBT001
    job_id = training_job(sqlite_api, training_config=SCRIPT)
    with sqlite_api.db.write() as session:
        session.get_one(Attempt, (job_id, 1)).can_checkpoint = can

    answer = sqlite_api.call("POST", f"/v1/jobs/{job_id}/checkpoint")

    assert answer.status_code == status
    assert status == 202 or "can_checkpoint=True" in sqlite_api.problem(answer, 409)["message"]


@pytest.mark.parametrize(("said", "status"), [((True, None), 202), ((True, False), 409), ((None, None), 409)])
def test_what_a_script_said_counts_in_its_next_attempt_until_it_says_otherwise(
    sqlite_api: Api, said: tuple[bool | None, ...], status: int
):
    job_id = training_job(sqlite_api, training_config=SCRIPT)
    with sqlite_api.db.write() as session:
        session.scalars(select(Lease)).one().released_at = utc_now()
        make_attempt(session, session.get_one(Job, job_id), make_node(session, "node-2"))
        for number, can in enumerate(said, start=1):
            session.get_one(Attempt, (job_id, number)).can_checkpoint = can

    for verb in ("checkpoint", "pause"):
        assert sqlite_api.call("POST", f"/v1/jobs/{job_id}/{verb}").status_code == status


def test_parallel_changes_are_made_one_after_the_other(api: Api):
    job_id = api.submit(labels={"n": "start"})

    def change(number: int) -> int:
        body, headers = {"labels": {"n": str(number)}}, {"Authorization": f"Bearer {api.key}"}
        return api.app.test_client().patch(f"/v1/jobs/{job_id}", json=body, headers=headers).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(change, range(8)))

    assert statuses == [200] * 8
    walk = [event["data"]["labels"] for event in events(api, job_id)[1:]]
    assert [step["from"] for step in walk] == [{"n": "start"}, *(step["to"] for step in walk[:-1])]
    job = api.get(f"/v1/jobs/{job_id}")
    assert (job["labels"], job["version"]) == (walk[-1]["to"], 9)
    assert [each["job_id"] for each in api.get(f"/v1/jobs?labels.n={job['labels']['n']}")["jobs"]] == [job_id]
