"""Jobs that are replicas: what may be asked of them, and what a live service keeps from being deleted."""

from typing import Any

import pytest

from app.domain.errors import Conflict, IllegalTransition, StillNeeded
from app.domain.lifecycle.outcomes import decide
from app.domain.lifecycle.states import JobState
from app.models import Checkpoint, Job, ModelUsage, Project, Replica, Service
from app.models.base import utc_now
from app.services.access import projects
from app.services.access.api_keys import ADMINISTRATOR
from app.services.attempts import checkpoints, leases
from app.services.jobs import deletion, details
from app.services.jobs.control import requests as control_requests
from tests.builders.factories import make_attempt, make_checkpoint, make_document, make_job, make_node
from tests.builders.serving import make_replica, make_service, replica_document
from tests.systems.apps import Api

pytestmark = pytest.mark.both_databases


def delete(api: Api, job_id: str) -> None:
    deletion.remove(api.app.extensions["trainyard"].plane, ADMINISTRATOR, job_id, artifacts=True)


@pytest.fixture
def replica(api: Api) -> str:
    with api.db.write() as session:
        return make_replica(session, make_service(session)).id


@pytest.mark.parametrize(
    ("verb", "way_out"),
    [
        ("pause", "POST /v1/services/support/pause"),
        ("checkpoint", "nothing to save"),
        ("retry", "GET /v1/services/support/replicas"),
    ],
)
def test_what_a_service_does_is_refused_for_its_replica(api: Api, replica: str, verb: str, way_out: str) -> None:
    problem = api.problem(api.post(f"/v1/jobs/{replica}/{verb}"), 409)

    assert problem["code"] == "INVALID_STATE"
    assert f"{replica} is a replica of the service support" in problem["message"]
    assert way_out in problem["message"]


def test_replica_can_be_cancelled_and_deleted(api: Api, replica: str) -> None:
    assert api.data(api.post(f"/v1/jobs/{replica}/cancel"))["status"] == "CANCELLED"

    assert api.call("DELETE", f"/v1/jobs/{replica}").status_code == 204
    with api.db.read() as session:
        assert session.get(Replica, replica) is None
        assert session.query(Service).count() == 1


def test_replica_is_listed_by_its_kind(api: Api, replica: str) -> None:
    api.submit()

    assert [job["job_id"] for job in api.get("/v1/jobs?kind=replica")["jobs"]] == [replica]
    assert replica not in [job["job_id"] for job in api.get("/v1/jobs?kind=training")["jobs"]]
    assert len(api.get("/v1/jobs")["jobs"]) == 2
    assert api.get(f"/v1/jobs/{replica}")["kind"] == "replica"


def test_replica_is_not_submitted_by_anyone(api: Api) -> None:
    problem = api.problem(api.post("/v1/jobs", replica_document()), 422)

    assert problem["details"][0]["field"] == "kind"
    assert "POST /v1/services" in problem["details"][0]["message"]
    typed = api.problem(api.post("/v1/jobs", make_document(training_config={"training_type": "REPLICA"})), 422)
    assert typed["details"][0]["field"] == "training_config.training_type"


@pytest.mark.parametrize("kind", ["failed", "requeued", "preempted"])
def test_replica_that_is_to_drain_is_not_started_again(kind: Any) -> None:
    decision = decide(kind, state=JobState.SERVING, requested="drain", preemption="requeue", recovery=None)

    assert decision.state is JobState.CANCELLED


def test_drained_replica_is_completed() -> None:
    decision = decide("completed", state=JobState.SERVING, requested="drain", preemption="requeue", recovery=None)

    assert decision.state is JobState.COMPLETED


def test_drain_before_the_claim_cancels_the_attempt(api: Api) -> None:
    with api.db.write() as session:
        job = make_replica(session, make_service(session))
        make_attempt(session, job, make_node(session), claimed=False)
        job.requested = "drain"
        job_id = job.id

    assert leases.claim(api.db, job_id=job_id, attempt=1, node="local", boot_id="boot-1") is None
    with api.db.read() as session:
        assert session.get_one(Job, job_id).state is JobState.CANCELLED


def test_drain_is_shown_as_requested(api: Api) -> None:
    with api.db.write() as session:
        job = make_replica(session, make_service(session), state=JobState.SERVING, requested="drain")
        assert details.details(session, job).requested == "drain"

        with pytest.raises(IllegalTransition, match="cannot be paused"):
            control_requests.request_pause(session, job.id, actor="key-1", saves=False, force=True)


# ---- what a live service keeps


def served(session: Any, *, by_checkpoint: bool = False) -> tuple[Job, Checkpoint, Service]:
    trained = make_job(session, state=JobState.COMPLETED)
    saved = make_checkpoint(session, trained)
    model: dict[str, Any] = {"job_id": trained.id, "checkpoint_id": saved.id if by_checkpoint else None}
    key = saved.id if by_checkpoint else trained.id
    return trained, saved, make_service(session, model_key=key, base=replica_document(**model))


def test_job_whose_model_is_served_is_not_deleted(api: Api) -> None:
    with api.db.write() as session:
        trained, _, service = served(session)
        job_id, service_id = trained.id, service.id

    with pytest.raises(StillNeeded, match=f"the service support serves what job {job_id} has made"):
        delete(api, job_id)

    with api.db.write() as session:
        session.get_one(Service, service_id).ended_at = utc_now()
    delete(api, job_id)
    with api.db.read() as session:
        assert session.get(Job, job_id) is None


def test_checkpoint_that_is_served_is_not_pruned(api: Api) -> None:
    with api.db.write() as session:
        trained, saved, service = served(session, by_checkpoint=True)
        assert checkpoints.unneeded(session, trained.id, [saved.id]) == {}

        service.ended_at = utc_now()
        session.flush()

        assert set(checkpoints.unneeded(session, trained.id, [saved.id])) == {saved.id}


def test_project_with_a_service_is_not_deleted_and_takes_ended_ones_with_it(api: Api) -> None:
    plane = api.app.extensions["trainyard"].plane
    with api.db.write() as session:
        session.add(Project(name="team"))
        session.flush()
        service_id = make_service(session, project="team").id
        usage = {"day": utc_now().date(), "key_id": "key-1", "model": "support", "project": "team"}
        session.add(ModelUsage(**usage, service_id=service_id))

    with pytest.raises(Conflict, match="1 services"):
        projects.delete(api.db, plane.storage, ADMINISTRATOR, "team")

    with api.db.write() as session:
        session.get_one(Service, service_id).ended_at = utc_now()
    projects.delete(api.db, plane.storage, ADMINISTRATOR, "team")
    with api.db.read() as session:
        assert session.get(Service, service_id) is None
        assert session.query(ModelUsage).count() == 0
