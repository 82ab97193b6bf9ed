"""Services over the API: creating, reading, changing and ending them, and what is read of their replicas."""

from typing import Any

import pytest

from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.models import Job, Replica, Service, ServiceLoad
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from tests.builders.factories import make_attempt, make_job, make_node
from tests.builders.service_requests import service_request
from tests.systems.apps import Api

DEFAULTS: dict[str, Any] = {
    "task": "generate",
    "engine": "auto",
    "adapters": {"from": "project", "max_loaded": 32, "max_rank": 64},
    "replicas": {"min": 0, "max": 1, "target_in_flight": 16, "idle_seconds": 600},
    "limits": {"max_context": None, "max_output_tokens": 2048, "max_waiting": 200, "cold_start_seconds": 180},
    "defaults": {},
}


def create(api: Api, **changes: Any) -> str:
    return str(api.data(api.post("/v1/services", service_request(**changes)), 201)["service_id"])


def change(api: Api, handle: str, **changes: Any) -> dict[str, Any]:
    return dict(api.data(api.call("PATCH", f"/v1/services/{handle}", json=changes)))


def answering_replica(api: Api, service_id: str, number: int = 0, *, is_draining: bool = False) -> Job:
    """A replica whose relay has answered a probe."""
    with api.db.write() as session:
        service = session.get_one(Service, service_id)
        job = make_job(session, training_type="REPLICA", project=service.project)
        lease = make_attempt(session, job, make_node(session, f"node-{number}"))
        job.status = JobState.SERVING
        session.flush()
        session.add(
            Replica(
                job_id=job.id,
                service_id=service_id,
                number=number,
                revision=1,
                drain_requested_at=utc_now() if is_draining else None,
                attempt=1,
                fence=lease.fence,
                address="127.0.0.1",
                port=4000,
                answers_since=utc_now(),
            )
        )
        service.next_number = number + 1
    return job


@pytest.mark.both_databases
def test_a_service_is_shown_with_its_defaults_by_id_and_by_name(api: Api) -> None:
    answer = api.post("/v1/services", service_request(defaults={"temperature": 0.5}))
    created = api.data(answer, 201)

    shown = api.get(f"/v1/services/{created['service_id']}")

    assert answer.headers["Location"] == f"/v1/services/{created['service_id']}"
    assert created["message"] == "support gets its first replica when it is asked something"
    assert {**DEFAULTS, "defaults": {"temperature": 0.5}}.items() <= shown.items()
    assert shown["model"] == {"model_uri": "/srv/models/tiny", "quantization": "none"}
    assert (shown["name"], shown["project"], shown["status"]) == ("support", "default", "ACTIVE")
    assert (shown["is_automatic"], shown["revision"], shown["answering"], shown["starting"]) == (False, 1, 0, 0)
    assert (shown["in_flight"], shown["waiting"], shown["requested_at"]) == (0, 0, None)
    assert "max_runtime_seconds" not in shown["scheduling_config"]
    assert api.get("/v1/services/support") == shown


def test_a_dry_run_creates_nothing(sqlite_api: Api) -> None:
    with sqlite_api.db.write() as session:
        make_node(session, "n1")

    plan = sqlite_api.data(sqlite_api.post("/v1/services?dry_run=true", service_request()))

    assert [node["name"] for node in plan["plan"]["candidate_nodes"]] == ["n1"]
    assert sqlite_api.get("/v1/services")["total_count"] == 0


def test_the_same_key_creates_one_service(sqlite_api: Api) -> None:
    headers = {"Idempotency-Key": "once"}
    first, again = (sqlite_api.post("/v1/services", service_request(), headers=headers) for _ in range(2))

    assert sqlite_api.data(first, 201) == sqlite_api.data(again, 201)
    assert again.headers["Idempotency-Replayed"] == "true"


