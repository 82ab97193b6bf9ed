"""Checkpoints, attempts, the report, artifacts with ranges; queues, nodes, keys and projects; health."""

import socket
import time
from collections.abc import Iterator

import pytest

from app.domain.lifecycle.states import JobState
from app.models import Artifact, Attempt, Job, ProcessBeat
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.lifecycle import transitions
from tests.builders.factories import make_attempt, make_checkpoint, make_job, make_node
from tests.systems.apps import Api
from tests.systems.servers import RedisServer

CONTENT = bytes(range(256)) * 10


def job_with_artifact(api: Api) -> str:
    with api.db.write() as session:
        job_id = make_job(session).id
        session.add(Artifact(job_id=job_id, path="model/a b.safetensors", size_bytes=len(CONTENT), sha256="5" * 64))
    storage = api.app.extensions["trainyard"].plane.storage
    storage.write(f"jobs/{job_id}/artifacts/model/a b.safetensors", CONTENT)
    storage.write(f"jobs/{job_id}/artifacts/unrecorded", b"x")
    return str(job_id)


def test_artifacts_are_listed_and_downloaded(sqlite_api: Api):
    job_id = job_with_artifact(sqlite_api)

    listed = sqlite_api.get(f"/v1/jobs/{job_id}/artifacts")["artifacts"]
    whole = sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/model/a%20b.safetensors")

    assert listed == [{"path": "model/a b.safetensors", "size_bytes": 2560, "sha256": "5" * 64}]
    assert whole.get_data() == CONTENT
    assert whole.headers["Content-Disposition"] == "attachment"
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    assert whole.headers["Accept-Ranges"] == "bytes"
    assert sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/unrecorded").status_code == 404
    assert sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/model").status_code == 404
    head = sqlite_api.call("HEAD", f"/v1/jobs/{job_id}/artifacts/model/a%20b.safetensors")
    assert (head.status_code, head.headers["Content-Length"], head.get_data()) == (200, "2560", b"")
    head.close()


def test_event_files_are_listed_on_demand_and_are_no_part_of_the_model(sqlite_api: Api):
    job_id = job_with_artifact(sqlite_api)
    events = "tensorboard/events.out.tfevents.000001.000001"
    with sqlite_api.db.write() as session:
        session.add(Artifact(job_id=job_id, path=events, size_bytes=2, sha256="6" * 64))
    sqlite_api.app.extensions["trainyard"].plane.storage.write(f"jobs/{job_id}/{events}", b"tb")

    listed = {
        kind: [a["path"] for a in sqlite_api.get(f"/v1/jobs/{job_id}/artifacts{kind}")["artifacts"]]
        for kind in ("", "?kind=model", "?kind=tensorboard", "?kind=all")
    }

    model = ["model/a b.safetensors"]
    assert listed == {"": model, "?kind=model": model, "?kind=tensorboard": [events], "?kind=all": [*model, events]}
    assert sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts/{events}").get_data() == b"tb"
    assert sqlite_api.call("GET", f"/v1/jobs/{job_id}/artifacts?kind=weights").status_code == 422


@pytest.mark.parametrize(
    ("header", "status", "expected"),
    [
        ("bytes=0-0", 206, CONTENT[:1]),
        ("bytes=10-19", 206, CONTENT[10:20]),
        ("bytes=2550-", 206, CONTENT[2550:]),
        ("bytes=2550-99999", 206, CONTENT[2550:]),
        ("bytes=-5", 206, CONTENT[-5:]),
        ("bytes=-99999", 206, CONTENT),
        ("bytes=5-2", 200, CONTENT),
        ("bytes=-", 200, CONTENT),
        ("bytes=0-1,5-6", 200, CONTENT),
        ("lines=1-2", 200, CONTENT),
        ("bytes=2560-", 416, None),
        ("bytes=-0", 416, None),
        (f"bytes={'9' * 18}-", 416, None),
        (f"bytes={'9' * 40}-", 200, CONTENT),
    ],
)
def test_range_of_an_artifact(sqlite_api: Api, header: str, status: int, expected: bytes | None):
    path = f"/v1/jobs/{job_with_artifact(sqlite_api)}/artifacts/model/a%20b.safetensors"

    answer = sqlite_api.call("GET", path, headers={"Range": header})

    assert answer.status_code == status
    assert expected is None or answer.get_data() == expected
    assert ("Content-Range" in answer.headers) == (status in (206, 416))
    assert status != 416 or answer.headers["Content-Range"] == "bytes */2560"


