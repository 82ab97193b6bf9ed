"""Retry of an ended job: a new job, its child, repeats the work from a checkpoint or from the start."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, Conflict, IllegalTransition, InvalidRequest
from app.domain.lifecycle.states import TERMINAL
from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.inference import TRAINING
from app.domain.spec.model import JobDocument, ResourceConfig
from app.domain.spec.roles import JobRole, RoleResources
from app.domain.spec.rules.roles import OF_INSTANCES
from app.domain.spec.secrets import secret_variables, with_secrets
from app.domain.spec.user_tokens import PREFIX
from app.domain.sweeps.spec import SweepSpec
from app.models import Checkpoint, Job, JobEvent, Sweep
from app.security.permissions import Caller
from app.security.secrets import SecretBox, SecretKeyMissing
from app.services.jobs import details, lookup, start_points, submission
from app.services.jobs.control import requests as control_requests
from app.services.jobs.kept_secrets import other_place
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored

_RESOURCES = "resource_config."
_PARTS = ("gpu_fraction", "gpu_memory_request_mb", "mig_profile")
# Applies the schema again to a training's document of an older version; passed in, because schemas are a layer above
# services. Documents of other kinds are stored in other words than they are submitted in: only their rules apply again.
Complete = Callable[[dict[str, Any]], JobDocument]


@dataclass(frozen=True, kw_only=True)
class RoleChange:
    """What a retry changes of a role: its number of instances (None: nothing), and fields of what each of them has."""

    role: str
    count: int | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Options of a retry. ``resources`` override those of the old job by field; an empty checkpoint is its newest."""

    checkpoint_id: str = ""
    from_start: bool = False
    resources: Mapping[str, Any] = field(default_factory=dict)
    roles: Sequence[RoleChange] = ()
    forwarded: Mapping[str, str] = field(default_factory=dict)  # new tokens of the user; the others are carried over


@dataclass(frozen=True, kw_only=True)
class _Order:
    """The child's document as a user would submit it, with plain secrets."""

    project: str
    document: JobDocument
    forwarded: Mapping[str, str]
    secret_variables: Collection[str]  # of the environment: those of the parent, whatever their names


def retry(
    plane: ControlPlane,
    caller: Caller,
    job_id: str,
    wanted: Retry,
    *,
    complete: Complete,
    on_written: OnWritten = not_stored,
) -> Job:
    """Submit the job's work again as its child, with all checks of a submission.

    Raises IllegalTransition until it has ended, InvalidRequest for the first rule that the request breaks, Conflict
    where it would give secrets of another key to other programs.
    """
    with plane.db.read() as session:
        order = _order(session, plane.box, caller, _ended(lookup.find(session, caller, job_id)), wanted)
    with _named_as_asked(wanted, order.document.tasks):
        checked = submission.check(
            plane,
            caller,
            order.document if order.document.kind != TRAINING else complete(order.document.to_json()),
            project=order.project,
            forwarded=order.forwarded,
            secret_variables=order.secret_variables,
        )
        with plane.db.write() as session:
            # Locked, so that a concurrent deletion can't leave an orphaned child.
            parent = _ended(transitions.load_for_change(session, job_id))
            entered = submission.enter(session, caller, checked)
            stored = submission.store(session, plane, caller, checked, entered, parent=parent)
            child = session.get_one(Job, stored.id)
            _record(session, caller, parent, child, wanted)
            on_written(session, details.changed(session, child))
    plane.dispatcher.ring_admit(child.id, child.queue, child.priority)
    return child


def _record(session: Session, caller: Caller, parent: Job, child: Job, wanted: Retry) -> None:
    asked = child.document.resource_config.to_json()  # with its secrets masked
    data: dict[str, Any] = {
        "child_job_id": child.id,
        "checkpoint_id": child.resume_checkpoint_id,
        "resources": {name: asked.get(name, value) for name, value in wanted.resources.items()},
    }
    if wanted.roles:
        data["roles"] = [*map(asdict, wanted.roles)]
    audit.record(session, actor=caller.actor, action="job.retry", project=parent.project, target=parent.id, data=data)