def test_secrets_of_the_environment_are_not_shown(sqlite_api: Api) -> None:
    create(sqlite_api, environment={"HF_TOKEN": "hf_secret", "PLAIN": "x"})

    answer = sqlite_api.call("GET", "/v1/services/support")

    assert "hf_secret" not in answer.text
    assert sqlite_api.data(answer)["environment"] == {"HF_TOKEN": "***", "PLAIN": "x"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("image", {"reference": "ghcr.io/other/image:1"}), ("mounts", [{"type": "empty", "path": "/scratch"}])],
)
def test_secrets_of_another_key_stay_with_the_programs_they_were_given_to(
    sqlite_api: Api, name: str, value: Any
) -> None:
    create(sqlite_api, environment={"HF_TOKEN": "hf_secret"})
    other = sqlite_api.make_key(Role.USER, "default")

    def changed(key: str, **changes: Any) -> Any:
        return sqlite_api.call("PATCH", "/v1/services/support", json={"resource_config": changes}, key=key)

    refused = changed(other, **{name: value})

    assert refused.status_code == 409
    assert f"resource_config.{name} changes what service support runs" in refused.json["error"]["message"]
    assert changed(other, device_type="cpu", gpu_count=2).status_code == 200
    assert changed(sqlite_api.key, **{name: value}).status_code == 409, "another key may have given secrets since"


@pytest.mark.both_databases
def test_lists_leave_out_ended_services_unless_asked_for(api: Api) -> None:
    ended, live = create(api, name="one"), create(api, name="two")
    api.call("DELETE", f"/v1/services/{ended}")
    with api.db.write() as session:
        service = session.get_one(Service, ended)
        service.status, service.ended_at = "ENDED", utc_now()

    def listed(query: str) -> list[str]:
        return [each["service_id"] for each in api.get(f"/v1/services{query}")["services"]]

    assert listed("") == [live]
    assert listed("?status=ENDED") == [ended]
    assert listed("?name=two&project=default&order_by=name") == [live]
    assert api.call("GET", "/v1/services/one").status_code == 404
    assert api.get(f"/v1/services/{ended}")["status"] == "ENDED"


def test_lists_are_of_the_callers_project(sqlite_api: Api) -> None:
    create(sqlite_api)

    assert sqlite_api.get("/v1/services", key=sqlite_api.make_key(Role.USER, "other"))["services"] == []
    assert len(sqlite_api.get("/v1/services", key=sqlite_api.make_key(Role.VIEWER))["services"]) == 1


@pytest.mark.both_databases
def test_scaling_makes_no_new_revision_and_other_changes_do(api: Api) -> None:
    create(api)

    scaled = change(api, "support", replicas={"max": 4})
    assert (scaled["replicas"]["max"], scaled["replicas"]["min"], scaled["revision"]) == (4, 0, 1)

    changed = change(api, "support", limits={"max_output_tokens": 64}, defaults={"temperature": 0.2})
    assert (changed["limits"]["max_output_tokens"], changed["limits"]["max_waiting"]) == (64, 200)
    assert (changed["defaults"], changed["revision"]) == ({"temperature": 0.2}, 2)

    moved = change(api, "support", model={"model_uri": "/srv/models/other"})
    assert (moved["model"]["model_uri"], moved["revision"]) == ("/srv/models/other", 3)

    raised = change(api, "support", scheduling_config={"priority": 9}, environment={"MODE": "fast"})
    assert (raised["scheduling_config"]["priority"], raised["environment"]) == (9, {"MODE": "fast"})
    assert raised["revision"] == 4


def test_a_paused_service_is_resumed(sqlite_api: Api) -> None:
    create(sqlite_api)

    assert sqlite_api.data(sqlite_api.post("/v1/services/support/pause"))["status"] == "PAUSED"
    assert sqlite_api.data(sqlite_api.post("/v1/services/support/resume", {}))["status"] == "ACTIVE"


def test_a_deleted_service_is_ending_and_has_a_history(sqlite_api: Api) -> None:
    service_id = create(sqlite_api)

    assert sqlite_api.call("DELETE", "/v1/services/support").status_code == 204

    assert sqlite_api.get(f"/v1/services/{service_id}")["status"] in ("ENDING", "ENDED")
    events = sqlite_api.get(f"/v1/services/{service_id}/events")["events"]
    assert events[0]["type"] == "service.created"
    assert set(events[0]) == {"id", "at", "type", "actor", "message", "data"}


