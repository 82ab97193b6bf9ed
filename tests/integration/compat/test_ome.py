"""OME's training jobs as resources of Kubernetes over HTTP, over the same jobs as the native API's."""

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.security.permissions import Role
from app.storage.log_writer import LogWriter
from tests.builders import walks
from tests.builders.factories import make_node, make_project
from tests.builders.log_blocks import block
from tests.systems.apps import Api

LONGER_AGO = 0.6  # seconds; a watch reports changes of the half second before its version again

BASE = "/apis/ome.io/v1beta1"
JOBS = f"{BASE}/namespaces/default/trainingjobs"
CORE = "/api/v1/namespaces/default"
RUNTIMES = f"{BASE}/clustertrainingruntimes"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def manifest(name: str = "words", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "labels": {"team": "nlp"}},
        "spec": {"runtimeRef": {"name": "pytorch-runtime"}, "trainer": {"command": ["python", "train.py"]}, **spec},
    }


def said(answer: TestResponse, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json


def refused(answer: TestResponse, status: int, reason: str) -> Any:
    body = said(answer, status)
    assert (body["kind"], body["status"], body["reason"], body["code"]) == ("Status", "Failure", reason, status), body
    return body


def created(api: Api, name: str = "words", **spec: Any) -> Any:
    return said(api.post(JOBS, manifest(name, **spec)), 201)


def patch(api: Api, path: str, kind: str, body: Any) -> TestResponse:
    return api.call("PATCH", path, data=json.dumps(body), headers={"Content-Type": f"application/{kind}"})


def test_training_job_is_a_job_of_the_native_api(api: Api) -> None:
    made = created(api)
    read = said(api.call("GET", f"{JOBS}/words"))

    native = api.get(f"/v1/jobs/job-{made['metadata']['uid']}")
    assert native["training_config"]["framework"]["custom_command"] == ["python", "train.py"]
    assert native["labels"] == {"team": "nlp"}
    assert made == read == said(api.call("GET", f"{JOBS}/words/status"))
    assert (read["metadata"]["namespace"], read["spec"]["suspend"]) == ("default", False)
    assert read["status"]["conditions"] == []
    refused(api.post(JOBS, manifest()), 409, "AlreadyExists")


def test_name_is_made_of_its_beginning(api: Api) -> None:
    body = manifest() | {"metadata": {"generateName": "words-"}}

    names = [said(api.post(JOBS, body), 201)["metadata"]["name"] for _ in range(2)]

    assert all(re.fullmatch(r"words-[a-z0-9]{5}", name) for name in names)
    assert len(set(names)) == 2
    nameless = refused(api.post(JOBS, manifest() | {"metadata": {}}), 422, "Invalid")
    assert nameless["details"]["causes"][0]["field"] == "metadata.name"
    removed = [{"op": "remove", "path": "/metadata/name"}]
    refused(patch(api, f"{JOBS}/{names[0]}", "json-patch+json", removed), 422, "Invalid")
    refused(patch(api, f"{JOBS}/new", "apply-patch+yaml", manifest() | {"metadata": {}}), 422, "Invalid")


def test_jobs_of_others_have_our_ids_as_names(api: Api) -> None:
    job_id = api.submit()

    found = said(api.call("GET", f"{JOBS}/{job_id}"))

    assert found["metadata"]["name"] == job_id
    assert found["spec"]["trainer"]["command"][0] == "trainyard"
    assert [each["metadata"]["name"] for each in said(api.call("GET", JOBS))["items"]] == [job_id]


def test_suspending_pauses_and_resuming_goes_on(api: Api) -> None:
    made = created(api)
    job_id = f"job-{made['metadata']['uid']}"

    stopped = said(patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": True}}))
    resumed = said(
        patch(api, f"{JOBS}/words", "json-patch+json", [{"op": "replace", "path": "/spec/suspend", "value": False}])
    )
    from_the_start = created(api, "later", suspend=True)

    assert [each["type"] for each in stopped["status"]["conditions"] if each["status"] == "True"] == [
        "Created",
        "Suspended",
    ]
    assert resumed["spec"]["suspend"] is False
    assert api.get(f"/v1/jobs/{job_id}")["status"] == "QUEUED"
    assert from_the_start["spec"]["suspend"] is True
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.COMPLETED
    refused(patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": True}}), 400, "BadRequest")


@pytest.mark.long
def test_labels_and_annotations_change_and_nothing_else(api: Api) -> None:
    made = created(api)

    labelled = said(patch(api, f"{JOBS}/words", "merge-patch+json", {"metadata": {"labels": {"stage": "dev"}}}))
    whole = {**labelled, "metadata": {**labelled["metadata"], "annotations": {"owner": "me"}}}
    annotated = said(api.call("PUT", f"{JOBS}/words", json=whole))

    assert annotated["metadata"]["labels"] == {"team": "nlp", "stage": "dev"}
    assert annotated["metadata"]["annotations"] == {"owner": "me"}
    assert annotated["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    refused(api.call("PUT", f"{JOBS}/words", json=made), 409, "Conflict")
    other = {"spec": {"trainer": {"command": ["python", "other.py"]}}}
    problem = refused(patch(api, f"{JOBS}/words", "merge-patch+json", other), 400, "BadRequest")
    assert problem["details"]["causes"][0]["field"] == "spec.trainer"
    renamed = {"metadata": {"name": "other"}}
    refused(patch(api, f"{JOBS}/words", "merge-patch+json", renamed), 400, "BadRequest")
    refused(patch(api, f"{JOBS}/words", "strategic-merge-patch+json", {}), 415, "UnsupportedMediaType")
    refused(patch(api, f"{JOBS}/none", "merge-patch+json", {}), 404, "NotFound")


def test_applying_creates_what_is_not_there(api: Api) -> None:
    first = patch(api, f"{JOBS}/words", "apply-patch+yaml", manifest())
    again = patch(api, f"{JOBS}/words?fieldManager=kubectl&force=true", "apply-patch+yaml", manifest())

    assert (first.status_code, again.status_code) == (201, 200)
    assert said(api.call("GET", JOBS))["items"][0]["metadata"]["uid"] == said(again)["metadata"]["uid"]


@pytest.mark.both_databases
def test_deleted_job_is_gone_and_its_name_is_free(api: Api) -> None:
    uid = created(api)["metadata"]["uid"]

    deleted = said(api.call("DELETE", f"{JOBS}/words", json={"propagationPolicy": "Background"}))

    assert (deleted["status"], deleted["details"]["uid"]) == ("Success", uid)
    assert (
        'trainingjobs.ome.io "words" not found' in refused(api.call("GET", f"{JOBS}/words"), 404, "NotFound")["message"]
    )
    assert said(api.call("GET", JOBS))["items"] == []
    assert api.get(f"/v1/jobs/job-{uid}")["status"] == "CANCELLED"
    assert created(api)["metadata"]["uid"] != uid


@pytest.mark.long
@pytest.mark.both_databases
def test_lists_are_chosen_by_selectors_in_pages_and_as_tables(api: Api) -> None:
    for name in ("a", "b", "c"):
        created(api, name)
    patch(api, f"{JOBS}/b", "merge-patch+json", {"metadata": {"labels": {"stage": "dev"}}})

    def names(query: str) -> list[str]:
        return [each["metadata"]["name"] for each in said(api.call("GET", f"{JOBS}?{query}"))["items"]]

    assert names("labelSelector=stage%3Ddev") == ["b"]
    assert names("fieldSelector=metadata.name%3Dc") == ["c"]
    first = said(api.call("GET", f"{JOBS}?limit=2"))
    assert [each["metadata"]["name"] for each in first["items"]] == ["a", "b"]
    assert names(f"limit=2&continue={first['metadata']['continue']}") == ["c"]
    assert len(said(api.call("GET", f"{BASE}/trainingjobs"))["items"]) == 3
    table = said(api.call("GET", JOBS, headers=TABLE))
    assert [row["cells"][:3] for row in table["rows"]] == [[name, "Pending", "pytorch-runtime"] for name in "abc"]
    assert said(api.call("GET", f"{JOBS}/a", headers=TABLE))["kind"] == "Table"
    refused(api.call("GET", f"{JOBS}?labelSelector=a%20b"), 400, "BadRequest")
    refused(api.call("GET", f"{JOBS}?colour=blue"), 422, "Invalid")


@pytest.mark.long
def test_changes_are_watched(api: Api) -> None:
    created(api, "a")
    time.sleep(LONGER_AGO)
    version = said(api.call("GET", JOBS))["metadata"]["resourceVersion"]
    created(api, "b")

    def events(query: str) -> list[tuple[str, str]]:
        answer = api.call("GET", f"{JOBS}?watch=True&timeoutSeconds=1&{query}")
        found = [json.loads(line) for line in answer.text.splitlines()]
        return [(each["type"], each["object"]["metadata"]["name"]) for each in found]

    assert events("") == [("ADDED", "a"), ("ADDED", "b")]
    assert events(f"resourceVersion={version}") == [("ADDED", "b")]
    assert events("fieldSelector=metadata.name%3Da") == [("ADDED", "a")]


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"kind": "Job"}, 400, "kind"),
        ({"metadata": {"name": "A b"}}, 422, "metadata.name"),
        ({"metadata": {"name": "x", "namespace": "other"}}, 400, "metadata.namespace"),
        ({"spec": {"runtimeRef": {"name": "none"}, "trainer": {"command": ["x"]}}}, 400, "spec.runtimeRef.name"),
        ({"spec": {"runtimeRef": {"name": "pytorch-runtime"}, "trainer": {}}}, 400, "spec.modelConfig.inputModel"),
        (
            {"spec": {"runtimeRef": {"name": "pytorch-runtime"}, "trainer": {"command": ["x"], "numNodes": 7}}},
            400,
            "spec.trainer.numNodes",
        ),
        (
            {
                "spec": {
                    "runtimeRef": {"name": "pytorch-runtime"},
                    "trainer": {"command": ["x"]},
                    "datasets": {"storageUri": "vendor://x"},
                }
            },
            400,
            "spec.datasets.storageUri",
        ),
    ],
)
def test_errors_name_the_field(api: Api, changes: Any, status: int, field: str) -> None:
    with api.db.write() as session:
        make_node(session)

    body = said(api.post(JOBS, {**manifest(), **changes}), status)

    assert body["details"]["causes"][0]["field"].startswith(field), body
    assert api.get("/v1/jobs")["total_count"] == 0