def test_head_tells_of_the_whole_file_whatever_range_it_names(sqlite_api: Api):
    path = f"/v1/jobs/{job_with_artifact(sqlite_api)}/artifacts/model/a%20b.safetensors"

    head = sqlite_api.call("HEAD", path, headers={"Range": "bytes=0-9"})

    assert (head.status_code, head.headers["Content-Length"], head.get_data()) == (200, "2560", b"")
    assert head.headers["ETag"] == f'"{"5" * 64}"'
    head.close()


@pytest.mark.parametrize("condition", ['"other"', f'W/"{"5" * 64}"', "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_range_under_another_condition_is_the_whole_file(sqlite_api: Api, condition: str):
    path = f"/v1/jobs/{job_with_artifact(sqlite_api)}/artifacts/model/a%20b.safetensors"

    answer = sqlite_api.call("GET", path, headers={"Range": "bytes=100-", "If-Range": condition})

    assert (answer.status_code, answer.get_data()) == (200, CONTENT)


def test_range_beyond_a_file_that_changed_is_the_whole_file(sqlite_api: Api):
    path = f"/v1/jobs/{job_with_artifact(sqlite_api)}/artifacts/model/a%20b.safetensors"

    answer = sqlite_api.call("GET", path, headers={"Range": "bytes=99999-", "If-Range": '"older"'})

    assert answer.status_code == 200


def test_interrupted_download_goes_on_only_with_the_same_content(sqlite_api: Api):
    path = f"/v1/jobs/{job_with_artifact(sqlite_api)}/artifacts/model/a%20b.safetensors"
    etag = sqlite_api.call("GET", path).headers["ETag"]

    same = sqlite_api.call("GET", path, headers={"Range": "bytes=100-", "If-Range": etag})
    other = sqlite_api.call("GET", path, headers={"Range": "bytes=100-", "If-Range": '"other"'})

    assert (same.status_code, same.get_data()) == (206, CONTENT[100:])
    assert (other.status_code, other.get_data()) == (200, CONTENT)


def test_checkpoints_and_attempts_show_every_documented_field(api: Api):
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session), device_indices=(0, 1), share=25)
        make_checkpoint(session, job, step=20)
        make_checkpoint(session, job, step=10)
        make_checkpoint(session, job, step=5, deleted_at=utc_now())
        job_id = job.id

    saved = api.get(f"/v1/jobs/{job_id}/checkpoints")["checkpoints"]
    attempts = api.get(f"/v1/jobs/{job_id}/attempts")["attempts"]

    assert [checkpoint["step"] for checkpoint in saved] == [10, 20]
    assert set(saved[0]) == {
        "checkpoint_id",
        "step",
        "epoch",
        "created_at",
        "size_bytes",
        "sha256",
        "world_size",
        "metrics",
        "is_best",
        "is_complete",
        "uri",
    }
    assert saved[0]["is_complete"] is True
    assert set(attempts[0]) == {
        "number",
        "node_names",
        "instances",
        "device_indices",
        "device_share",
        "started_at",
        "trained_at",
        "ended_at",
        "start_type",
        "end_reason",
        "end_related_task",
        "end_recover",
        "start_step",
        "end_step",
        "exit_code",
        "cause",
        "policy",
        "lost_steps",
        "detect_seconds",
        "recover_seconds",
        "recover_before_downgrade",
    }
    assert (attempts[0]["device_indices"], attempts[0]["device_share"]) == ([[0, 1]], 0.25)


def test_elapsed_time_counts_the_running_attempt(api: Api):
    with api.db.write() as session:
        job = make_job(session, elapsed_seconds=100.0)
        make_attempt(session, job, make_node(session))
        session.flush()
        session.get_one(Attempt, (job.id, 1)).started_at = utc_now().replace(year=utc_now().year - 1)
        job_id = job.id

    assert api.get(f"/v1/jobs/{job_id}")["elapsed_seconds"] > 100 + 364 * 86400