@pytest.mark.both_databases
def test_load_and_replicas_are_counted(api: Api) -> None:
    service_id = create(api)
    answers, drains = answering_replica(api, service_id), answering_replica(api, service_id, 1, is_draining=True)
    with api.db.write() as session:
        for gateway in ("gw-1", "gw-2"):
            streams = [0, 0, 0, 0, 10]  # of 100 to 150 ms
            session.add(
                ServiceLoad(
                    service_id=service_id, gateway=gateway, in_flight=3, waiting=1, requests=9, first_tokens=streams
                )
            )
        for job, reported in ((answers, 40.5), (drains, "NaN")):
            values = {"in_flight": 2.0, "tokens_per_second": reported, "adapters": 3.0}
            session.get_one(Job, job.id).latest_metrics = values

    shown = api.get("/v1/services/support")
    replicas = api.get("/v1/services/support/replicas")["replicas"]

    assert (shown["answering"], shown["in_flight"], shown["waiting"]) == (1, 6, 2)
    assert (shown["tokens_per_second"], shown["adapters_loaded"]) == (40.5, 6)
    assert shown["first_token_seconds"] == pytest.approx(0.1475)
    assert [(each["number"], each["job_id"], each["answers"], each["is_draining"]) for each in replicas] == [
        (1, drains.id, False, True),
        (0, answers.id, True, False),
    ]
    assert replicas[1]["status"] == "SERVING"
    assert api.get("/v1/services/support/replicas?status=COMPLETED")["replicas"] == []


def test_metrics_are_the_load_and_the_curves_of_live_replicas(sqlite_api: Api) -> None:
    service_id = create(sqlite_api)
    job = answering_replica(sqlite_api, service_id)
    points = [MetricValue(name="tokens_per_second", step=step, at=utc_now(), value=10.0) for step in (1, 2)]
    points.append(MetricValue(name="waiting", step=1, at=utc_now(), value=0.0))
    stored_metrics.store(
        sqlite_api.db, job_id=job.id, attempt=1, fence=job.fence, reports=TelemetryReports(points=points)
    )

    found = sqlite_api.get("/v1/services/support/metrics?names=tokens_per_second")

    assert found["now"] == {"in_flight": 0, "waiting": 0, "answering": 1}
    assert [[step, value] for step, _, value in found["replicas"]["0"].pop("tokens_per_second")] == [[1, 10], [2, 10]]
    assert found["replicas"] == {"0": {}}


def test_logs_are_of_the_newest_replica_that_has_started(sqlite_api: Api) -> None:
    service_id = create(sqlite_api)
    assert sqlite_api.get("/v1/services/support/logs") == {"lines": []}
    answering_replica(sqlite_api, service_id)
    answering_replica(sqlite_api, service_id, 1)

    assert sqlite_api.get("/v1/services/support/logs?tail=5") == {"lines": []}
    assert sqlite_api.get("/v1/services/support/logs?replica=0") == {"lines": []}


def test_events_are_streamed_until_the_service_has_ended(sqlite_api: Api) -> None:
    service_id = create(sqlite_api)
    with sqlite_api.db.write() as session:
        service = session.get_one(Service, service_id)
        service.status, service.ended_at = "ENDED", utc_now()

    answer = sqlite_api.call("GET", f"/v1/services/{service_id}/events", headers={"Accept": "text/event-stream"})

    assert answer.mimetype == "text/event-stream"
    assert '"type": "service.created"' in answer.text.replace('":"', '": "')
    assert answer.text.endswith("data: [DONE]\n\n")


def test_an_unknown_service_is_missing(sqlite_api: Api) -> None:
    for handle in ("none", new_id("service"), "x" * 300):
        assert "no service" in sqlite_api.problem(sqlite_api.call("GET", f"/v1/services/{handle}"), 404)["message"]
