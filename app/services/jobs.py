"""Submitting and cancelling jobs: each one transaction, and a wake-up after its commit."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, NotFound
from app.domain.events import EventType
from app.domain.fitting import refuse_unfitting
from app.domain.hyperparameters import fixed_on_resume
from app.domain.ids import new_id
from app.domain.job_rules import locations
from app.domain.job_spec import JobSpec, comparable_data, from_document
from app.domain.locations import ReadingRules, candidates, is_hub_id, job_of_path, local_path
from app.domain.resources import request_of
from app.models import Checkpoint, Job, JobLabel
from app.security.permissions import Caller
from app.services import checkpoints, controls, lifecycle, nodes, projects, queues
from app.services.control_plane import ControlPlane
from app.services.idempotency import Remember, forget

_JOB_ID = re.compile(r"job-[0-9a-f-]{36}")
_RESUME_FIELD = "training_config.resume_from_checkpoint"
LATEST, BEST = "latest", "best"  # of a job's checkpoints, as ``job-…:best`` names them
PRUNED_MEANWHILE_TRIES = 3  # a job that runs may retire what was just its newest


def submit(
    plane: ControlPlane,
    caller: Caller,
    document: Mapping[str, Any],
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    remember: Remember = forget,
) -> Job:
    """Store a new PENDING job; ``document`` has the shape that the schema checks, ``forwarded`` the user's tokens.

    Raises InvalidRequest for the first rule it breaks; nothing is written then.
    """
    project = project or caller.home_project
    spec = from_document(document, plane.reading, forwarded)
    _refuse_what_never_fits(plane, spec)
    with plane.db.write() as session:
        projects.visible(session, caller, project)
        queues.require(session, spec.queue, field="scheduling_config.queue")
        refuse_foreign_results(session, plane.reading, project, spec)
        job = _store(session, plane, caller, project, spec)
        remember(session, job)
    plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
    return job


def cancel(plane: ControlPlane, caller: Caller, job_id: str, *, reason: str = "", remember: Remember = forget) -> Job:
    """Cancel at once what nobody works on, else wish it; idempotent. Raises IllegalTransition when it has ended."""
    with plane.db.write() as session:
        find(session, caller, job_id)
        job = controls.wish_cancel(session, job_id, actor=caller.actor, reason=reason)
        remember(session, job)
    if job.requested == "cancel":
        for node in job.node_names:
            plane.dispatcher.nudge(job.id, node)
    return job


def find(session: Session, caller: Caller, job_id: str) -> Job:
    """The job; raises NotFound alike for one that does not exist and one of a project that is not the caller's."""
    job = session.get(Job, job_id) if _JOB_ID.fullmatch(job_id) else None
    if job is None or not caller.sees(job.project):
        raise NotFound(f"no job {job_id[:64]}")
    return job


def _store(session: Session, plane: ControlPlane, caller: Caller, project: str, spec: JobSpec) -> Job:
    start = _start_point(session, project, spec) if spec.resume_from_checkpoint else None
    job = Job(
        id=new_id("job"), project=project, created_by=caller.key_id, name=spec.name, labels=dict(spec.labels),
        spec=dict(spec.document), sealed_secrets=plane.box.seal(dict(spec.secrets)) if spec.secrets else "",
        training_type=spec.training_type, framework=spec.framework, queue=spec.queue, priority=spec.priority,
        max_retries=spec.max_retries, max_runtime_seconds=spec.max_runtime_seconds,
        resume_checkpoint_id=start.id if start is not None else None,
    )  # fmt: skip
    session.add(job)
    session.flush()
    session.add_all(JobLabel(job_id=job.id, key=key, value=value) for key, value in spec.labels.items())
    lifecycle.record_event(
        session, job.id, EventType.SUBMITTED, actor=caller.actor, message=f"queue {spec.queue}", to_status=job.state
    )
    session.flush()
    session.refresh(job)
    return job