def _ended(job: Job) -> Job:
    control_requests.refuse_replica(job, "retried", "its service starts others (GET /v1/services/{name}/replicas)")
    if job.state not in TERMINAL:
        way_out = "resume continues it" if job.status == "PAUSED" else "cancel it first, or wait for its end"
        raise IllegalTransition(
            f"job {job.id} is {job.status} and cannot be retried; only a job that has ended can: {way_out}"
        )
    return job


def _order(session: Session, box: SecretBox, caller: Caller, job: Job, wanted: Retry) -> _Order:
    try:
        secrets: dict[str, str] = box.open(job.sealed_secrets)
    except SecretKeyMissing as error:
        raise Conflict(
            f"the secrets of job {job.id} were encrypted with a key that this server does not have, and can't be "
            "carried over; submit the job again with them"
        ) from error
    if secrets and not _owns_secrets(session, caller, job):
        _refuse_other_places(job, wanted.resources)
    document = with_secrets(
        job.document, {path: value for path, value in secrets.items() if not path.startswith(PREFIX)}
    )
    start = _start(session, job, wanted)
    document = document.changed(
        # Labels and priority may have changed since the submission.
        labels=dict(job.labels),
        scheduling_config=document.scheduling_config.changed(priority=job.priority),
        training_config=document.training_config.changed(
            resume_from_checkpoint=start.id if start is not None else None
        ),
    )
    carried_over = {path.removeprefix(PREFIX): token for path, token in secrets.items() if path.startswith(PREFIX)}
    changed = _with_roles(_with_resources(document, wanted.resources), wanted.roles)
    return _Order(
        project=job.project,
        document=changed,
        forwarded=carried_over | dict(wanted.forwarded),
        secret_variables=secret_variables(secrets),
    )


def _owns_secrets(session: Session, caller: Caller, job: Job) -> bool:
    """Whether this caller gave the secrets: a retry has those of the job that it began with. The answer is no where
    that one was deleted, and for trials of a sweep that began with others: a fork has the secrets of its first one.
    """
    found: Job | None = job
    while found is not None and found.created_by == caller.key_id:
        sweep = session.get(Sweep, found.sweep_id) if found.sweep_id else None
        if found.sweep_id and (sweep is None or SweepSpec.from_json(sweep.spec).warm_start.sweeps):
            return False
        # A deleted parent is known to the history alone.
        submitted = session.scalar(select(JobEvent.data).where(JobEvent.job_id == found.id, JobEvent.seq == 1))
        if submitted is None or "parent_job_id" not in submitted:
            return submitted is not None
        found = session.get(Job, submitted["parent_job_id"])
    return False


def _refuse_other_places(job: Job, resources: Mapping[str, Any]) -> None:
    """Raise Conflict where the retry would run something else with the secrets, or send them elsewhere."""
    had = job.document.resource_config
    wanted = ResourceConfig.from_json({**had.to_json(), **resources})
    if name := other_place(had, wanted):
        raise Conflict(
            f"new_resource_config.{name} changes what a job runs or reaches that has secrets which another key "
            f"gave to job {job.id}, or to one that it began with; leave it as it is, or submit a new job with your "
            "own secrets"
        )


