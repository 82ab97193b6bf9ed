"""Submitting jobs and the verbs of those there are: each one transaction, and a wake-up after its commit."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, Conflict
from app.domain.ids import JOB_ID, new_id
from app.domain.scheduling.resources import Request
from app.domain.spec.job_spec import JobSpec, from_document
from app.domain.spec.locations.paths import ReadingRules, candidates, is_hub_id, job_of_path, local_path
from app.domain.spec.rules import distributed
from app.domain.spec.rules.job import locations
from app.models import Checkpoint, Job, JobDeletion, Project, Queue
from app.models.base import UtcDateTime, utc_now
from app.models.insertion import fill
from app.patterns.rewards import refuse_bad_pattern
from app.security.permissions import Caller
from app.services.access import keys, projects
from app.services.jobs import start_points
from app.services.lifecycle import transitions
from app.services.lifecycle.outbox import any_told
from app.services.queues import project_quotas, queues
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import Remember, forget


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A document that passed every rule of its own; ``wait_seconds`` is about how long it would wait, if known."""

    spec: JobSpec
    project: str
    request: Request
    wait_seconds: float | None
    warnings: Sequence[str] = ()  # `field: reason` of what has no effect on the devices that it gets


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a dialect keeps of a job: what it must be able to give back, and the only name of the job in it."""

    foreign: Mapping[str, Any]
    alias: str | None = None
    warnings: Sequence[str] = ()  # `field: reason` of each field that has no effect: told in the answer and the history
    secret_variables: Collection[str] = ()  # of the environment, besides those that look like secrets


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What the one who submits is told."""

    job: Job
    wait_seconds: float | None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Entered:
    """What the transaction found: the checkpoint that the job starts from, and whether any webhook is told of it."""

    start: Checkpoint | None
    has_webhooks: bool


# All that most submissions ask the database, in one question.
_ENTRANCE = (
    select(
        Queue.name.label("queue"),
        Queue.max_waiting_jobs,
        Project.quota,
        any_told(Project.name).label("has_webhooks"),
        keys.is_good(bindparam("key"), bindparam("now", type_=UtcDateTime())).label("key_is_good"),
    )
    .select_from(Project)
    .outerjoin(Queue, Queue.name == bindparam("queue"))
    .where(Project.name == bindparam("project"))
)


def submit(
    plane: ControlPlane,
    caller: Caller,
    document: Mapping[str, Any],
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    origin: Origin | None = None,
    remember: Remember = forget,
) -> None:
    """Store a new PENDING job; ``document`` has the shape that the schema checks, ``forwarded`` the user's tokens.

    Raises InvalidRequest for the first rule it breaks, and Conflict when there is a job with its alias; nothing is
    written then.
    """
    hidden = origin.secret_variables if origin is not None else ()
    checked = check(plane, caller, document, project=project, forwarded=forwarded, secret_variables=hidden)
    with plane.db.write() as session:
        entered = enter(session, plane, caller, checked)
        if origin is not None and origin.alias is not None:
            _refuse_second(session, origin.alias)
        job = store(session, plane, caller, checked, entered, origin=origin)
        warnings = _warnings(checked, origin)
        remember(session, Submitted(job=job, wait_seconds=checked.wait_seconds, warnings=warnings))
    plane.dispatcher.ring_admit(job.id, job.queue, job.priority)


def _warnings(checked: Checked, origin: Origin | None) -> list[str]:
    return [*(origin.warnings if origin is not None else ()), *checked.warnings]


def check(
    plane: ControlPlane,
    caller: Caller,
    document: Mapping[str, Any],
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    secret_variables: Collection[str] = (),
) -> Checked:
    """All that can be said before the transaction, which on SQLite keeps everybody else from writing."""
    spec = from_document(document, plane.reading, forwarded, secret_variables=secret_variables)
    refuse_bad_pattern(spec.document)
    target = project or caller.home_project
    with plane.db.read() as session:
        request = plane.inventory.request(session, spec.document)
        distributed.backend_fits(spec.document, request.device_kind)
        wait = plane.estimates.of_new(
            session, request, queue=spec.queue, priority=spec.priority, project=target,
            preemptible=project_quotas.is_preemptible(spec.document),
        )  # fmt: skip
    warnings = [f"{field}: {why}" for field, why in distributed.without_effect(spec.document, request.device_kind)]
    return Checked(spec=spec, project=target, request=request, wait_seconds=wait, warnings=warnings)