def test_namespaces_are_projects(api: Api) -> None:
    with api.db.write() as session:
        make_project(session, "team-b")
    theirs = api.make_key(Role.USER, "team-b")
    created(api)

    assert [each["metadata"]["name"] for each in said(api.call("GET", "/api/v1/namespaces", key=theirs))["items"]] == [
        "team-b"
    ]
    assert said(api.call("GET", CORE))["status"]["phase"] == "Active"
    assert refused(api.call("GET", JOBS, key=theirs), 404, "NotFound")["message"] == 'namespaces "default" not found'
    assert said(api.call("GET", f"{BASE}/trainingjobs", key=theirs))["items"] == []
    refused(api.client.get(JOBS), 401, "Unauthorized")
    refused(api.post(JOBS, manifest("x"), key=api.make_key(Role.VIEWER)), 403, "Forbidden")


def runtime(name: str, kind: str = "ClusterTrainingRuntime", **policy: Any) -> dict[str, Any]:
    return {"apiVersion": "ome.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": {"mlPolicy": policy}}


def test_runtimes_are_made_changed_and_deleted(api: Api) -> None:
    mine = f"{BASE}/namespaces/default/trainingruntimes"

    made = said(api.post(RUNTIMES, runtime("team", torch={"numProcPerNode": "2"})), 201)
    patched = said(patch(api, f"{RUNTIMES}/team", "merge-patch+json", {"spec": {"mlPolicy": {"numNodes": 2}}}))
    own = said(api.post(mine, runtime("own", "TrainingRuntime", numNodes=1)), 201)
    built_in = said(
        patch(api, f"{RUNTIMES}/mpi-runtime", "apply-patch+yaml", runtime("mpi-runtime", mpi={"numProcPerNode": 4}))
    )

    assert patched["spec"]["mlPolicy"] == {"torch": {"numProcPerNode": "2"}, "numNodes": 2}
    assert (patched["metadata"]["generation"], own["metadata"]["namespace"]) == (2, "default")
    assert built_in["spec"]["mlPolicy"]["mpi"]["numProcPerNode"] == "4"
    refused(api.call("PUT", f"{RUNTIMES}/team", json=made), 409, "Conflict")
    refused(api.post(RUNTIMES, runtime("team")), 409, "AlreadyExists")
    names = [each["metadata"]["name"] for each in said(api.call("GET", RUNTIMES))["items"]]
    assert names == ["mpi-runtime", "pytorch-distributed-runtime", "pytorch-runtime", "team"]
    job = created(api, runtimeRef={"name": "own", "kind": "TrainingRuntime"})
    assert job["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    for path in (f"{RUNTIMES}/team", f"{mine}/own", f"{RUNTIMES}/mpi-runtime"):
        assert said(api.call("DELETE", path))["status"] == "Success"
    refused(api.call("DELETE", f"{RUNTIMES}/pytorch-runtime"), 409, "Conflict")
    refused(api.call("GET", f"{mine}/own"), 404, "NotFound")
    actions = [entry["action"] for entry in api.get("/v1/audit")["entries"]]
    assert actions.count("runtime.create") == 3


def test_runtime_whose_container_makes_no_job_is_refused(api: Api) -> None:
    containers = [{"name": "trainer", "command": "python train.py"}]
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": containers}}}}}
    body = runtime("team") | {"spec": {"template": {"spec": {"replicatedJobs": [job]}}}}

    problem = refused(api.post(RUNTIMES, body), 422, "Invalid")

    assert problem["details"]["causes"][0]["field"].startswith("spec.template.command")


def test_pods_logs_and_events_of_a_job(api: Api) -> None:
    walks.make_node(api.db)
    job_id = walks.make_job(api.db, JobState.QUEUED)
    before = said(api.call("GET", f"{CORE}/pods?labelSelector=job-name%3D{job_id}"))["items"]
    walks.start_attempt(api.db, job_id)
    writer = LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, 1)
    writer.append([block(n, f"line {n}", at=f"2026-01-01T00:00:0{n}Z") for n in range(1, 6)])
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.COMPLETED

    pod = said(api.call("GET", f"{CORE}/pods/{job_id}-0"))
    log = api.call("GET", f"{CORE}/pods/{job_id}-0/log?container=trainer&tailLines=2")
    stamped = api.call("GET", f"{CORE}/pods/{job_id}-0/log?timestamps=true&limitBytes=20")
    followed = api.call("GET", f"{CORE}/pods/{job_id}-0/log?follow=true")
    events = said(api.call("GET", f"{CORE}/events?fieldSelector=involvedObject.name%3D{job_id}"))["items"]

    assert [(each["status"]["phase"], "nodeName" in each["spec"]) for each in before] == [("Pending", False)]
    assert (pod["spec"]["nodeName"], pod["metadata"]["labels"]["job-name"]) == ("n1", job_id)
    assert (log.text, log.mimetype) == ("line 4\nline 5\n", "text/plain")
    assert stamped.text == "2026-01-01T00:00:01Z"
    assert followed.text == "".join(f"line {number}\n" for number in range(1, 6))
    assert {each["involvedObject"]["name"] for each in events} == {job_id}
    assert len(said(api.call("GET", "/api/v1/pods"))["items"]) == 1
    refused(api.call("GET", f"{CORE}/pods/{job_id}-9"), 404, "NotFound")
    refused(api.call("GET", f"{CORE}/pods/{job_id}-0/log?container=side"), 400, "BadRequest")