def _start(session: Session, job: Job, wanted: Retry) -> Checkpoint | None:
    """The checkpoint that the child starts from: the named one, the job's newest (or best, where its document resumes
    from that), or the one that the job itself started from.
    """
    if job.kind != TRAINING:
        if wanted.checkpoint_id:
            raise BadSpec(
                f"{job.id} is of kind {job.kind}, which starts from nothing; leave checkpoint_id out",
                field="checkpoint_id",
            )
        return None
    if wanted.checkpoint_id and wanted.from_start:
        raise BadSpec("name a checkpoint or set from_start, not both", field="from_start")
    if wanted.from_start:
        return None
    if not wanted.checkpoint_id:
        start = start_points.next_start(session, job)
        if start is None and job.resume_checkpoint_id is not None:
            raise BadSpec(
                f"the checkpoint {job.resume_checkpoint_id} that {job.id} started from was deleted, and it saved none; "
                "name another, or set from_start: true to train from the base model",
                field="checkpoint_id",
            )
        return start
    named = session.get(Checkpoint, wanted.checkpoint_id)
    if named is None or named.deleted_at is not None or named.project != job.project:
        raise BadSpec(f"the project {job.project} has no checkpoint {wanted.checkpoint_id}", field="checkpoint_id")
    return named


def _with_resources(document: JobDocument, resources: Mapping[str, Any]) -> JobDocument:
    if not resources:
        return document
    of_instances = next((name for name in resources if document.tasks and name in OF_INSTANCES), None)
    if of_instances is not None:
        raise BadSpec(
            "the job has the devices of its roles; name the role, its count and its resource_config in new_tasks",
            field=f"new_resource_config.{of_instances}",
        )
    changed = {**document.resource_config.to_json(), **resources}
    # Drop empty shares and slices: a submission can't contain them, and the child's document must be submittable.
    kept = {name: value for name, value in changed.items() if value or name not in _PARTS}
    document = document.changed(resource_config=ResourceConfig.from_json(kept))
    training, asked = document.training_config, document.resource_config
    framework, distributed = training.framework, training.framework.distributed
    if not resources.keys() & {"gpu_count", "node_count"} or distributed.world_size is None:
        return document
    ranks = processes_per_node(document, devices=asked.gpu_count) * asked.node_count
    framework = framework.changed(distributed=distributed.changed(world_size=ranks))
    return document.changed(training_config=training.changed(framework=framework))


def _with_roles(document: JobDocument, changes: Sequence[RoleChange]) -> JobDocument:
    roles = {role.role: role for role in document.tasks}
    seen = set[str]()
    for number, change in enumerate(changes):
        name, field = change.role, f"new_tasks.{number}.role"
        if name not in roles:
            known = f"known: {', '.join(roles)}" if roles else "it has none; leave new_tasks out"
            raise BadSpec(f"the job has no role {name}; {known}", field=field)
        if name in seen:
            raise BadSpec(f"{name} is named twice; give all of its changes at once", field=field)
        seen.add(name)
        resources = {**roles[name].resource_config.to_json(), **change.resources}
        roles[name] = roles[name].changed(
            count=change.count or roles[name].count, resource_config=RoleResources.from_json(resources)
        )
    return document.changed(tasks=tuple(roles.values())) if seen else document


def _field_of_roles(named: str, wanted: Retry, roles: Sequence[JobRole]) -> str:
    """The field of the request that a field of the document, such as tasks.0.count, comes from; "" for none."""
    for number, change in enumerate(wanted.roles):
        place = next((place for place, role in enumerate(roles) if role.role == change.role), None)
        own = named.removeprefix(f"tasks.{place}.")
        if own == named:
            continue
        name = own.removeprefix(_RESOURCES).partition(".")[0]
        asked = name in change.resources if own.startswith(_RESOURCES) else own == "count" and change.count is not None
        return f"new_tasks.{number}.{own}" if asked else ""
    return ""


@contextmanager
def _named_as_asked(wanted: Retry, roles: Sequence[JobRole]) -> Iterator[None]:
    """Make errors name the field of the request, not that of the document derived from it."""
    try:
        yield
    except InvalidRequest as error:
        named = error.field or ""
        if of_roles := _field_of_roles(named, wanted, roles):
            error.field = of_roles
        if named.startswith(_RESOURCES) and named.removeprefix(_RESOURCES) in wanted.resources:
            error.field = f"new_{named}"
        elif named == start_points.RESUME_FIELD and wanted.checkpoint_id:
            error.field = "checkpoint_id"
        raise
