"""NVIDIA Run:ai's trainings over HTTP, over the same jobs as the native API's."""

import re
from datetime import timedelta
from math import isnan
from typing import Any

import jwt
import pytest
from werkzeug.test import TestResponse

from app.compat.runai import tokens
from app.domain.lifecycle.states import JobState
from app.models import Job, Metric
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.access import api_keys
from tests.builders import walks
from tests.builders.factories import make_job, make_node
from tests.systems.apps import Api

BASE = "/api/v1"
TRAININGS = f"{BASE}/workloads/trainings"
BODY = {
    "name": "my-training",
    "projectId": "default",
    "clusterId": "71f69d83-ba66-4822-adf5-55ce55efd210",
    "spec": {"command": "python", "args": "-x train.py", "image": "python:3.8"},
}


def said(answer: TestResponse, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json


def created(api: Api, **changes: Any) -> str:
    """The workload id of a new training."""
    return str(said(api.post(TRAININGS, {**BODY, **changes}), 202)["workloadId"])


def read(api: Api, workload_id: str) -> Any:
    return said(api.call("GET", f"{TRAININGS}/{workload_id}"))


def test_training_is_a_job_of_the_native_api(api: Api) -> None:
    workload_id = created(api)

    native = api.get(f"/v1/jobs/job-{workload_id}")
    training = read(api, workload_id)

    assert native["name"] == "my-training"
    assert native["training_config"]["framework"]["custom_command"] == ["python", "-x", "train.py"]
    assert (native["scheduling_config"]["preemptible"], native["scheduling_config"]["on_preemption"]) == (
        True,
        "requeue",
    )
    assert training["spec"] == BODY["spec"]
    assert {name: training[name] for name in ("name", "requestedName", "projectId", "clusterId")} == {
        "name": "my-training",
        "requestedName": "my-training",
        "projectId": "1",
        "clusterId": BODY["clusterId"],
    }
    assert (training["desiredPhase"], training["actualPhase"]) == ("Running", "Creating")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", training["createdAt"])


def test_training_is_suspended_and_resumed(api: Api) -> None:
    workload_id = created(api)

    suspended = api.post(f"{TRAININGS}/{workload_id}/suspend")
    again = api.post(f"{TRAININGS}/{workload_id}/suspend")
    stopped = read(api, workload_id)
    resumed = api.post(f"{TRAININGS}/{workload_id}/resume")
    twice = api.post(f"{TRAININGS}/{workload_id}/resume")
    waiting = read(api, workload_id)

    for answer in (suspended, again, resumed, twice):
        assert said(answer, 202) == {"code": 202, "message": "Request has been accepted."}
    assert (stopped["desiredPhase"], stopped["actualPhase"]) == ("Stopped", "Stopped")
    assert (waiting["desiredPhase"], waiting["actualPhase"]) == ("Running", "Pending")


def test_what_has_ended_is_neither_suspended_nor_resumed(api: Api) -> None:
    with api.db.write() as session:
        workload_id = make_job(session, state=JobState.COMPLETED).id.removeprefix("job-")

    answers = [api.post(f"{TRAININGS}/{workload_id}/{verb}") for verb in ("suspend", "resume")]

    assert [said(answer, 409)["code"] for answer in answers] == [409, 409]


def test_deleted_training_is_gone_for_its_clients_and_cancelled_for_all(api: Api) -> None:
    workload_id = created(api)

    deleted = api.call("DELETE", f"{TRAININGS}/{workload_id}")

    assert (deleted.status_code, deleted.data) == (204, b"")
    assert said(api.call("GET", f"{TRAININGS}/{workload_id}"), 404)["code"] == 404
    assert said(api.call("GET", f"{BASE}/workloads"))["workloads"] == []
    assert api.get(f"/v1/jobs/job-{workload_id}")["status"] == "CANCELLED"
    assert api.call("DELETE", f"{TRAININGS}/{workload_id}").status_code == 404


def test_what_still_runs_is_being_deleted(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING, node_names=["n1"])
        workload_id = job.id.removeprefix("job-")

    api.call("DELETE", f"{TRAININGS}/{workload_id}")

    training = read(api, workload_id)
    assert (training["desiredPhase"], training["actualPhase"]) == ("Deleted", "Deleting")
    with api.db.read() as session:
        assert session.get_one(Job, f"job-{workload_id}").requested == "cancel"


def test_project_is_named_by_its_number_or_its_name(api: Api) -> None:
    own = api.make_key(Role.USER, "team-b")
    number = int(said(api.call("GET", f"{BASE}/org-unit/projects/team-b", key=own))["id"])

    by_name = said(api.post(TRAININGS, {**BODY, "projectId": "team-b"}, key=own), 202)
    by_digits = said(api.post(TRAININGS, {**BODY, "projectId": str(number)}, key=own), 202)
    by_number = said(api.post(TRAININGS, {**BODY, "projectId": number}, key=own), 202)
    row = said(api.call("GET", f"{BASE}/workloads/{by_name['workloadId']}"))

    assert number > 1
    assert [made["projectId"] for made in (by_name, by_digits, by_number)] == [str(number), str(number), number]
    assert (row["projectId"], row["projectName"], row["departmentId"]) == (str(number), "team-b", "1")
    assert said(api.call("GET", f"{BASE}/org-unit/projects/{number}", key=own))["name"] == "team-b"
    assert [said(api.post(TRAININGS, {**BODY, "projectId": other}, key=own), 404)["code"] for other in (1, 99)] == [
        404
    ] * 2
    for asked, found in ((str(number), 3), ("team-b", 3), ("1", 0), ("99", 0)):
        assert said(api.call("GET", f"{BASE}/workloads/count?filterBy=projectId=={asked}")) == {"count": found}


def test_workloads_are_found_by_the_name_of_who_made_them(api: Api) -> None:
    keys_of_ada = [api.make_key(Role.USER, name="ada@lab.com") for _ in range(2)]
    for key in (*keys_of_ada, api.make_key(Role.USER, name="bob@lab.com")):
        said(api.post(TRAININGS, BODY, key=key), 202)

    found = said(api.call("GET", f"{BASE}/workloads?filterBy=submittedBy==ada@lab.com"))["workloads"]

    assert [row["submittedBy"] for row in found] == ["ada@lab.com"] * 2


def test_project_of_others_is_not_there(api: Api) -> None:
    key = api.make_key(Role.USER, "team-b")
    workload_id = created(api)

    assert said(api.post(TRAININGS, BODY, key=key), 404)["code"] == 404
    assert api.call("GET", f"{TRAININGS}/{workload_id}", key=key).status_code == 404


def test_token_stands_for_the_key_that_it_was_given_for(api: Api) -> None:
    new = api_keys.create(api.db, api.app.extensions["trainyard"].plane.box, role=Role.USER, project="default")
    pair = {"AppId": new.row.access_key, "AppSecret": new.secret_key}
    other = {"clientId": new.row.access_key, "clientSecret": new.secret_key}

    token = said(api.client.post(f"{BASE}/token", json={"grantType": "app_token", **pair}))["accessToken"]
    second = said(api.client.post(f"{BASE}/token", json={"grantType": "client_credentials", **other}))["accessToken"]
    made = api.post(TRAININGS, BODY, key=token)

    assert said(made, 202)["createdBy"] == new.row.id  # of a key without a name
    assert said(api.call("GET", f"{BASE}/workloads/count", key=second)) == {"count": 1}
    assert jwt.decode(token, options={"verify_signature": False})["exp"] > utc_now().timestamp() + 3000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"grantType": "app_token", "AppId": "TYAK0", "AppSecret": "x"}, 401),
        ({"grantType": "app_token", "AppId": "TYAK0"}, 400),
        ({"grantType": "refresh_token"}, 400),
    ],
)
def test_no_token_without_a_good_pair(api: Api, body: Any, status: int) -> None:
    assert said(api.client.post(f"{BASE}/token", json=body), status)["code"] == status


