"""ModelArts' training jobs over HTTP, over the same jobs as the native API's."""

import re
from datetime import timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from app.domain.lifecycle.states import JobState
from app.models import Job
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.attempts import leases
from app.services.nodes import stuck_devices
from app.storage.log_writer import LogWriter
from tests.builders import walks
from tests.builders.factories import make_attempt, make_job, make_node, make_project
from tests.builders.log_blocks import block
from tests.systems.apps import Api

BASE = "/v2/default"
JOBS = f"{BASE}/training-jobs"
ALGORITHM = {"code_dir": "/team/src/", "boot_file": "/team/src/train.py", "parameters": [{"name": "lr", "value": "1"}]}
BODY = {"kind": "job", "metadata": {"name": "minist", "description": "digits"}, "algorithm": ALGORITHM}


def said(answer: TestResponse, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json


def refused(answer: TestResponse, status: int, number: int) -> dict[str, Any]:
    body: dict[str, Any] = said(answer, status)
    assert body["error_code"] == f"ModelArts.{number:04d}", body
    assert body["error_msg"]
    assert body["error_solution"]
    return body


def created(api: Api, name: str = "minist", **changes: Any) -> str:
    return str(said(api.post(JOBS, {**BODY, "metadata": {"name": name}, **changes}), 201)["metadata"]["id"])


def test_training_job_is_a_job_of_the_native_api(api: Api) -> None:
    made = said(api.post(JOBS, BODY), 201)

    native = api.get(f"/v1/jobs/job-{made['metadata']['id']}")
    read = said(api.call("GET", f"{JOBS}/{made['metadata']['id']}"))

    assert native["training_config"]["framework"]["custom_script_path"] == "obs://team/src/train.py"
    assert made == read
    assert read["status"] == {
        "phase": "Creating",
        "secondary_phase": "Creating",
        "duration": 0,
        "start_time": 0,
        "node_count_metrics": None,
        "tasks": ["worker-0"],
    }
    assert (read["metadata"]["name"], read["metadata"]["description"]) == ("minist", "digits")
    assert {name: read["algorithm"][name] for name in ALGORITHM} == ALGORITHM


@pytest.mark.both_databases
def test_names_are_taken_once_and_free_again_when_their_job_is_deleted(api: Api) -> None:
    first = created(api)
    address = f"{BASE}/training-job-names?job_name=minist"
    taken = said(api.call("GET", address))

    second = api.post(JOBS, BODY)
    deleted = api.call("DELETE", f"{JOBS}/{first}")

    assert refused(second, 400, 2751)["error_solution"].startswith("metadata.name")
    assert taken == {"is_duplicate": True}
    assert said(deleted, 202) == {}
    assert said(api.call("GET", address)) == {"is_duplicate": False}
    assert "not found" in refused(api.call("GET", f"{JOBS}/{first}"), 400, 2775)["error_msg"]
    assert api.get(f"/v1/jobs/job-{first}")["status"] == "CANCELLED"
    created(api)


def test_terminating_what_has_ended_is_refused(api: Api) -> None:
    job = created(api)

    ended = said(api.post(f"{JOBS}/{job}/actions", {"action_type": "terminate"}), 202)

    assert ended["status"]["phase"] == "Terminated"
    refused(api.post(f"{JOBS}/{job}/actions", {"action_type": "terminate"}), 409, 2796)
    refused(api.post(f"{JOBS}/{job}/actions", {"action_type": "pause"}), 400, 2788)


def test_running_job_is_terminating_until_it_has_ended(api: Api) -> None:
    with api.db.write() as session:
        job = make_job(session, state=JobState.TRAINING, node_names=["n1"]).id.removeprefix("job-")

    answer = said(api.post(f"{JOBS}/{job}/actions", {"action_type": "terminate"}), 202)

    assert answer["status"]["phase"] == answer["status"]["secondary_phase"] == "Terminating"


def test_description_and_annotations_are_changed(api: Api) -> None:
    job = created(api)

    said(api.call("PUT", f"{JOBS}/{job}", json={"description": "better"}))
    said(api.call("PUT", f"{JOBS}/{job}", json={"metadata": {"annotations": {"owner": "me"}}}))

    metadata = said(api.call("GET", f"{JOBS}/{job}"))["metadata"]
    assert (metadata["description"], metadata["annotations"]) == ("better", {"owner": "me"})


@pytest.mark.both_databases
def test_search_filters_sorts_and_counts_pages(api: Api) -> None:
    for number in range(3):
        created(api, name=f"night-{number}")
    stopped = created(api, name="day")
    api.post(f"{JOBS}/{stopped}/actions", {"action_type": "terminate"})

    def names(**body: Any) -> list[str]:
        found = said(api.post(f"{BASE}/training-job-searches", body))
        return [each["metadata"]["name"] for each in found["items"]]

    def by(key: str, operator: str, *values: str) -> dict[str, Any]:
        return {"filters": [{"key": key, "operator": operator, "value": list(values)}]}

    now = int(utc_now().timestamp() * 1000)
    assert names() == ["day", "night-2", "night-1", "night-0"]
    assert names(order="asc", limit=3, offset=1) == ["day"]
    assert names(**by("name", "like", "night-")) == ["night-2", "night-1", "night-0"]
    assert names(**by("phase", "in", "Terminated", "Failed")) == ["day"]
    assert names(**by("phase", "not", "Creating")) == ["day"]
    assert names(**by("name", "like", "")) == names()
    assert names(**by("create_time", "between", str(now - 60_000), str(now))) == names()
    assert names(**by("create_time", "between", "0", "1")) == []
    counts = said(api.post(f"{BASE}/training-job-searches", {**by("kind", "in", "job"), "limit": 1}))
    assert (counts["total"], counts["count"], counts["limit"]) == (4, 4, 1)
    refused(api.post(f"{BASE}/training-job-searches", by("colour", "in", "x")), 400, 2789)
    refused(api.post(f"{BASE}/training-job-searches", by("name", "between", "x")), 400, 2789)
    refused(api.post(f"{BASE}/training-job-searches", {"sort_by": "colour"}), 400, 2790)


@pytest.mark.both_databases
def test_batches_are_deleted_whole_or_not_at_all(api: Api) -> None:
    jobs = [created(api, name=name) for name in ("a", "b")]

    def delete(*ids: Any) -> TestResponse:
        return api.post(f"{JOBS}/batch-delete", {"jobs": [{"kind": "job", "metadata": {"id": each}} for each in ids]})

    refused(delete(*jobs, "none"), 400, 2775)
    refused(delete(7), 400, 2788)
    assert said(api.post(f"{BASE}/training-job-searches", {}))["count"] == 2
    assert said(delete(*jobs)) == {}
    assert said(api.post(f"{BASE}/training-job-searches", {}))["count"] == 0


@pytest.mark.parametrize(
    ("changes", "number", "field"),
    [
        ({"kind": "hetero_job"}, 2788, "kind"),
        ({"metadata": {"name": "a b"}}, 2788, "metadata.name"),
        ({"algorithm": {"code_dir": "/team/src/"}}, 2758, "algorithm.boot_file"),
        ({"algorithm": {"boot_file": "/x"}}, 2757, "algorithm.code_dir"),
        ({"algorithm": {"id": "none"}}, 2755, "algorithm.id"),
        ({"algorithm": {"code_dir": "obs://bb", "boot_file": "obs://bb/x.py"}}, 2757, "algorithm.code_dir"),
        ({"spec": {"resource": {"flavor_id": "x"}}}, 2763, "spec.resource.flavor_id"),
        ({"spec": {"resource": {"node_count": 5}}}, 2793, "spec.resource.node_count"),
        ({"spec": {"resource": {"pool_id": "x"}}}, 2788, "spec.resource.pool_id"),
        ({"spec": {"resource": {"policy": "spot"}}}, 2788, "spec.resource.policy"),
        ({"tasks": [{"role": "p s"}]}, 2788, "tasks.0.role"),
        ({"tasks": [{"role": "ps"}, {"role": "PS"}]}, 2788, "tasks"),
        ({"algorithm": {**ALGORITHM, "item_version_id": "1"}}, 2755, "algorithm.item_version_id"),
        ({"metadata": {"name": "a", "annotations": {"tensorboard/enable": "maybe"}}}, 2788, "tensorboard/enable"),
        ({"colour": "blue"}, 2788, "colour"),
    ],
)
def test_errors_have_their_number_and_name_the_field(api: Api, changes: Any, number: int, field: str) -> None:
    with api.db.write() as session:
        make_node(session)

    body = refused(api.post(JOBS, {**BODY, **changes}), 400, number)

    assert field in body["error_solution"]
    assert field in body["error_msg"]
    assert api.get("/v1/jobs")["total_count"] == 0


def test_project_of_the_path_is_that_of_the_token(api: Api) -> None:
    with api.db.write() as session:
        make_project(session, "team-b")
    mine, theirs = api.make_key(Role.USER, "default"), api.make_key(Role.USER, "team-b")
    job = created(api)

    refused(api.post(JOBS, BODY, key=theirs), 404, 2786)
    refused(api.call("GET", f"/v2/team-b/training-jobs/{job}", key=theirs), 400, 2775)
    refused(api.call("GET", "/v2/none/training-jobs/x"), 404, 2786)
    by_token = api.client.get(f"{JOBS}/{job}", headers={"X-Auth-Token": mine})
    assert said(by_token)["metadata"]["id"] == job
    refused(api.client.get(f"{JOBS}/{job}", headers={"X-Auth-Token": "wrong"}), 401, 2784)
    refused(api.client.get(f"{JOBS}/{job}"), 401, 2784)
    refused(api.post(JOBS, BODY, key=api.make_key(Role.VIEWER, "default")), 403, 2785)


def test_flavors_engines_and_quotas_are_what_there_is(api: Api) -> None:
    with api.db.write() as session:
        make_node(session)
        make_node(session, "gpu-1", device_type="a100", memory_mb=80_000)

    flavors = said(api.call("GET", f"{BASE}/training-job-flavors?flavor_type=GPU"))
    engines = said(api.call("GET", f"{BASE}/training-job-engines"))
    wanted = {"quotas": [{"resource": "gpus", "quota": 4}, {"resource": "running_jobs", "quota": 7}]}
    after = said(api.call("PUT", f"{BASE}/training-quotas", json=wanted))["quotas"]
    said(api.call("PUT", f"{BASE}/training-quotas", json={"quotas": [{"resource": "gpus", "quota": -1}]}))

    assert flavors["flavors"][0]["flavor_id"] == "trainyard.a100.1"
    assert {each["flavor_type"] for each in flavors["flavors"]} == {"GPU"}
    assert flavors["total_count"] == len(flavors["flavors"])
    assert "PyTorch" in [each["engine_name"] for each in engines["items"]]
    assert {each["resource"]: each["quota"] for each in after} == {
        "gpus": 4,
        "cpu_slots": -1,
        "running_jobs": 7,
        "waiting_jobs": -1,
    }
    one = said(api.call("GET", f"{BASE}/training-quotas?resource=gpus"))["quotas"]
    assert one == [{"resource": "gpus", "quota": -1, "used": 0}]


def test_tags_are_labels(api: Api) -> None:
    first, second = created(api, name="first"), created(api, name="second")
    here = f"{BASE}/modelarts-training-job"

    tags = {"tags": [{"key": "team", "value": "a"}, {"key": "stage", "value": "x"}]}
    said(api.post(f"{here}/{first}/tags/create", tags))
    gone = said(api.call("DELETE", f"{here}/{first}/tags/delete", json={"tags": [{"key": "stage"}]}))

    assert gone == {"tags": [{"key": "team", "value": "a"}]} == said(api.call("GET", f"{here}/{first}/tags"))
    assert api.get(f"/v1/jobs/job-{first}")["labels"] == {"team": "a"}
    assert said(api.call("GET", f"{here}/tags")) == {"tags": [{"key": "team", "values": ["a"]}]}

    def ids(**body: Any) -> list[str]:
        return [each["resource_id"] for each in said(api.post(f"{here}/resource-instances/filter", body))["resources"]]

    assert ids(tags=[{"key": "team", "values": ["a", "b"]}]) == [first]
    assert ids(without_any_tag=True) == [second]
    assert ids(matches=[{"key": "resource_name", "value": "eco"}]) == [second]
    assert said(api.post(f"{here}/resource-instances/count", {})) == {"total_count": 2}
    assert refused(api.post(f"{here}/{first}/tags/create", {"tags": [{"key": "a b"}]}), 400, 2788)


def test_logs_events_stages_tasks_and_metrics_of_a_job(api: Api) -> None:
    walks.make_node(api.db)
    job_id = walks.make_job(api.db, JobState.QUEUED)
    walks.start_attempt(api.db, job_id)
    here = f"{JOBS}/{job_id.removeprefix('job-')}"
    writer = LogWriter(api.app.extensions["trainyard"].plane.storage, job_id, 1)
    writer.append([block(1, *(f"line {number}" for number in range(1, 6)))])
    with api.db.write() as session:
        session.get_one(Job, job_id).status = JobState.COMPLETED

    preview = said(api.call("GET", f"{here}/tasks/worker-0/logs/preview"))
    page = said(api.call("GET", f"{here}/logs/worker-0?lines=2"))
    before = said(api.call("GET", f"{here}/logs/worker-0?lines=2&base_line={page['start_line']}"))
    after = said(api.call("GET", f"{here}/logs/worker-0?lines=1&order=asc&base_line={before['end_line']}"))
    events = said(api.call("GET", f"{here}/events?limit=1"))
    stages = said(api.call("GET", f"{here}/stages"))
    tasks = said(api.call("GET", f"{here}/tasks"))
    metrics = said(api.call("GET", f"{here}/metrics/worker-0"))["metrics"]

    assert preview["content"] == "".join(f"line {number}\n" for number in range(1, 6))
    assert (preview["current_size"], preview["full_size"]) == (35, 35)
    assert (page["content"], before["content"], after["content"]) == (
        "line 4\nline 5\n",
        "line 2\nline 3\n",
        "line 4\n",
    )
    assert (events["order"], len(events["events"])) == ("desc", 1)
    assert events["total"] > 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", events["events"][0]["time"])
    assert stages["total_count"] == 1
    assert tasks == [{"task": "worker-0", "ip": "", "host_ip": "n1", "schedule_count": 1}]
    assert [each["metric"] for each in metrics] == [
        "cpuUsage",
        "memUsage",
        "gpuUtil",
        "gpuMemUsage",
        "npuUtil",
        "npuMemUsage",
    ]
    assert metrics[0]["value"] == [-1.0]
    late = (utc_now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert said(api.call("GET", f"{here}/events?start_time={late}"))["total"] == 0
    refused(api.call("GET", f"{here}/logs/worker-7"), 400, 2775)
    refused(api.call("GET", f"{here}/logs/worker-0?base_line=x"), 400, 2788)


def test_jobs_that_the_platform_lost_control_of_have_their_own_phases(api: Api) -> None:
    with api.db.write() as session:
        node = make_node(session)
        unheard, stopped, refused_job = (make_job(session).id for _ in range(3))
        lease = make_attempt(session, session.get_one(Job, unheard), node)
        lease.renewed_at = utc_now() - 2 * leases.UNCONFIRMED_AFTER
        session.get_one(Job, stopped).status = JobState.CANCELLED
        session.get_one(Job, refused_job).status = JobState.FAILED
        held = stuck_devices.HeldDevices(node="local", devices=(1,), job_id=stopped, attempt=1, place="boot-1")
        stuck_devices.take_out_of_service(session, held, actor="test", tell=False)

    found = said(api.post(f"{BASE}/training-job-searches", {}))["items"]
    wanted = [{"key": "phase", "operator": "in", "value": ["Abnormal"]}]
    abnormal = said(api.post(f"{BASE}/training-job-searches", {"filters": wanted}))["items"]

    phases = {each["metadata"]["id"]: each["status"]["secondary_phase"] for each in found}
    assert phases == {
        unheard.removeprefix("job-"): "Unknown",
        stopped.removeprefix("job-"): "TerminatedFailed",
        refused_job.removeprefix("job-"): "CreateFailed",
    }
    assert {each["metadata"]["id"] for each in abnormal} == {
        stopped.removeprefix("job-"),
        refused_job.removeprefix("job-"),
    }


def test_user_is_named_as_the_key(api: Api) -> None:
    key = api.make_key(Role.USER, "default", name="ada")

    made = said(api.post(JOBS, BODY, key=key), 201)

    assert made["metadata"]["user_name"] == "ada"
    assert said(api.call("GET", f"{JOBS}/{made['metadata']['id']}")) == made


def test_what_has_no_effect_is_named_in_the_answer_and_in_the_history(api: Api) -> None:
    engine = {"algorithm": {**ALGORITHM, "engine": {"engine_name": "PyTorch"}}}

    made = api.post(JOBS, {**BODY, **engine})
    searched = api.post(f"{BASE}/training-job-searches", {"group_by": "name"})
    job = said(made, 201)["metadata"]["id"]
    changed = api.call(
        "PUT", f"{JOBS}/{job}", json={"metadata": {"annotations": {"fault-tolerance/hang-retry": "true"}}}
    )

    events = api.get(f"/v1/jobs/job-{job}/events")["events"]
    line = (
        "algorithm.engine.engine_name: jobs run with the libraries of the node, which GET /training-job-engines lists"
    )
    assert made.headers.getlist("Warning") == [f'299 - "{line}"']
    assert [event["data"]["warnings"] for event in events if event["reason"] == "NOT_ACTED_ON"] == [[line]]
    assert searched.headers.getlist("Warning") == ['299 - "group_by: grouping is not supported"']
    named = api.call("GET", f"{BASE}/training-job-names?job_name=x&workspace_id=7")
    limited = api.call("GET", f"{BASE}/training-quotas?user_id=7")
    assert named.headers["Warning"] == '299 - "workspace_id: there is one workspace"'
    assert limited.headers["Warning"] == '299 - "user_id: quotas are of projects"'
    assert [each[: each.index(": ")] for each in changed.headers.getlist("Warning")] == [
        '299 - "metadata.annotations.fault-tolerance/hang-retry'
    ]
    refused(
        api.call("PUT", f"{JOBS}/{job}", json={"metadata": {"annotations": {"tensorboard/enable": "7"}}}), 400, 2788
    )


def test_resource_can_be_sent_as_it_was_returned(api: Api) -> None:
    with api.db.write() as session:
        make_node(session, arch="aarch64")
    first = said(api.post(JOBS, BODY), 201)["spec"]

    second = api.post(JOBS, {**BODY, "metadata": {"name": "again"}, "spec": first})

    assert first["resource"]["policy"] == "regular"
    assert first["resource"]["flavor_detail"]["flavor_info"]["cpu"] == {"arch": "aarch64", "core_num": 1}
    assert said(second, 201)["spec"] == first
    assert [each.split(":")[0] for each in second.headers.getlist("Warning")] == [
        f'299 - "spec.resource.flavor_{part}' for part in ("name", "detail")
    ]