def _refuse_what_never_fits(plane: ControlPlane, spec: JobSpec) -> None:
    # Before the transaction: on SQLite that one keeps everybody else from writing.
    with plane.db.read() as session:
        capacities = nodes.capacities(session, only_ready=False)
        request = request_of(spec.document, has_gpus=nodes.has_gpus(session))
    refuse_unfitting(request, capacities)


def refuse_foreign_results(session: Session, reading: ReadingRules, project: str, spec: JobSpec) -> None:
    """Stored results lie below a root that everybody may read from, but belong to the project of their job."""
    for location, field in locations(spec.document):
        path = None if is_hub_id(location) else local_path(location, field=field)
        for candidate in candidates(path, reading) if path is not None else ():
            owner = job_of_path(candidate, reading)
            job = session.get(Job, owner) if owner is not None and _JOB_ID.fullmatch(owner) else None
            if owner is not None and (job is None or job.project != project):
                raise BadSpec(f"the project {project} has no job with such results; look for them with GET "
                              "/v1/jobs/{job_id}/artifacts", field=field)  # fmt: skip


def _start_point(session: Session, project: str, spec: JobSpec) -> Checkpoint:
    """The checkpoint to resume from, locked so that it cannot be pruned meanwhile."""
    wanted = spec.resume_from_checkpoint or ""
    job_id, _, which = wanted.partition(":")
    if _JOB_ID.fullmatch(job_id):
        checkpoint = _checkpoint_of_job(session, project, job_id, which or LATEST)
    else:
        named = checkpoints.lock(session, wanted)
        if named is None or named.project != project:
            raise BadSpec(f"the project {project} has no checkpoint {wanted}", field=_RESUME_FIELD)
        checkpoint = named
    source = session.get_one(Job, checkpoint.job_id)
    different = [name for name, of in _SAME_ON_RESUME if of(source.spec) != of(spec.document)]
    if different:
        raise BadSpec(
            f"checkpoint {wanted} is of a job with another {' and another '.join(different)}; a job resumes only "
            "from a checkpoint of the same model, type and data, with the same optim and adapter (lora_…): make them "
            "equal, or start anew without it",
            field=_RESUME_FIELD,
        )
    return checkpoint


def _checkpoint_of_job(session: Session, project: str, job_id: str, which: str) -> Checkpoint:
    """That job's newest or best checkpoint as it is at this moment, locked. Raises BadSpec."""
    for _ in range(PRUNED_MEANWHILE_TRIES):
        job = session.get(Job, job_id, populate_existing=True)
        if job is None or job.project != project:
            raise BadSpec(f"the project {project} has no job {job_id}", field=_RESUME_FIELD)
        chosen = job.best_checkpoint_id if which == BEST else job.latest_checkpoint_id
        checkpoint = checkpoints.lock(session, chosen) if chosen is not None else None
        if checkpoint is not None:
            return checkpoint
    if which == BEST and job is not None and job.latest_checkpoint_id is not None:
        raise BadSpec(f"no checkpoint of {job_id} is its best: none was evaluated; say {job_id}:{LATEST}",
                      field=_RESUME_FIELD)  # fmt: skip
    raise BadSpec(f"{job_id} has no checkpoint to resume from; start anew without it", field=_RESUME_FIELD)


def _model(spec: Mapping[str, Any]) -> tuple[str, str]:
    model = spec["training_config"]["base_model"]
    return model["model_id"], model.get("revision") or ""


def _type(spec: Mapping[str, Any]) -> tuple[str, str]:
    training = spec["training_config"]
    return training["training_type"], training["framework"]["type"]


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    training_type, framework = _type(spec)
    return fixed_on_resume(framework, training_type, spec["training_config"].get("hyperparameters") or {})


_SAME_ON_RESUME = (
    ("model", _model),
    ("training type", _type),
    ("data_config", comparable_data),
    ("optimizer or adapter", _fixed),
)