def test_wrong_secret_and_revoked_key_get_none(api: Api) -> None:
    box = api.app.extensions["trainyard"].plane.box
    new = api_keys.create(api.db, box, role=Role.USER, project="default")
    pair = {"grantType": "app_token", "AppId": new.row.access_key}

    wrong = api.client.post(f"{BASE}/token", json={**pair, "AppSecret": new.secret_key[:-1]})
    good = api.client.post(f"{BASE}/token", json={**pair, "AppSecret": new.secret_key})
    api_keys.revoke(api.db, api_keys.authenticate(api.db, api.key), new.row.id)
    late = api.client.post(f"{BASE}/token", json={**pair, "AppSecret": new.secret_key})

    assert (wrong.status_code, late.status_code) == (401, 401)
    assert api.call("GET", f"{BASE}/workloads", key=said(good)["accessToken"]).status_code == 401


def test_tokens_of_others_and_old_ones_are_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    me = api_keys.authenticate(api.db, api.key)
    claims = {"sub": me.key_id, "exp": (utc_now() + timedelta(hours=1)).timestamp()}
    unsigned = jwt.encode(claims, "", algorithm="none")
    foreign = jwt.encode(claims, "x" * 32, algorithm="HS256")
    monkeypatch.setattr(tokens, "LIFETIME_SECONDS", -1)
    with api.app.app_context():
        old = tokens.token_for(me.key_id)

    answers = [api.call("GET", f"{BASE}/workloads", key=token) for token in (unsigned, foreign, old, "a.b.c")]

    assert [said(answer, 401)["code"] for answer in answers] == [401] * 4