def test_report_exists_when_the_job_has_ended(api: Api):
    job_id = api.submit(output_config={"output_model_name": "support-v3"})
    assert api.call("GET", f"/v1/jobs/{job_id}/report").status_code == 404

    api.post(f"/v1/jobs/{job_id}/cancel")

    report = api.get(f"/v1/jobs/{job_id}/report")
    assert (report["status"], report["output_model_name"]) == ("CANCELLED", "support-v3")
    assert set(report) == {
        "job_id",
        "status",
        "model_hash",
        "model_uri",
        "final_metrics",
        "compute_time_ms",
        "gpu_time_ms",
        "average_gpu_util",
        "error_message",
        "error_stack",
        "steps",
        "tokens",
        "attempts",
        "weight_files",
        "forked_from",
        "steps_saved",
        "output_model_name",
        "goodput",
        "evaluations",
        "passed",
    }


@pytest.mark.both_databases
def test_waiting_line_is_in_the_order_of_service(api: Api):
    with api.db.write() as session:
        early = make_job(session, priority=5).id
        late = make_job(session, priority=5, pending_reason="needs 1 CPU slot").id
        urgent = make_job(session, priority=9).id
        make_attempt(session, make_job(session), make_node(session))

    line = api.get("/v1/queue")
    pages = [api.get("/v1/queue?page_size=2")]
    pages.append(api.get(f"/v1/queue?page_size=2&page_token={pages[0]['next_page_token']}"))

    assert [(e["job_id"], e["position"]) for e in line["entries"]] == [(urgent, 1), (early, 2), (late, 3)]
    assert line["entries"][2]["pending_reason"] == "needs 1 CPU slot"
    assert line["entries"][0]["waiting_seconds"] >= 0
    assert [e["job_id"] for page in pages for e in page["entries"]] == [urgent, early, late]
    assert api.get(f"/v1/jobs/{late}")["queue_position"] == 3
    queue = api.get("/v1/queues")["queues"][0]
    assert (queue["name"], queue["waiting"], queue["running"]) == ("default", 3, 1)


def test_nodes_show_devices_and_which_are_in_use(api: Api):
    with api.db.write() as session:
        node = make_node(session, "n1", labels=["zone-a"])
        make_attempt(session, make_job(session), node, device_indices=(1,))

    nodes = api.get("/v1/nodes")["nodes"]

    assert nodes == [api.get("/v1/nodes/n1")]
    assert nodes[0]["labels"] == ["zone-a"]
    assert [device["in_use"] for device in nodes[0]["devices"]] == [False, True]
    assert api.call("GET", "/v1/nodes/n2").status_code == 404


def test_keys_are_made_shown_once_and_revoked(api: Api):
    made = api.data(api.post("/v1/keys", {"role": "user", "name": "ci", "expires_days": 30}), 201)

    listed = api.get("/v1/keys?order_by=name")["keys"]

    assert api.get("/v1/jobs", key=made["key"])["jobs"] == []
    assert set(made) == {"key_id", "key", "access_key", "secret_key", "role", "project", "expires_at"}
    assert made["project"] == "default"
    assert not any({"key", "secret_key", "secret_hash"} & set(key) for key in listed)
    assert api.call("DELETE", f"/v1/keys/{made['key_id']}").status_code == 204
    assert api.call("DELETE", f"/v1/keys/{made['key_id']}").status_code == 204
    assert api.call("GET", "/v1/jobs", key=made["key"]).status_code == 401
    assert api.call("DELETE", "/v1/keys/key-nothing").status_code == 404


def test_repeated_request_for_a_key_gives_the_same_key(api: Api):
    headers = {"Idempotency-Key": "k"}

    first = api.post("/v1/keys", {"role": "user"}, headers=headers)
    second = api.post("/v1/keys", {"role": "user"}, headers=headers)

    assert first.json == second.json
    assert len([key for key in api.get("/v1/keys")["keys"] if key["role"] == "user"]) == 1


