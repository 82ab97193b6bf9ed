"""Two projects with something in each: what one has planted must never be found in an answer to the other."""

import secrets
from dataclasses import dataclass
from typing import Any

from app.domain.ids import new_id
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.model_names import ft_name
from app.domain.serving.states import ServiceState
from app.models import Artifact, File, Job, RegisteredModel, Service
from app.models.base import utc_now
from app.security.permissions import Role
from app.services.interactive import recordings
from app.services.lifecycle import transitions
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue, TelemetryReports
from app.storage.object_keys import user_file_key
from tests.builders.batches import make_batch
from tests.builders.factories import make_attempt, make_checkpoint, make_job, make_node
from tests.builders.interactive import SHELL_REQUEST, make_session
from tests.builders.service_requests import service_request
from tests.systems.apps import Api

ARTIFACT = "model.safetensors"
SECTIONS = ("training_config", "data_config", "resource_config", "output_config", "scheduling_config")
_EVALUATION = {
    "model": {"model_uri": "/srv/models/tiny"},
    "benchmarks": [{"name": "loss", "dataset": "/srv/data/val.jsonl"}],
    "resource_config": {"device_type": "cpu"},
}
_ENDED = {JobState.COMPLETED: {}, JobState.FAILED: {"error_type": "TRAINER_ERROR"}, JobState.CANCELLED: {}}


@dataclass(frozen=True)
class Tenant:
    """``mark`` stands in everything that the project has; ``ids`` are values of path parameters by their name."""

    name: str
    key: str
    mark: str
    ids: dict[str, list[str]]


def make_tenant(api: Api, name: str, role: Role = Role.ADMIN) -> Tenant:
    """A project with a waiting, a running and some ended jobs, with results and history, and a second key."""
    mark = f"mark{secrets.token_hex(6)}"
    key = api.make_key(role, name, name=f"key of {mark}")
    waiting = api.submit(key=key, **_changes(mark))
    document = api.get(f"/v1/jobs/{waiting}", key=key)
    spec = {section: document[section] for section in ("name", "labels", *SECTIONS)}
    running = _running_job(api, name, mark, spec)
    ended = [_ended_job(api, name, mark, spec, state) for state in _ENDED]
    api.data(api.post("/v1/keys", {"name": mark, "role": "viewer"}, key=key), 201)
    hook = api.post("/v1/webhooks", {"url": "https://example.org/x", "description": mark}, key=key)
    webhook_id = api.data(hook, 201)["webhook_id"]
    evaluation = api.data(api.post("/v1/evaluations", {"name": mark, **_EVALUATION}, key=key), 201)["evaluation_id"]
    key_ids = [row["key_id"] for row in api.get("/v1/keys", key=key)["keys"]]
    job_ids = [waiting, running, *ended]
    uuids = [job_id.removeprefix("job-") for job_id in job_ids]
    ids = {
        "job_id": job_ids,
        "evaluation_id": [evaluation],
        "workload_id": uuids,
        "training_job_id": uuids,
        "project_id": [name],
        "namespace": [name],
        "object_name": job_ids,
        "weights_name": job_ids,
        "pod_name": [f"{job_id}-0" for job_id in job_ids],
        "cluster_runtime_name": ["pytorch-runtime"],
        "task_id": ["worker-0"],
        "key_id": key_ids,
        "session_id": [_session(api, running, mark)],
        "path": [ARTIFACT],
        "name": [name],
        "webhook_id": [webhook_id],
        "service_id": _services(api, mark, key),
        "file_id": [_file(api, name, mark)],
        "upload_id": [_upload(api, mark, key)],
        "batch_id": [_batch(api, name, mark)],
        "model": [_fine_tune(api, name, ended[0])],
    }
    return Tenant(name, key, mark, ids)


def _session(api: Api, job_id: str, mark: str) -> str:
    """One whose recording has the mark, too."""
    with api.db.write() as session:
        request = {**SHELL_REQUEST, "command": [mark]}
        session_id = make_session(session, job_id, kind="exec", request=request, recorded=True).id
    storage = api.app.extensions["trainyard"].plane.storage
    recordings.write_piece(storage, job_id, session_id, number=0, data=mark.encode())
    return session_id


def _services(api: Api, mark: str, key: str) -> list[str]:
    """One that is live, and one that has ended."""
    ids = []
    for name in ("live", "ended"):
        body = {**service_request(name=name), "environment": {"PLACE": mark}}
        ids.append(api.data(api.post("/v1/services", body, key=key), 201)["service_id"])
    with api.db.write() as session:
        service = session.get_one(Service, ids[1])
        service.status, service.ended_at = ServiceState.ENDED, utc_now()
    return ids


def _file(api: Api, project: str, mark: str) -> str:
    file_id, content = new_id("file"), mark.encode()
    about = {"filename": mark, "purpose": "user_data", "size_bytes": len(content), "sha256": "5" * 64}
    with api.db.write() as session:
        session.add(File(id=file_id, project=project, created_by=mark, **about))
    api.app.extensions["trainyard"].plane.storage.write(user_file_key(project, file_id), content)
    return file_id


def _upload(api: Api, mark: str, key: str) -> str:
    asked = {"filename": mark, "purpose": "user_data", "bytes": 5, "mime_type": "text/plain"}
    answer = api.post("/v1/uploads", asked, key=key)
    assert answer.json is not None, answer.text
    return str(answer.json["id"])


def _batch(api: Api, project: str, mark: str) -> str:
    with api.db.write() as session:
        return make_batch(session, project=project, created_by=mark, tags={"team": mark}).id


def _fine_tune(api: Api, project: str, job_id: str) -> str:
    name = ft_name("tiny", project, "", job_id)
    with api.db.write() as session:
        session.add(RegisteredModel(name=name, kind="fine_tune", project=project, job_id=job_id, created_by="x"))
    return name


def _changes(mark: str) -> dict[str, Any]:
    return {"name": mark, "labels": {"team": mark}, "training_config": {"environment": {"PLACE": mark}}}


def _running_job(api: Api, project: str, mark: str, spec: dict[str, Any]) -> str:
    with api.db.write() as session:
        job = make_job(session, project=project, document=spec, labels={"team": mark})
        lease = make_attempt(session, job, make_node(session, f"node-{project}"))
        _tell(session, job, mark)
    points = [MetricValue(name=mark, step=step, at=utc_now(), value=1.0) for step in range(3)]
    stored_metrics.store(api.db, job_id=job.id, attempt=1, fence=lease.fence, reports=TelemetryReports(points=points))
    return job.id


def _ended_job(api: Api, project: str, mark: str, spec: dict[str, Any], state: JobState) -> str:
    content = mark.encode()
    with api.db.write() as session:
        job = make_job(
            session,
            project=project,
            document=spec,
            labels={"team": mark},
            state=state,
            error_message=mark,
            finished_at=utc_now(),
            **_ENDED[state],
        )
        checkpoint = make_checkpoint(session, job, uri=f"file:///srv/{mark}", metrics={mark: 1.0})
        job.latest_checkpoint_id, job.latest_metrics = checkpoint.id, {mark: 2.0}
        session.add(Artifact(job_id=job.id, path=ARTIFACT, size_bytes=len(content), sha256="5" * 64))
        _tell(session, job, mark)
    api.app.extensions["trainyard"].plane.storage.write(f"jobs/{job.id}/artifacts/{ARTIFACT}", content)
    return job.id


def _tell(session: Any, job: Job, mark: str) -> None:
    transitions.record_event(session, job.id, EventType.WARNING, actor="node", message=mark, data={"said": mark})