@pytest.mark.both_databases
def test_workloads_are_listed_filtered_and_counted(api: Api) -> None:
    for number in range(3):
        created(api, name=f"night-{number}")
    stopped = created(api, name="day-1")
    api.post(f"{TRAININGS}/{stopped}/suspend")

    def names(query: str) -> list[str]:
        return [row["name"] for row in said(api.call("GET", f"{BASE}/workloads?{query}"))["workloads"]]

    assert names("sortBy=name") == ["day-1", "night-0", "night-1", "night-2"]
    assert names("sortBy=name&sortOrder=desc&limit=2") == ["night-2", "night-1"]
    assert names("sortBy=name&offset=2&limit=1") == ["night-1"]
    assert names("filterBy=phase==Stopped") == ["day-1"]
    assert names("filterBy=name=^night,name!=night-1&sortBy=name") == ["night-0", "night-2"]
    assert names("search=ght-2") == ["night-2"]
    assert said(api.call("GET", f"{BASE}/workloads?limit=3"))["next"] == 3
    assert said(api.call("GET", f"{BASE}/workloads/count?filterBy=name=^night")) == {"count": 3}
    assert said(api.call("GET", f"{BASE}/workloads?filterBy=colour==blue"), 400)["code"] == 400


def test_native_job_is_a_workload_with_all_that_clients_demand(api: Api) -> None:
    job_id = api.submit()

    row = said(api.call("GET", f"{BASE}/workloads/{job_id.removeprefix('job-')}"))

    demanded = {
        "tenantId",
        "runningPods",
        "phaseUpdatedAt",
        "k8sPhaseUpdatedAt",
        "updatedAt",
        "deletedAt",
        "priorityClassName",
        "clusterId",
        "projectName",
        "projectId",
        "departmentName",
        "departmentId",
        "createdAt",
        "k8sPhase",
        "category",
        "type",
        "name",
        "id",
        "phase",
    }
    assert demanded <= row.keys()
    assert read(api, row["id"])["spec"]["compute"]["gpuDevicesRequest"] == 0