def test_project_admin_reaches_keys_of_the_own_project_only(api: Api):
    admin = api.make_key(Role.ADMIN, "own")
    api.make_key(Role.USER, "other", name="foreign")
    foreign = next(key for key in api.get("/v1/keys")["keys"] if key["name"] == "foreign")

    made = api.data(api.post("/v1/keys", {"role": "viewer"}, key=admin), 201)

    assert made["project"] == "own"
    assert {key["project"] for key in api.get("/v1/keys", key=admin)["keys"]} == {"own"}
    assert api.post("/v1/keys", {"role": "user", "project": "other"}, key=admin).status_code == 404
    assert api.post("/v1/keys", {"role": "super_admin"}, key=admin).status_code == 403
    assert api.call("DELETE", f"/v1/keys/{foreign['key_id']}", key=admin).status_code == 404
    assert api.post("/v1/keys", {"role": "super_admin", "project": "own"}).status_code == 400
    assert api.post("/v1/keys", {"role": "user", "project": "nothing"}).status_code == 404


def test_projects_are_seen_by_their_own_people(api: Api):
    viewer = api.make_key(Role.VIEWER, "own")

    assert {p["name"] for p in api.get("/v1/projects")["projects"]} == {"default", "own"}
    assert [p["name"] for p in api.get("/v1/projects", key=viewer)["projects"]] == ["own"]
    assert api.get("/v1/projects/own", key=viewer)["name"] == "own"
    assert api.call("GET", "/v1/projects/default", key=viewer).status_code == 404
    assert api.get("/v1/jobs?project=own", key=viewer)["jobs"] == []
    assert api.call("GET", "/v1/jobs?project=default", key=viewer).status_code == 404


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        yield server.getsockname()[1]


def beat(api: Api) -> None:
    with api.db.write() as session:
        session.add(ProcessBeat(name="coordinator@here", kind="coordinator", last_seen_at=utc_now()))


@pytest.mark.both_databases
def test_ready_when_database_broker_and_coordinator_are_there(database, tmp_path, redis_url: str):
    api = Api(database, tmp_path, TRAINYARD_BROKER_URL=redis_url)

    before = api.problem(api.client.get("/health/ready"), 503)
    beat(api)

    assert [detail["field"] for detail in before["details"]] == ["coordinator"]
    assert api.data(api.client.get("/health/ready")) == {"status": "ready"}
    assert api.data(api.client.get("/health")) == {"status": "live"}


def test_not_ready_without_a_broker_and_its_password_is_not_shown(database, tmp_path, redis_server: RedisServer):
    api = Api(database, tmp_path, TRAINYARD_BROKER_URL="redis://:geheim@127.0.0.1:1/0")
    beat(api)

    answer = api.client.get("/health/ready")

    assert [detail["field"] for detail in api.problem(answer, 503)["details"]] == ["broker"]
    assert "geheim" not in answer.get_data(as_text=True)


def test_ready_answers_within_a_second_also_when_the_broker_hangs(sqlite_url, tmp_path, silent_port: int, database):
    api = Api(database, tmp_path, TRAINYARD_BROKER_URL=f"redis://127.0.0.1:{silent_port}/0")
    beat(api)

    began = time.monotonic()
    answer = api.client.get("/health/ready")

    assert time.monotonic() - began < 1.5
    assert [detail["field"] for detail in api.problem(answer, 503)["details"]] == ["broker"]


def test_completed_job_reports_its_model(api: Api):
    result = {"model_hash": "a" * 64, "model_uri": "file:///x", "weight_files": ["model.safetensors"]}
    with api.db.write() as session:
        job = make_job(session)
        make_attempt(session, job, make_node(session))
        job_id = job.id
    with api.db.write() as session:
        job = session.get_one(Job, job_id)
        transitions.transition(session, job, JobState.TRAINING, actor="test")
        transitions.transition(session, job, JobState.COMPLETED, actor="test", report=result)

    report = api.get(f"/v1/jobs/{job_id}/report")

    assert report["status"] == "SUCCESS"
    assert {name: report[name] for name in result} == result