def enter(session: Session, plane: ControlPlane, caller: Caller, checked: Checked) -> Entered:
    """What must still hold when the job is written; writes nothing itself."""
    spec, project = checked.spec, checked.project
    asked = {"project": project, "queue": spec.queue, "key": caller.key_id, "now": utc_now()}
    found = session.connection().execute(_ENTRANCE, asked).one_or_none()
    if found is None or not caller.sees(project):
        projects.visible(session, caller, project)
    if found is not None and not found.key_is_good and caller.key_id != keys.CLI_ACTOR:
        raise keys.ended(caller)
    refuse_foreign_results(session, plane.reading, project, spec)
    start = start_points.start_point(session, project, spec)
    if found is None or found.queue is None or found.max_waiting_jobs is not None:
        queues.require_room(session, spec.queue, field="scheduling_config.queue")
    if found is None or found.quota:
        project_quotas.refuse_submission(session, project, checked.request, spec.document)
    return Entered(start=start, has_webhooks=found is not None and found.has_webhooks)


def _inherited(foreign: Mapping[str, Any]) -> dict[str, Any]:
    """What dialects tell of a job that does the work of another one again, which may have been deleted."""
    return {
        dialect: {name: each for name, each in kept.items() if name != "deleted"} for dialect, kept in foreign.items()
    }


def _refuse_second(session: Session, alias: str) -> None:
    earlier = session.scalar(select(Job.id).where(Job.alias == alias))
    if earlier is not None:
        name = alias.split(":", 2)[2]
        raise Conflict(f"there is a job named {name} already, {earlier}; take another name, or delete that one")


def refuse_foreign_results(session: Session, reading: ReadingRules, project: str, spec: JobSpec) -> None:
    """Stored results lie below a root that everybody may read from, but belong to the project of their job.

    The jobs are kept from being deleted until the transaction ends.
    """
    kept = {"read": True, "key_share": True}
    for owner, field in sorted(read_results(spec.document, reading)):
        job = session.get(Job, owner, with_for_update=kept) if JOB_ID.fullmatch(owner) else None
        if job is None or job.project != project or session.get(JobDeletion, owner) is not None:
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


def store(
    session: Session, plane: ControlPlane, caller: Caller, checked: Checked, entered: Entered,
    *, parent: Job | None = None, origin: Origin | None = None,
) -> Job:  # fmt: skip
    """Write a new PENDING job, with the first line of its history; ``parent`` is the one whose work it does again."""
    spec = checked.spec
    origin = origin or Origin(foreign=_inherited(parent.foreign) if parent is not None else {})
    job = Job(
        id=new_id("job"), project=checked.project, created_by=caller.key_id, name=spec.name, labels=dict(spec.labels),
        spec=dict(spec.document), sealed_secrets=plane.box.seal(dict(spec.secrets)) if spec.secrets else "",
        training_type=spec.training_type, framework=spec.framework, queue=spec.queue, priority=spec.priority,
        max_retries=spec.max_retries, max_runtime_seconds=spec.max_runtime_seconds,
        resume_checkpoint_id=entered.start.id if entered.start is not None else None,
        parent_job_id=parent.id if parent is not None else None,
        foreign=dict(origin.foreign), alias=origin.alias,
    )  # fmt: skip
    fill(job)
    data = {"parent_job_id": parent.id, "checkpoint_id": job.resume_checkpoint_id} if parent is not None else {}
    transitions.record_submission(
        session, job, actor=caller.actor, message=f"queue {spec.queue}", data=data,
        has_webhooks=entered.has_webhooks, warnings=_warnings(checked, origin),
    )  # fmt: skip
    return job