@pytest.mark.both_databases
def test_events_come_newest_first_in_pages(api: Api) -> None:
    workload_id = created(api)
    api.post(f"{TRAININGS}/{workload_id}/suspend")

    first = said(api.call("GET", f"{BASE}/workloads/{workload_id}/events?limit=1"))
    rest = said(api.call("GET", f"{BASE}/workloads/{workload_id}/events?offset=1"))

    assert first["events"][0]["message"] == "it was not running"
    assert first["next"] == 1
    assert [event["reason"] for event in rest["events"]] == ["NOT_ACTED_ON", "job.submitted"]
    assert "next" not in rest


DISTRIBUTED = f"{BASE}/workloads/distributed"


def test_distributed_workload_through_its_life(api: Api) -> None:
    with api.db.write() as session:
        for name in ("n1", "n2", "n3"):
            make_node(session, name)
    spec = {"command": "python", "args": "train.py", "numWorkers": 2, "distributedFramework": "PyTorch"}

    made = said(api.post(DISTRIBUTED, {**BODY, "spec": spec, "masterSpecSameAsWorker": True}), 202)
    workload_id = made["workloadId"]
    suspended = api.post(f"{DISTRIBUTED}/{workload_id}/suspend")
    stopped = said(api.call("GET", f"{DISTRIBUTED}/{workload_id}"))
    resumed = api.post(f"{DISTRIBUTED}/{workload_id}/resume")
    row = said(api.call("GET", f"{BASE}/workloads/{workload_id}"))
    as_training = [api.call("GET", f"{TRAININGS}/{workload_id}"), api.call("DELETE", f"{TRAININGS}/{workload_id}")]
    deleted = api.call("DELETE", f"{DISTRIBUTED}/{workload_id}")

    assert api.get(f"/v1/jobs/job-{workload_id}")["resource_config"]["node_count"] == 3
    assert (made["spec"], made["masterSpecSameAsWorker"]) == (spec, True)
    assert (suspended.status_code, resumed.status_code, deleted.status_code) == (202, 202, 204)
    assert stopped["actualPhase"] == "Stopped"
    assert (row["type"], row["requestedPods"]) == ("Distributed", {"number": 3})
    assert [answer.status_code for answer in as_training] == [404, 404]
    both = {**BODY, "spec": spec, "masterSpecSameAsWorker": True, "masterSpec": {"command": "true"}}
    assert said(api.post(DISTRIBUTED, both), 400)["complianceIssues"][0]["field"] == "masterSpec"


def test_batches_say_of_each_what_became_of_it(api: Api) -> None:
    first, second = created(api, name="first"), created(api, name="second")
    with api.db.write() as session:
        ended = make_job(session, state=JobState.COMPLETED).id.removeprefix("job-")

    suspended = said(api.post(f"{BASE}/workloads/batch", {"ids": [first, ended, "none"], "action": "suspend"}))
    deleted = said(api.post(f"{BASE}/workloads/batch", {"ids": [first, second], "action": "delete"}))

    assert suspended["succeeded"] == [first]
    assert [(each["id"], each["code"]) for each in suspended["failed"]] == [(ended, 409), ("none", 404)]
    assert (deleted["succeeded"], deleted["failed"]) == ([first, second], [])