def test_log_of_a_pod_is_of_an_earlier_attempt_or_of_late_as_is_asked(api: Api) -> None:
    walks.make_node(api.db)
    job_id = walks.make_job(api.db, JobState.QUEUED)
    walks.start_attempt(api.db, job_id)
    log = f"{CORE}/pods/{job_id}-0/log"
    refused(api.call("GET", f"{log}?previous=true"), 400, "BadRequest")
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for attempt, at, text in ((1, "2026-01-01T00:00:00.000Z", "first"), (2, now, "second")):
        LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, attempt).append([block(1, text, at=at)])
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        job.status, job.attempt = JobState.COMPLETED, 2

    asked = ("", "previous=true", "sinceSeconds=3600", "follow=true&limitBytes=6", "previous=true&follow=true")
    shown = [api.call("GET", f"{log}?{query}").text.split() for query in asked]

    assert shown == [["first", "second"], ["first"], ["second"], ["first"], ["first"]]


def test_pods_are_chosen_by_the_whole_label_and_watched(api: Api) -> None:
    created(api, "a")
    created(api, "b")

    def names(query: str) -> list[str]:
        return [each["metadata"]["name"] for each in said(api.call("GET", f"{CORE}/pods?{query}"))["items"]]

    assert names("labelSelector=job-name%3D%3Da") == ["a-0"]
    assert names("labelSelector=other-job-name%3Da") == []
    assert names("labelSelector=job-name%21%3Da") == ["b-0"]
    assert names("labelSelector=job-name%3Dnone") == []
    watched = api.call("GET", f"{CORE}/pods?watch=1&timeoutSeconds=1&labelSelector=job-name%3Db").text.splitlines()
    assert [json.loads(line)["object"]["metadata"]["name"] for line in watched] == ["b-0"]
    events = said(api.call("GET", f"{CORE}/events?fieldSelector=involvedObject.name%3D%3Db"))["items"]
    assert {each["involvedObject"]["name"] for each in events} == {"b"}


