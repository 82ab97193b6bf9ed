"""Submitting and cancelling jobs, and having them save: each one transaction, and a wake-up after its commit."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, NotFound
from app.domain.ids import JOB_ID, new_id
from app.domain.job_rules import locations
from app.domain.job_spec import JobSpec, from_document
from app.domain.locations import ReadingRules, candidates, is_hub_id, job_of_path, local_path
from app.domain.resources import Request
from app.models import Checkpoint, Job, JobLabel
from app.security.permissions import Caller
from app.services import audit, controls, lifecycle, projects, queues, start_points
from app.services.control_plane import ControlPlane
from app.services.idempotency import Remember, forget


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A document that passed every rule of its own; ``wait_seconds`` is about how long it would wait, if known."""

    spec: JobSpec
    project: str
    request: Request
    wait_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What the one who submits is told."""

    job: Job
    wait_seconds: float | None


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
    checked = check(plane, caller, document, project=project, forwarded=forwarded)
    with plane.db.write() as session:
        start = enter(session, plane, caller, checked)
        job = _store(session, plane, caller, checked, start)
        remember(session, Submitted(job=job, wait_seconds=checked.wait_seconds))
    plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
    return job


def check(
    plane: ControlPlane,
    caller: Caller,
    document: Mapping[str, Any],
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
) -> Checked:
    """All that can be said before the transaction, which on SQLite keeps everybody else from writing."""
    spec = from_document(document, plane.reading, forwarded)
    with plane.db.read() as session:
        request = plane.inventory.request(session, spec.document)
        wait = plane.estimates.of_new(session, request, queue=spec.queue, priority=spec.priority)
    return Checked(spec=spec, project=project or caller.home_project, request=request, wait_seconds=wait)


def enter(session: Session, plane: ControlPlane, caller: Caller, checked: Checked) -> Checkpoint | None:
    """What must still hold when the job is written, with the checkpoint that it starts from; writes nothing itself."""
    spec, project = checked.spec, checked.project
    projects.visible(session, caller, project)
    queues.require_room(session, spec.queue, field="scheduling_config.queue")
    refuse_foreign_results(session, plane.reading, project, spec)
    return start_points.start_point(session, project, spec)


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


def save_now(plane: ControlPlane, caller: Caller, job_id: str, *, remember: Remember = forget) -> Job:
    """Have a running job save a checkpoint and go on. Raises IllegalTransition when it can't."""
    with plane.db.write() as session:
        find(session, caller, job_id)
        job = controls.wish_checkpoint(session, job_id, actor=caller.actor)
        remember(session, job)
    for node in job.node_names:
        plane.dispatcher.nudge(job.id, node)
    return job


def find(session: Session, caller: Caller, job_id: str) -> Job:
    """The job; raises NotFound alike for one that does not exist and one of a project that is not the caller's."""
    job = session.get(Job, job_id) if JOB_ID.fullmatch(job_id) else None
    missing = f"no job {job_id[:64]}"
    if job is None:
        raise NotFound(missing)
    caller.require_sight(job.project, missing)
    return job


def refuse_foreign_results(session: Session, reading: ReadingRules, project: str, spec: JobSpec) -> None:
    """Stored results lie below a root that everybody may read from, but belong to the project of their job."""
    for owner, field in read_results(spec.document, reading):
        job = session.get(Job, owner) if JOB_ID.fullmatch(owner) else None
        if job is None or job.project != project:
            raise BadSpec(f"the project {project} has no job with such results; look for them with GET "
                          "/v1/jobs/{job_id}/artifacts", field=field)  # fmt: skip


def read_results(document: Mapping[str, Any], reading: ReadingRules) -> list[tuple[str, str]]:
    """(job, field) of every place in the document that lies among the stored results of a job."""
    found = []
    for location, field in locations(document):
        path = None if is_hub_id(location) else local_path(location, field=field)
        owners = [job_of_path(candidate, reading) for candidate in candidates(path, reading)] if path else []
        found += [(owner, field) for owner in owners if owner is not None]
    return found


def _store(session: Session, plane: ControlPlane, caller: Caller, checked: Checked, start: Checkpoint | None) -> Job:
    spec = checked.spec
    job = Job(
        id=new_id("job"), project=checked.project, created_by=caller.key_id, name=spec.name, labels=dict(spec.labels),
        spec=dict(spec.document), sealed_secrets=plane.box.seal(dict(spec.secrets)) if spec.secrets else "",
        training_type=spec.training_type, framework=spec.framework, queue=spec.queue, priority=spec.priority,
        max_retries=spec.max_retries, max_runtime_seconds=spec.max_runtime_seconds,
        resume_checkpoint_id=start.id if start is not None else None,
    )  # fmt: skip
    session.add(job)
    session.add_all(JobLabel(job_id=job.id, key=key, value=value) for key, value in spec.labels.items())
    audit.record(session, actor=caller.actor, action="job.submit", project=job.project, target=job.id)
    lifecycle.record_submission(session, job, actor=caller.actor, message=f"queue {spec.queue}")
    return job
