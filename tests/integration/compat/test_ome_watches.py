"""Changes of OME resources as watches report them, and changes that are rehearsed only."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.compat.test_ome import (
    BASE,
    CORE,
    JOBS,
    LONGER_AGO,
    RUNTIMES,
    TABLE,
    created,
    manifest,
    patch,
    refused,
    runtime,
    said,
)
from tests.systems.apps import Api

MINE = f"{BASE}/namespaces/default/trainingruntimes"
DRY = "dryRun=All"


def watched(api: Api, path: str, query: str, seconds: int = 1) -> list[Any]:
    answer = api.call("GET", f"{path}?watch=true&timeoutSeconds={seconds}&{query}")
    return [json.loads(line) for line in answer.text.splitlines()]


def watched_names(api: Api, path: str, query: str, seconds: int = 1) -> list[tuple[str, str]]:
    """What a watch reports: kinds of changes and names."""
    return [(each["type"], each["object"]["metadata"]["name"]) for each in watched(api, path, query, seconds)]


@contextmanager
def shortly(*steps: Any) -> Iterator[None]:
    """While the body watches, one step after the other."""

    def take() -> None:
        for step in steps:
            time.sleep(0.8)
            step()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.long
def test_watch_reports_jobs_that_come_and_go_beside_others(api: Api) -> None:
    first = created(api, "first")
    native = api.submit()
    for step in ("cancel", "delete"):
        created(api, f"before-the-{step}")
    api.post(f"/v1/jobs/{native}/cancel")

    with shortly(
        lambda: created(api, "second"),
        lambda: (created(api, "third"), api.call("DELETE", f"/v1/jobs/{native}")),
        lambda: (api.call("DELETE", f"{JOBS}/first"), created(api, "first")),
    ):
        changes = watched(api, JOBS, "", seconds=5)

    reported = [(each["type"], each["object"]["metadata"]["name"]) for each in changes]
    assert reported[:4] == [(("ADDED"), name) for name in ("first", "before-the-cancel", "before-the-delete", native)]
    came_and_went = [each for each in reported[4:] if each[0] != "MODIFIED"]
    assert came_and_went[0] == ("ADDED", "second")
    # In either order: the stream may poll between the two requests.
    assert sorted(came_and_went[1:3]) == [("ADDED", "third"), ("DELETED", native)]
    assert came_and_went[3:] == [("DELETED", "first"), ("ADDED", "first")]
    assert changes[-2]["object"]["metadata"]["uid"] == first["metadata"]["uid"]


@pytest.mark.long
def test_runtimes_are_watched(api: Api) -> None:
    api.post(MINE, runtime("old", "TrainingRuntime", numNodes=1))
    time.sleep(LONGER_AGO)
    version = said(api.call("GET", MINE))["metadata"]["resourceVersion"]
    api.post(MINE, runtime("new", "TrainingRuntime", numNodes=1))
    change = {"spec": {"mlPolicy": {"numNodes": 2}}}

    with shortly(
        lambda: patch(api, f"{MINE}/old", "merge-patch+json", change), lambda: api.call("DELETE", f"{MINE}/new")
    ):
        changes = watched_names(api, MINE, f"resourceVersion={version}", seconds=4)

    assert changes == [("ADDED", "new"), ("MODIFIED", "old"), ("DELETED", "new")]
    assert watched_names(api, MINE, "fieldSelector=metadata.name%3Dold") == [("ADDED", "old")]


@pytest.mark.long
def test_built_in_runtime_that_is_replaced_goes_before_the_new_one_comes(api: Api) -> None:
    own = runtime("mpi-runtime", mpi={"numProcPerNode": 4})

    with shortly(lambda: patch(api, f"{RUNTIMES}/mpi-runtime", "apply-patch+yaml", own)):
        changes = watched_names(api, RUNTIMES, "fieldSelector=metadata.name%3Dmpi-runtime", seconds=3)

    assert changes == [("ADDED", "mpi-runtime"), ("DELETED", "mpi-runtime"), ("ADDED", "mpi-runtime")]


@pytest.mark.long
def test_events_are_watched(api: Api) -> None:
    created(api)
    time.sleep(LONGER_AGO)
    version = said(api.call("GET", f"{CORE}/events"))["metadata"]["resourceVersion"]

    with shortly(lambda: patch(api, f"{JOBS}/words", "merge-patch+json", {"spec": {"suspend": True}})):
        events = watched(api, f"{CORE}/events", f"resourceVersion={version}", seconds=3)

    assert [(each["type"], each["object"]["involvedObject"]["name"]) for each in events] == [("ADDED", "words")]
    assert events[0]["object"]["message"] == "it was not running"


@pytest.mark.long
def test_events_go_with_their_job(api: Api) -> None:
    native = api.submit()
    api.post(f"/v1/jobs/{native}/cancel")
    created(api)

    with shortly(lambda: api.call("DELETE", f"/v1/jobs/{native}")):
        events = watched(api, f"{CORE}/events", "", seconds=3)

    about = [(each["type"], each["object"]["involvedObject"]["name"]) for each in events]
    assert about.count(("DELETED", native)) == about.count(("ADDED", native)) > 1
    assert about.count(("ADDED", "words")) >= 1
    assert ("DELETED", "words") not in about


@pytest.mark.long
def test_client_that_reconnects_gets_what_it_missed(api: Api) -> None:
    for name in "ab":
        created(api, name)
    version = watched(api, JOBS, "")[-1]["object"]["metadata"]["resourceVersion"]
    time.sleep(LONGER_AGO)
    assert watched_names(api, JOBS, f"resourceVersion={version}") in (
        [("ADDED", "b")],
        [("ADDED", "a"), ("ADDED", "b")],
    )

    time.sleep(LONGER_AGO)
    listed = said(api.call("GET", JOBS))["metadata"]["resourceVersion"]
    patch(api, f"{JOBS}/a", "merge-patch+json", {"metadata": {"labels": {"stage": "dev"}}})
    api.call("DELETE", f"{JOBS}/b")
    created(api, "c")

    assert watched_names(api, JOBS, f"resourceVersion={listed}") == [("DELETED", "b"), ("ADDED", "a"), ("ADDED", "c")]
    assert watched_names(api, f"{CORE}/pods", f"resourceVersion={listed}")[0] == ("DELETED", "b-0")
    created(api, "b")
    assert ("DELETED", "b") not in watched_names(api, JOBS, f"resourceVersion={listed}")
    assert ("DELETED", "b") not in watched_names(api, JOBS, "")


def test_job_of_a_dry_run_is_checked_and_not_created(api: Api) -> None:
    made = said(api.post(f"{JOBS}?{DRY}", manifest(suspend=True)), 201)
    applied = said(patch(api, f"{JOBS}/words?{DRY}", "apply-patch+yaml", manifest()), 201)
    refused(api.post(f"{JOBS}?{DRY}", manifest(runtimeRef={"name": "none"})), 400, "BadRequest")
    refused(api.post(f"{JOBS}?dryRun=Some", manifest()), 422, "Invalid")

    assert (made["metadata"]["name"], made["spec"]["suspend"], applied["spec"]["suspend"]) == ("words", True, False)
    assert said(api.call("GET", JOBS))["items"] == []
    assert api.get("/v1/jobs")["jobs"] == []
    created(api)
    refused(api.post(f"{JOBS}?{DRY}", manifest()), 409, "AlreadyExists")


def test_dry_run_of_a_job_is_the_object_that_is_created(api: Api) -> None:
    checked = api.post(f"{JOBS}?{DRY}", manifest())
    made = api.post(JOBS, manifest())

    expected, found = said(checked, 201), said(made, 201)
    for each in (expected, found):
        for name in ("uid", "resourceVersion", "creationTimestamp"):
            del each["metadata"][name]
        del each["status"]["lastReconcileTime"]
    assert expected == found
    assert checked.headers.getlist("Warning") == made.headers.getlist("Warning")


def test_dry_run_of_a_job_that_admission_would_fail_warns(api: Api) -> None:
    (api.folder / "data/files").mkdir(parents=True, exist_ok=True)  # admission judges only where all roots exist
    answer = api.post(f"{JOBS}?{DRY}", manifest(datasets={"storageUri": f"{api.inputs}/missing.jsonl"}))

    said(answer, 201)
    warning = answer.headers.getlist("Warning")[-1]
    assert "admission would fail it with" in warning
    assert "missing.jsonl does not exist" in warning
    assert api.get("/v1/jobs")["jobs"] == []


def test_dry_run_of_a_job_is_held_to_the_quota(api: Api) -> None:
    said(api.call("PATCH", "/v1/projects/default", json={"quota": {"max_waiting_jobs": 0}}))

    dry = api.post(f"{JOBS}?{DRY}", manifest())
    real = api.post(JOBS, manifest())

    assert dry.status_code == real.status_code >= 400
    assert dry.get_json()["message"] == real.get_json()["message"]


def test_dry_run_of_changes_leaves_a_job_as_it_is(api: Api) -> None:
    created(api)
    before = said(api.call("GET", f"{JOBS}/words"))
    change = {"metadata": {"labels": {"stage": "dev"}}, "spec": {"suspend": True}}

    patched = said(patch(api, f"{JOBS}/words?{DRY}", "merge-patch+json", change))
    replaced = said(api.call("PUT", f"{JOBS}/words?{DRY}", json=patched))
    deleted = said(api.call("DELETE", f"{JOBS}/words?{DRY}"))

    assert patched["metadata"]["labels"] == {"team": "nlp", "stage": "dev"}
    assert (patched["spec"]["suspend"], deleted["status"]) == (True, "Success")
    assert replaced == patched
    assert said(api.call("GET", f"{JOBS}/words")) == before


@pytest.mark.parametrize("name", ["team", "mpi-runtime"])
def test_dry_run_of_a_runtime_writes_nothing(api: Api, name: str) -> None:
    first = said(api.post(RUNTIMES, runtime("team", torch={"numProcPerNode": "2"})), 201)
    before = said(api.call("GET", RUNTIMES))["items"]
    change = {"spec": {"mlPolicy": {"numNodes": 2}}}

    made = said(api.post(f"{RUNTIMES}?{DRY}", runtime("more")), 201)
    patched = said(patch(api, f"{RUNTIMES}/{name}?{DRY}", "merge-patch+json", change))
    deleted = said(api.call("DELETE", f"{RUNTIMES}/team?{DRY}"))

    assert (made["metadata"]["name"], patched["spec"]["mlPolicy"]["numNodes"]) == ("more", 2)
    assert (deleted["status"], first["metadata"]["generation"]) == ("Success", 1)
    assert said(api.call("GET", RUNTIMES))["items"] == before
    refused(api.post(f"{RUNTIMES}?{DRY}", runtime("team")), 409, "AlreadyExists")
    refused(api.call("DELETE", f"{RUNTIMES}/pytorch-runtime?{DRY}"), 409, "Conflict")


def test_body_of_a_delete_says_whether_it_is_meant(api: Api) -> None:
    created(api)
    api.post(RUNTIMES, runtime("team"))
    rehearsed = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}

    for path in (f"{JOBS}/words", f"{RUNTIMES}/team"):
        assert said(api.call("DELETE", path, json=rehearsed))["status"] == "Success"
        refused(api.call("DELETE", path, json={"preconditions": {"uid": "another"}}), 409, "Conflict")
        refused(api.call("DELETE", path, json={"preconditions": {"resourceVersion": "1"}}), 409, "Conflict")
        refused(api.call("DELETE", path, json={"dryRun": ["Some"]}), 400, "BadRequest")
        refused(api.call("DELETE", path, json={"preconditions": 5}), 400, "BadRequest")
        found = said(api.call("GET", path))["metadata"]
        meant = {"preconditions": {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}}
        assert said(api.call("DELETE", path, json=meant))["status"] == "Success"
        refused(api.call("GET", path), 404, "NotFound")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &a [1, 2]\nb: *a", "aliases of YAML are not accepted"),
        ("spec: {x: .nan}", "NaN is not a JSON number"),
        ("spec: {x: 2024-01-01}", "a value that JSON can't represent: Object of type date"),
        ("spec: {x: !!binary aGk=}", "a value that JSON can't represent: Object of type bytes"),
        ("- 1", "must be an object"),
        ("operations: []", "operations: is not a field"),
        ("? [1, 2]\n: 3", "is not valid YAML"),
    ],
)
def test_yaml_without_an_equivalent_in_json_is_refused(api: Api, text: str, why: str) -> None:
    answer = api.call("POST", JOBS, data=text, headers={"Content-Type": "application/yaml"})

    assert why in refused(answer, 400, "BadRequest")["message"]


def test_patch_names_the_object_of_its_path_and_the_version_that_it_is_meant_for(api: Api) -> None:
    stale = created(api)["metadata"]["resourceVersion"]
    patch(api, f"{JOBS}/words", "merge-patch+json", {"metadata": {"labels": {"stage": "dev"}}})
    meant = [{"op": "replace", "path": "/metadata/resourceVersion", "value": stale}]
    step: dict[str, Any] = {"op": "add", "path": "/metadata/labels/late", "value": "yes"}

    refused(patch(api, f"{JOBS}/other", "apply-patch+yaml", manifest("words")), 400, "BadRequest")
    refused(patch(api, f"{RUNTIMES}/other", "apply-patch+yaml", runtime("team")), 400, "BadRequest")
    refused(patch(api, f"{JOBS}/words", "json-patch+json", [*meant, step]), 409, "Conflict")
    for metadata in ("x", list[str](), 5):
        refused(patch(api, f"{JOBS}/words", "merge-patch+json", {"metadata": metadata}), 400, "BadRequest")
    replaced = [{"op": "replace", "path": "/metadata", "value": "x"}]
    refused(patch(api, f"{JOBS}/words", "json-patch+json", replaced), 400, "BadRequest")
    refused(patch(api, f"{JOBS}/words", "json-patch+json", {"op": "remove"}), 400, "BadRequest")
    refused(patch(api, f"{JOBS}/words", "merge-patch+json", {"operations": 5}), 400, "BadRequest")
    doubling = [{"op": "copy", "from": "/metadata", "path": f"/metadata/labels/n{n}"} for n in range(40)]
    refused(patch(api, f"{JOBS}/words", "json-patch+json", doubling), 400, "BadRequest")
    assert said(patch(api, f"{JOBS}/words", "json-patch+json", [step]))["metadata"]["labels"]["late"] == "yes"


def test_name_stays_until_those_delete_it_who_gave_it(api: Api) -> None:
    made = created(api)
    said(api.call("DELETE", f"/api/v1/workloads/trainings/{made['metadata']['uid']}"), 204)

    assert said(api.call("GET", f"{JOBS}/words"))["metadata"]["uid"] == made["metadata"]["uid"]
    said(api.call("DELETE", f"{JOBS}/words"))
    retried = said(api.post(f"/v1/jobs/job-{made['metadata']['uid']}/retry", {}), 201)["data"]["job_id"]
    assert said(api.call("GET", f"{JOBS}/{retried}"))["metadata"]["name"] == retried


@pytest.mark.both_databases
def test_pages_of_tables_go_on(api: Api) -> None:
    for name in "ab":
        created(api, name)

    first = said(api.call("GET", f"{JOBS}?limit=1", headers=TABLE))
    second = said(api.call("GET", f"{JOBS}?limit=1&continue={first['metadata']['continue']}", headers=TABLE))

    assert [table["rows"][0]["cells"][0] for table in (first, second)] == ["a", "b"]
    assert "continue" not in second["metadata"]
    refused(api.call("GET", f"{JOBS}?watch=1&sendInitialEvents=true"), 422, "Invalid")


def test_pages_of_pods_end_also_within_a_job(api: Api) -> None:
    for name in "abc":
        created(api, name, trainer={"command": ["true"], "numNodes": 1, "numProcPerNode": 3})
    api.call("DELETE", f"{JOBS}/b")
    path, pages = f"{CORE}/pods?limit=2", list[list[str]]()
    page = said(api.call("GET", path))
    while place := page["metadata"].get("continue"):
        pages.append([each["metadata"]["name"] for each in page["items"]])
        page = said(api.call("GET", f"{path}&continue={place}"))
    pages.append([each["metadata"]["name"] for each in page["items"]])

    assert pages == [["a-0", "a-1"], ["a-2", "c-0"], ["c-1", "c-2"]]
    for wrong in ("x", "5.job-x", "5.job-x~1", "~123456", "~x", "9" * 17):
        refused(api.call("GET", f"{path}&continue={wrong}"), 400, "BadRequest")
        refused(api.call("GET", f"{RUNTIMES}?continue={wrong}.x"), 400, "BadRequest")


def expired(api: Api, path: str, query: str) -> bool:
    """Whether a watch answers that it cannot report every change since this version."""
    found = watched(api, path, query)
    if found and found[0]["type"] == "ERROR":
        assert len(found) == 1
        assert (found[0]["object"]["reason"], found[0]["object"]["code"]) == ("Expired", 410)
        return True
    return False


@pytest.mark.long
def test_client_lists_again_where_what_it_missed_is_unknown(api: Api) -> None:
    api.post(MINE, runtime("team", "TrainingRuntime", numNodes=1))
    native = api.submit()
    created(api)
    since = f"resourceVersion={said(api.call('GET', JOBS))['metadata']['resourceVersion']}"
    api.call("DELETE", f"{JOBS}/words")
    assert not expired(api, JOBS, since)
    assert not expired(api, MINE, since)

    api.call("DELETE", f"{MINE}/team")
    api.call("PATCH", f"/v1/jobs/{native}", json={"labels": {"team": "b"}})
    assert expired(api, MINE, since)
    assert not expired(api, JOBS, since)
    assert expired(api, JOBS, f"{since}&labelSelector=team%3Da")
    api.post(f"/v1/jobs/{native}/cancel")
    api.call("DELETE", f"/v1/jobs/{native}")
    assert all(expired(api, path, since) for path in (JOBS, f"{CORE}/pods", f"{CORE}/events"))

    time.sleep(0.2)  # deletions up to a tenth of a second before a version count as after it
    listed = said(api.call("GET", JOBS))["metadata"]["resourceVersion"]
    assert not any(expired(api, path, f"resourceVersion={listed}") for path in (JOBS, MINE))
    for version, is_too_old in ((str(int(listed) - 86_400_001 * 10**5), True), ("9" * 32, False), ("0", False)):
        assert expired(api, JOBS, f"resourceVersion={version}") == is_too_old


def test_labels_that_clients_of_other_systems_change_are_audited(api: Api) -> None:
    job_id = f"job-{created(api)['metadata']['uid']}"
    patch(api, f"{JOBS}/words", "merge-patch+json", {"metadata": {"labels": {"stage": "dev"}}})
    api.call("DELETE", f"{JOBS}/words")

    lines = api.get(f"/v1/audit?target={job_id}")["entries"]

    recorded = {line["action"]: line["data"] for line in lines}
    labels = {"team": "nlp", "stage": "dev"}
    assert recorded["job.patch"] == {"labels": labels, "annotations": {}}
    assert recorded["job.withdraw"] == {"dialect": "ome"}


def test_rows_come_with_whole_objects_for_those_who_sort_them(api: Api) -> None:
    created(api)

    row = said(api.call("GET", f"{JOBS}?includeObject=Object", headers=TABLE))["rows"][0]
    single = said(api.call("GET", f"{JOBS}/words?includeObject=None", headers=TABLE))["rows"][0]

    assert row["object"] == said(api.call("GET", f"{JOBS}/words"))
    assert set(single) == {"cells"}
    refused(api.call("GET", f"{JOBS}?includeObject=All"), 422, "Invalid")