def test_no_secret_of_a_manifest_is_returned(api: Api) -> None:
    trainer = {"command": ["python", "train.py"], "env": [{"name": "HF_TOKEN", "value": "hf_secret"}]}
    body = manifest(trainer=trainer)
    body["metadata"]["annotations"] = {APPLIED: json.dumps(body) + "\n"}
    made = said(api.post(JOBS, body), 201)

    again = said(patch(api, f"{JOBS}/words", "merge-patch+json", body))

    assert made["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"], "nothing was changed"
    applied = json.loads(again["metadata"]["annotations"][APPLIED])
    assert applied["spec"]["trainer"] == again["spec"]["trainer"]
    assert again["spec"]["trainer"]["env"][0]["value"] == "***"
    assert "hf_secret" not in json.dumps(said(api.call("GET", JOBS)))
    unreadable = {"metadata": {"annotations": {APPLIED: "{"}}}
    refused(patch(api, f"{JOBS}/words", "merge-patch+json", unreadable), 400, "BadRequest")


def test_runtime_with_a_secret_is_refused(api: Api) -> None:
    containers = [{"name": "trainer", "command": ["x"], "env": [{"name": "HF_TOKEN", "value": "hf_secret"}]}]
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": containers}}}}}
    body = runtime("team") | {"spec": {"template": {"spec": {"replicatedJobs": [job]}}}}

    problem = refused(api.post(RUNTIMES, body), 400, "BadRequest")

    assert problem["details"]["causes"][0]["field"].endswith("containers.0.env.0")


def test_clients_find_out_what_there_is(api: Api) -> None:
    kinds = {each["name"]: each["kind"] for each in said(api.client.get(BASE))["resources"]}

    assert kinds["trainingjobs"] == "TrainingJob"
    assert said(api.client.get("/apis"))["groups"][0]["name"] == "ome.io"
    assert "pods" in [each["name"] for each in said(api.client.get("/api/v1"))["resources"]]
    assert said(api.client.get("/api"))["versions"] == ["v1"]
    assert said(api.client.get("/version"))["major"] == "1"
    binary = api.client.get(
        "/openapi/v2", headers={"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    )
    assert binary.data.startswith(b"\x0a\x032.0")
    assert said(api.client.get("/openapi/v2"))["swagger"] == "2.0"