def test_measurements_come_from_the_series_of_the_job(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session, state=JobState.COMPLETED)
        for step, (seconds, value) in enumerate([(10, 50.0), (70, float("nan")), (110, 150.0)]):
            at = utc_now() - timedelta(hours=1) + timedelta(seconds=seconds)
            known = {"value": None, "special": "NaN"} if isnan(value) else {"value": value}
            session.add(Metric(job_id=job.id, name="cpu_percent", step=step, at=at, attempt=1, seq=step + 1, **known))
        workload_id, begin = job.id.removeprefix("job-"), utc_now() - timedelta(hours=1)
    times = f"start={begin:%Y-%m-%dT%H:%M:%SZ}&end={begin + timedelta(minutes=2):%Y-%m-%dT%H:%M:%SZ}"
    address = f"{BASE}/workloads/{workload_id}/metrics?{times}&numberOfSamples=2"

    found = said(api.call("GET", f"{address}&metricType=CPU_USAGE_CORES&metricType=CPU_LIMIT_CORES"))["measurements"]

    assert [(each["type"], [value["value"] for value in each["values"]]) for each in found] == [
        ("CPU_USAGE_CORES", ["0.5", "1.5"]),
        ("CPU_LIMIT_CORES", []),
    ]
    assert said(api.call("GET", f"{address}&metricType=HEAT"), 400)["complianceIssues"][0]["field"] == "metricType.0"
    backwards = address.replace("start", "x").replace("end", "start").replace("x", "end") + "&metricType=POD_COUNT"
    assert said(api.call("GET", backwards), 400)["complianceIssues"][0]["field"] == "start"


def test_pods_are_the_nodes_of_the_newest_attempt(api: Api) -> None:
    job_id = walks.make_gang(api.db)
    workload_id = job_id.removeprefix("job-")
    before = said(api.call("GET", f"{BASE}/workloads/{workload_id}/pods"))
    walks.start_gang(api.db, job_id, "n1", "n2")

    pods = said(api.call("GET", f"{BASE}/workloads/{workload_id}/pods"))["pods"]
    second = said(api.call("GET", f"{BASE}/workloads/{workload_id}/pods?offset=1"))["pods"]

    assert before == {"pods": []}
    assert [(pod["nodeName"], pod["k8sPhase"], pod["workloadId"]) for pod in pods] == [
        ("n1", "Running", workload_id),
        ("n2", "Running", workload_id),
    ]
    assert second == pods[1:]


def test_history_tells_phases_and_other_events(api: Api) -> None:
    workload_id = created(api)
    api.post(f"{TRAININGS}/{workload_id}/suspend")

    records = said(api.call("GET", f"{BASE}/workloads/{workload_id}/history"))["records"]

    phases = [record["spec"]["phaseUpdate"]["phase"] for record in records if record["meta"]["type"] == "PhaseUpdate"]
    assert phases == ["Stopped", "Creating"]
    assert "NOT_ACTED_ON" in [record["spec"].get("event", {}).get("reason") for record in records]


def test_ended_training_goes_when_its_time_is_over(api: Api) -> None:
    workload_id = created(api, spec={"command": "true", "autoDeletionTimeAfterCompletionSeconds": 60})
    api.post(f"/v1/jobs/job-{workload_id}/cancel")
    ended = api.call("GET", f"{TRAININGS}/{workload_id}")
    with api.db.write() as session:
        session.get_one(Job, f"job-{workload_id}").finished_at = utc_now() - timedelta(seconds=61)

    assert said(ended)["actualPhase"] == "Stopped"
    assert said(api.call("GET", f"{TRAININGS}/{workload_id}"), 404)["code"] == 404
    assert said(api.call("GET", f"{BASE}/workloads/count")) == {"count": 0}
    assert api.get(f"/v1/jobs/job-{workload_id}")["status"] == "CANCELLED"


def test_projects_and_classes_of_priority(api: Api) -> None:
    own = api.make_key(Role.USER, "team-b")

    projects = said(api.call("GET", f"{BASE}/org-unit/projects", key=own))["projects"]
    classes = said(api.call("GET", f"{BASE}/workload-priorities"))["workloadPriorities"]

    assert [project["name"] for project in projects] == ["team-b"]
    quota = {"gpus": {"deserved": 4, "limit": 8}}
    api.call("PATCH", "/v1/projects/team-b", json={"quota": quota})
    pool = said(api.call("GET", f"{BASE}/org-unit/projects/team-b", key=own))["resources"][0]
    assert pool["gpu"] == {"deserved": 4, "limit": 8, "overQuotaWeight": 1.0}
    assert {"id": "build", "name": "build", "value": 8} in classes
