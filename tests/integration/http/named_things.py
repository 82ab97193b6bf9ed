"""What the paths of routes name, for the table of who may do what."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.domain.lifecycle.states import JobState
from app.domain.model_names import ft_name
from app.domain.serving.states import ServiceState
from app.domain.sweeps.states import SweepState
from app.models import (
    Artifact,
    AuditEntry,
    File,
    ModelPermission,
    RegisteredModel,
    StoredBaseModel,
    TrainingRuntime,
    Upload,
    Webhook,
    WebhookDelivery,
)
from app.models.base import utc_now
from app.security.permissions import Role
from app.security.secrets import SecretBox
from app.services.access import api_keys
from app.services.interactive import recordings
from app.storage.object_keys import user_file_key
from tests.builders.batches import make_batch
from tests.builders.factories import make_document, make_job, make_node, make_project, make_queue
from tests.builders.interactive import make_session
from tests.builders.serving import make_service
from tests.builders.shards import batch_document
from tests.builders.sweeps import make_sweep, make_trial
from tests.integration.compat.foreign_routes import OWN
from tests.systems.apps import SECRET_KEY, Api

OTHER = "team-b"
ARTIFACT = "model.safetensors"
NODE, QUEUE = "node-1", "night"
_numbers = count(1)


class Things:
    """What the paths name: made anew after each call that may have changed it, so that no answer depends on another."""

    def __init__(self, api: Api) -> None:
        self._api = api
        with api.db.write() as session:
            make_project(session, OTHER)
            make_node(session, NODE)
            make_queue(session, QUEUE)
            make_job(session, project=OWN)

    def values(self, rule: str) -> dict[str, str]:
        values = {"name": _name_of(rule), "path": ARTIFACT, "project_id": OWN, "task_id": "worker-0", "namespace": OWN}
        values |= {"cluster_runtime_name": "pytorch-runtime"}
        values |= {"algorithm_type": "hyperparameter_search", "algorithm_name": "tpe_search"}
        makers: dict[str, Callable[[Session], dict[str, str]]] = {
            "<job_id>": self._job,
            "<session_id>": self._session,
            "<evaluation_id>": self._evaluation,
            "<workload_id>": self._workload,
            "<webhook_id>": self._delivery,
            "<entry_id>": self._entry,
            "<distributed_id>": self._distributed,
            "<training_job_id>": self._training_job,
            "<object_name>": self._object,
            "<pod_name>": self._pod,
            "<runtime_name>": self._runtime,
            "<model_name>": self._model,
            "<weights_name>": self._weights,
            "<sweep_id>": self._sweep,
            "<search_id>": self._search,
            "<service_id>": self._service,
            "<file_id>": self._file,
            "<upload_id>": self._upload,
            "<batch_id>": self._batch,
            "<path:model>": self._fine_tune,
            "/<model>/": self._permission,
        }
        with self._api.db.write() as session:
            for part, make in makers.items():
                if part in rule:
                    values |= make(session)
        if "<key_id>" in rule:
            box = SecretBox(SECRET_KEY)
            values["key_id"] = api_keys.create(self._api.db, box, role=Role.VIEWER, project=OWN).row.id
        return values

    def _evaluation(self, session: Session) -> dict[str, str]:
        document = batch_document(benchmarks=1)
        return {"evaluation_id": make_job(session, project=OWN, state=JobState.COMPLETED, document=document).id}

    def _job(self, session: Session) -> dict[str, str]:
        """An ended one, whose streams end."""
        job_id = make_job(session, project=OWN, state=JobState.COMPLETED).id
        session.add(Artifact(job_id=job_id, path=ARTIFACT, size_bytes=1, sha256="5" * 64))
        self._api.app.extensions["trainyard"].plane.storage.write(f"jobs/{job_id}/artifacts/{ARTIFACT}", b"x")
        return {"job_id": job_id}

    def _session(self, session: Session) -> dict[str, str]:
        """A recorded one that has not ended."""
        made = self._job(session)
        row = make_session(session, made["job_id"], recorded=True)
        storage = self._api.app.extensions["trainyard"].plane.storage
        recordings.write_piece(storage, made["job_id"], row.id, number=0, data=b"{}\n")
        return {**made, "session_id": row.id}

    def _workload(self, session: Session) -> dict[str, str]:
        return {"workload_id": self._job(session)["job_id"].removeprefix("job-")}

    def _training_job(self, session: Session) -> dict[str, str]:
        return {"training_job_id": self._job(session)["job_id"].removeprefix("job-")}

    def _distributed(self, session: Session) -> dict[str, str]:
        document = make_document(resource_config={"node_count": 2})
        job_id = make_job(session, project=OWN, state=JobState.COMPLETED, document=document).id
        return {"distributed_id": job_id.removeprefix("job-")}

    def _object(self, session: Session) -> dict[str, str]:
        return {"object_name": self._job(session)["job_id"]}

    def _pod(self, session: Session) -> dict[str, str]:
        return {"pod_name": f"{self._job(session)['job_id']}-0"}

    def _runtime(self, session: Session) -> dict[str, str]:
        name = f"runtime-{next(_numbers)}"
        session.add(TrainingRuntime(id=new_id("rt"), project=OWN, name=name, spec={}))
        return {"runtime_name": name}

    def _model(self, session: Session) -> dict[str, str]:
        name = f"model-{next(_numbers)}"
        session.add(
            StoredBaseModel(id=new_id("bm"), project=OWN, name=name, spec={"storage": {"storageUri": "/srv/m"}})
        )
        return {"model_name": name}

    def _weights(self, session: Session) -> dict[str, str]:
        report = {"model_uri": "file:///srv/results/model"}
        return {"weights_name": make_job(session, project=OWN, state=JobState.COMPLETED, report=report).id}

    def _sweep(self, session: Session) -> dict[str, str]:
        """A completed one with a trial, whose stream ends."""
        sweep = make_sweep(session, project=OWN, status=SweepState.COMPLETED)
        make_trial(session, sweep)
        return {"sweep_id": sweep.id, "number": "0"}

    def _service(self, session: Session) -> dict[str, str]:
        """An ended one, whose stream ends."""
        ended: dict[str, Any] = {"status": ServiceState.ENDED, "ended_at": utc_now()}
        return {"service_id": make_service(session, f"service-{next(_numbers)}", project=OWN, **ended).id}

    def _search(self, session: Session) -> dict[str, str]:
        """One of ModelArts."""
        foreign = {"modelarts": {"name": "search", "parameters": {"learning_rate": "lr"}}}
        sweep = make_sweep(session, project=OWN, status=SweepState.COMPLETED, foreign=foreign)
        make_trial(session, sweep)
        search_id = sweep.id.removeprefix("sweep-")
        return {"search_id": search_id, "trial_name": "0", "parameter_name": "lr"}

    def _file(self, session: Session) -> dict[str, str]:
        file_id = new_id("file")
        about = {"created_by": "x", "filename": "a", "purpose": "user_data", "size_bytes": 1, "sha256": "5" * 64}
        session.add(File(id=file_id, project=OWN, **about))
        self._api.app.extensions["trainyard"].plane.storage.write(user_file_key(OWN, file_id), b"x")
        return {"file_id": file_id}

    def _upload(self, session: Session) -> dict[str, str]:
        about = {"created_by": "x", "filename": "a", "purpose": "user_data", "mime_type": "text/plain"}
        upload = Upload(
            id=new_id("upload"), project=OWN, size_bytes=1, expires_at=utc_now() + timedelta(hours=1), **about
        )
        session.add(upload)
        return {"upload_id": upload.id}

    def _batch(self, session: Session) -> dict[str, str]:
        return {"batch_id": make_batch(session, project=OWN).id}

    def _fine_tune(self, session: Session) -> dict[str, str]:
        job_id = make_job(session, project=OWN, state=JobState.COMPLETED).id
        name = ft_name("tiny", OWN, "", job_id)
        session.add(RegisteredModel(name=name, kind="fine_tune", project=OWN, job_id=job_id, created_by="x"))
        return {"model": name}

    def _permission(self, session: Session) -> dict[str, str]:
        named = self._fine_tune(session)
        session.flush()
        name, permission_id = named["model"], new_id("cp")
        session.add(ModelPermission(id=permission_id, model=name, name=name, project=OTHER, created_by="x"))
        return {**named, "permission_id": permission_id}

    def _delivery(self, session: Session) -> dict[str, str]:
        sealed = SecretBox(SECRET_KEY).seal({"secret": "x" * 32})
        hook = Webhook(
            id=new_id("hook"), project=OWN, url="https://hooks.example.com/", event_types=[], sealed_secret=sealed
        )
        session.add(hook)
        session.flush()
        delivery = WebhookDelivery(
            id=new_id("dlv"),
            webhook_id=hook.id,
            event_id=new_id("evt"),
            event_type="status",
            payload={},
            state="delivered",
            finished_at=utc_now(),
        )
        session.add(delivery)
        return {"webhook_id": hook.id, "delivery_id": delivery.id}

    def _entry(self, session: Session) -> dict[str, str]:
        entry = AuditEntry(id=new_id("audit"), project=OWN, actor="x", action="job.submit")
        session.add(entry)
        return {"entry_id": entry.id}


def _name_of(rule: str) -> str:
    named = {"nodes": NODE, "queues": QUEUE, "projects": OWN}
    return next((name for part, name in named.items() if f"/{part}/<name>" in rule), "nothing")
