"""Rows and documents with sensible defaults: a test names only what it is about."""

import copy
from typing import Any

from sqlalchemy.orm import Session

from app.domain.ids import new_id
from app.domain.lifecycle.states import HELD, JobState
from app.domain.names import DEFAULT_PROJECT
from app.domain.units import WHOLE
from app.models import Attempt, Checkpoint, Device, Job, Lease, Node, Project, Queue, Reservation, Webhook
from app.models.base import utc_now
from app.models.queue import DEFAULT_QUEUE
from app.security.secrets import SecretBox

_DOCUMENT: dict[str, Any] = {
    "name": "tiny-sft",
    "training_config": {
        "training_type": "SFT",
        "base_model": {"model_id": "/srv/models/tiny"},
        "framework": {"type": "HF_TRAINER"},
        "hyperparameters": {"learning_rate": "1e-3", "num_train_epochs": "1"},
    },
    "data_config": {"sources": [{"path": "/srv/data/train.jsonl", "format": "jsonl"}]},
    "resource_config": {"gpu_count": 1, "device_type": "cpu"},
}


def make_document(**changes: Any) -> dict[str, Any]:
    """A submit document; ``changes`` are merged into it: ``make_document(resource_config={"gpu_count": 2})``."""
    document = copy.deepcopy(_DOCUMENT)
    _merge(document, changes)
    return document


def make_project(session: Session, name: str = DEFAULT_PROJECT) -> Project:
    """The project, made when it is not there."""
    project = session.get(Project, name) or Project(name=name)
    session.add(project)
    return project


def make_queue(session: Session, name: str = DEFAULT_QUEUE) -> Queue:
    """The queue, made when it is not there."""
    queue = session.get(Queue, name) or Queue(name=name)
    session.add(queue)
    return queue


def make_job(
    session: Session, *, state: JobState = JobState.QUEUED, document: dict[str, Any] | None = None, **columns: Any
) -> Job:
    """A job in a state; it holds nothing yet, see ``make_attempt``."""
    document = document or make_document()
    training = document["training_config"]
    values: dict[str, Any] = {
        "id": new_id("job"),
        "project": DEFAULT_PROJECT,
        "queue": DEFAULT_QUEUE,
        "name": document["name"],
        "spec": document,
        "training_type": training["training_type"],
        "framework": training["framework"]["type"],
        "priority": 5,
        "status": state,
        "queued_at": None if state is JobState.PENDING else utc_now(),
        **columns,
    }
    make_project(session, values["project"])
    make_queue(session, values["queue"])
    session.flush()
    job = Job(**values)
    session.add(job)
    session.flush()
    return job


def make_node(
    session: Session,
    name: str = "local",
    *,
    devices: int = 2,
    device_type: str = "cpu",
    memory_mb: int = 0,
    simulated: bool = False,
    **columns: Any,
) -> Node:
    """A ready node with equal devices."""
    values: dict[str, Any] = {"cpu_cores": 2, "ram_mb": 8192, "storage_mb": 65536, "boot_id": "boot-1", **columns}
    node = Node(name=name, **values)
    node.devices = [
        Device(node=name, index=index, type=device_type, memory_mb=memory_mb, simulated=simulated)
        for index in range(devices)
    ]
    session.add(node)
    session.flush()
    return node


def make_attempt(
    session: Session,
    job: Job,
    node: Node,
    *,
    device_indices: tuple[int, ...] = (0,),
    claimed: bool = True,
    share: int = WHOLE,
) -> Lease:
    """What a planner and a claim leave behind: the job's next attempt with its devices and a live lease, returned."""
    job.attempt += 1
    job.fence += 1
    job.node_names = [node.name]
    if job.state not in HELD:
        # Behind the lifecycle's back: a test of what follows need not walk the way there.
        job.status = JobState.PREPARING if claimed else JobState.SCHEDULING
    session.add(
        Attempt(
            job_id=job.id,
            number=job.attempt,
            fence=job.fence,
            node_names=[node.name],
            device_indices=[list(device_indices)],
            device_type=node.devices[0].type,
            device_share=share,
            start_type="NEW",
        )
    )
    lease = Lease(
        id=new_id("lease"),
        job_id=job.id,
        attempt=job.attempt,
        fence=job.fence,
        node=node.name,
        counter=1 if claimed else 0,
        claimed_at=utc_now() if claimed else None,
    )
    session.add(lease)
    for index in device_indices:
        session.add(Reservation(node=node.name, device_index=index, job_id=job.id, attempt=job.attempt, share=share))
    session.flush()
    return lease


def make_webhook(session: Session, *, secret: str = "s" * 16, key: str = "", **columns: Any) -> Webhook:
    """A webhook for all events of the default project, its secret sealed with ``key`` where one is given."""
    values: dict[str, Any] = {
        "id": new_id("whk"),
        "project": DEFAULT_PROJECT,
        "url": "https://receiver.example/hook",
        "event_types": [],
        "sealed_secret": SecretBox(key).seal({"secret": secret}) if key else "",
        **columns,
    }
    make_project(session, values["project"])
    session.flush()
    webhook = Webhook(**values)
    session.add(webhook)
    session.flush()
    return webhook


def make_checkpoint(session: Session, job: Job, *, step: int = 10, **columns: Any) -> Checkpoint:
    """A recorded, complete checkpoint of a job."""
    checkpoint_id = new_id("ckpt")
    values: dict[str, Any] = {
        "id": checkpoint_id,
        "project": job.project,
        "job_id": job.id,
        "attempt": max(1, job.attempt),
        "step": step,
        "size_bytes": 1024,
        "sha256": "0" * 64,
        "uri": f"file:///srv/files/jobs/{job.id}/checkpoints/{checkpoint_id}",
        **columns,
    }
    checkpoint = Checkpoint(**values)
    session.add(checkpoint)
    session.flush()
    return checkpoint


def _merge(into: dict[str, Any], changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value
