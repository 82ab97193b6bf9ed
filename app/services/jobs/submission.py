"""Submitting a job: checks before the transaction, checks within it, and a wake-up after the commit."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import Text, bindparam, cast, literal_column, select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, CannotFit, Conflict
from app.domain.evaluations.planned_rules import planned_documents
from app.domain.evaluations.rules import refuse_bad_benchmarks, without_effect
from app.domain.ids import JOB_ID, new_id
from app.domain.memory.fit import Fit
from app.domain.scheduling.resources import Request
from app.domain.spec.document import judging_jobs, uploads
from app.domain.spec.frameworks.requirements import NETWORK, NOT_ON_SEVERAL
from app.domain.spec.job_spec import JobSpec, from_document
from app.domain.spec.locations.paths import ReadingRules, candidates, is_hub_id, job_of_path, local_path
from app.domain.spec.model import JobDocument
from app.domain.spec.rules import distributed, role_outputs
from app.domain.spec.rules.evaluations import FIELD as PLANNED
from app.domain.spec.rules.job import locations
from app.models import Checkpoint, Job, JobDeletion, Project, Queue, Sweep
from app.models.base import UtcDateTime, utc_now
from app.models.insertion import new_row
from app.patterns.benchmarks import refuse_bad_patterns
from app.patterns.response_formats import refuse_bad_response_format
from app.patterns.rewards import refuse_bad_pattern
from app.security.permissions import Caller
from app.services.access import api_keys, code_logins, project_rules, projects, tracker_keys
from app.services.attempts.evaluation_verdicts import refuse_unknown_baselines
from app.services.jobs import fit, made_models, start_points, uploaded_data
from app.services.lifecycle import transitions
from app.services.lifecycle.job_columns import columns_of
from app.services.lifecycle.outbox import has_active_webhook
from app.services.queues import project_quotas, queues
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A document that passed all static rules; ``wait_seconds`` is the estimated wait, None if unknown."""

    spec: JobSpec
    project: str
    request: Request
    reading: ReadingRules  # with the real paths of its locations
    wait_seconds: float | None
    warnings: Sequence[str] = ()  # `field: reason` of what has no effect on the devices that it gets
    waits: Sequence[str] = ()  # `field: reason` why no node could hold it yet
    fit: Fit | None = None  # the memory estimate of a training


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Data that an API dialect stores with a job to return it later, and the job's unique name in that dialect.

    ``sweep_id``: the sweep whose trial it is.
    """

    foreign: Mapping[str, Any]
    alias: str | None = None
    warnings: Sequence[str] = ()  # `field: reason` of what has no effect: shown in the answer and the history
    secret_variables: Collection[str] = ()  # of the environment, besides those that look like secrets
    retold: Callable[[str], str] = str  # a warning about a field of the native document, in the dialect's words
    sweep_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """Result of a submission."""

    job: Job
    wait_seconds: float | None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Entered:
    """Result of the checks within the transaction: the checkpoint that the job starts from, or whose weights it uses,
    and whether any webhook subscribes.
    """

    start: Checkpoint | None
    has_webhooks: bool


# All that most submissions need from the database, in one query.
_ENTRANCE = (
    select(
        Queue.name.label("queue"),
        Queue.max_waiting_jobs,
        Project.quota,
        has_active_webhook(Project.name).label("has_webhooks"),
        api_keys.is_good(bindparam("key"), bindparam("now", type_=UtcDateTime())).label("key_is_good"),
    )
    .select_from(Project)
    .outerjoin(Queue, Queue.name == bindparam("queue"))
    .where(Project.name == bindparam("project"))
)


# What most submissions find: then nothing but the job is to be looked at or written.
_PLAIN = (
    select(Project.name)
    .join(Queue, Queue.name == bindparam("queue"))
    .where(
        Project.name == bindparam("project"),
        cast(Project.quota, Text) == literal_column("'{}'"),
        Queue.max_waiting_jobs.is_(None),
        ~has_active_webhook(Project.name),
        api_keys.is_good(bindparam("key"), bindparam("now", type_=UtcDateTime())),
    )
)


def submit(  # noqa: PLR0913  what an API dialect may say of a submission
    plane: ControlPlane,
    caller: Caller,
    document: JobDocument,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    origin: Origin | None = None,
    on_written: OnWritten = not_stored,
    alone: bool = False,
) -> None:
    """Store a new PENDING job; ``document`` has passed the schema, ``forwarded`` are the user's tokens.

    ``alone``: ``on_written`` neither reads nor writes in the transaction. Raises InvalidRequest for the first rule that
    the document breaks, and Conflict when a job has its alias; then nothing is written.
    """
    hidden = origin.secret_variables if origin is not None else ()
    checked = check(plane, caller, document, project=project, forwarded=forwarded, secret_variables=hidden)
    refuse_unknown_baselines(plane.db, checked.project, checked.spec.document)
    warnings = shown_warnings(checked, origin)
    job = _written_at_once(plane, caller, checked, origin) if alone and _is_plain(caller, checked, origin) else None
    if job is not None:
        on_written(Session(), Submitted(job=job, wait_seconds=checked.wait_seconds, warnings=warnings))
    else:
        with plane.db.write() as session:
            entered = enter(session, caller, checked)
            refuse_taken_alias(session, origin)
            job = store(session, plane, caller, checked, entered, origin=origin)
            on_written(session, Submitted(job=job, wait_seconds=checked.wait_seconds, warnings=warnings))
    plane.dispatcher.ring_admit(job.id, job.queue, job.priority)


def _is_plain(caller: Caller, checked: Checked, origin: Origin | None) -> bool:
    """Whether the submission depends on no other row than those that `_PLAIN` asks for."""
    document = checked.spec.document
    return (
        caller.sees(checked.project)
        and (origin is None or origin.alias is None)
        and not document.training_config.resume_from_checkpoint
        and not read_results(document, checked.reading)
        and not uploads(document)
    )


def _written_at_once(plane: ControlPlane, caller: Caller, checked: Checked, origin: Origin | None) -> Job | None:
    """The job, written by one guarded statement; None when the guard held it back, and `enter` is to say why."""
    job = new_job(plane, caller, checked, origin=origin)
    asked = {"project": job.project, "queue": job.queue, "key": caller.key_id, "now": utc_now()}
    made = _submission(job, caller, checked, origin, data={})
    insert = transitions.guarded_submission(plane.db.engine.dialect, made, _PLAIN, asked)
    with plane.db.at_once() as connection:
        return job if insert.run(connection) else None


def shown_warnings(checked: Checked, origin: Origin | None) -> list[str]:
    """What the answer to a submission says: why the job would wait for a node, and which fields have no effect."""
    waits = checked.waits if origin is None else map(origin.retold, checked.waits)
    return [*waits, *_warnings(checked, origin)]


def _warnings(checked: Checked, origin: Origin | None) -> list[str]:
    return [*origin.warnings, *map(origin.retold, checked.warnings)] if origin is not None else [*checked.warnings]


def check(
    plane: ControlPlane,
    caller: Caller,
    document: JobDocument,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    secret_variables: Collection[str] = (),
    estimates_wait: bool = True,
) -> Checked:
    """All checks before the write transaction (it blocks others on SQLite); ``wait_seconds`` if ``estimates_wait``."""
    target = project or caller.home_project
    reading = plane.reading.of(target).remembering()
    document = tracker_keys.with_stored_keys(plane.secrets_dir, caller, reading, document)
    document = code_logins.with_stored_login(plane.secrets_dir, caller, reading, document)
    found = made_models.with_base(plane.db, caller, target, document)
    spec = from_document(found, reading, forwarded, secret_variables=secret_variables)
    _refuse_patterns(spec.document)
    planned = planned_documents(spec.document, reading)
    with plane.db.read() as session:
        plane.waiting_limit.refuse_one_too_many(session, target)
        project_rules.refuse_beyond_project(session, target, spec.document)
        request, unfit = plane.inventory.request_that_waits(session, spec.document, target)
        _refuse_unfit_network(spec.document, request)
        unused = _unused(session, plane, spec.document, request)
        waits = [*_waits("the job", unfit), *_waits_of_planned(session, plane, planned, target)]
        asked = fit.asked_of(session, spec.document, request, plane.inventory.capacities(session), reading)
        wait = _estimated_wait(session, plane, spec.document, request, target) if estimates_wait else None
    memory = fit.of_new(plane, asked)
    fit.refuse_what_cannot_fit(spec.document, memory)
    return Checked(
        spec=spec,
        project=target,
        request=request,
        reading=reading,
        wait_seconds=wait,
        warnings=[*unused, *fit.warnings(memory)],
        waits=waits,
        fit=memory,
    )


def _unused(session: Session, plane: ControlPlane, document: JobDocument, request: Request) -> list[str]:
    nodes = len(plane.inventory.capacities(session))
    fields = (
        *distributed.without_effect(document, request.device_kind),
        *role_outputs.unpublished(document, nodes=nodes),
    )
    gone = plane.inventory.unused_gpus(session, document, request)
    return [*(f"{field}: {why}" for field, why in fields), *without_effect(document), *gone]


def _refuse_unfit_network(document: JobDocument, request: Request) -> None:
    if request.node_count > 1 and NETWORK in request.required_capabilities:
        raise BadSpec(NOT_ON_SEVERAL, field="resource_config.node_count")
    distributed.backend_fits(document, request.device_kind)


def _refuse_patterns(document: JobDocument) -> None:
    """Rules that need the engine of regular expressions, which the domain does without."""
    refuse_bad_pattern(document)
    refuse_bad_benchmarks(document)
    refuse_bad_patterns(document)
    refuse_bad_response_format(document)


def _estimated_wait(
    session: Session, plane: ControlPlane, document: JobDocument, request: Request, project: str
) -> float | None:
    scheduling = document.scheduling_config
    return plane.estimates.of_new(
        session,
        request,
        queue=scheduling.queue,
        priority=scheduling.priority,
        project=project,
        preemptible=scheduling.preemptible,
    )


def _waits_of_planned(
    session: Session, plane: ControlPlane, planned: Sequence[JobDocument], project: str
) -> Iterator[str]:
    """Of evaluations that no node could hold yet: what makes them has no caller whom it could tell."""
    for number, document in enumerate(planned):
        try:
            _, unfit = plane.inventory.request_that_waits(session, document, project)
        except CannotFit as error:
            unfit = error
        yield from _waits("the evaluation", unfit, within=f"{PLANNED}.{number}.")


def _waits(what: str, unfit: CannotFit | None, *, within: str = "") -> Iterator[str]:
    if unfit is not None:
        yield f"{within}{unfit.field}: {unfit.message}; {what} waits until a node can hold it"


def enter(session: Session, caller: Caller, checked: Checked, *, kept_files: Collection[str] = frozenset()) -> Entered:
    """Checks within the transaction that writes the job; writes nothing. ``kept_files``: as `uploaded_data` says."""
    spec, project, scheduling = checked.spec, checked.project, checked.spec.document.scheduling_config
    asked = {"project": project, "queue": scheduling.queue, "key": caller.key_id, "now": utc_now()}
    found = session.connection().execute(_ENTRANCE, asked).one_or_none()
    if found is None or not caller.sees(project):
        projects.visible(session, caller, project)
    if found is not None and not found.key_is_good and caller.key_id != api_keys.CLI_ACTOR:
        raise api_keys.ended(caller)
    refuse_foreign_results(session, checked.reading, project, spec)
    uploaded_data.refuse_unusable_files(session, project, spec.document, kept=kept_files)
    start = start_points.start_point(session, project, spec)
    if found is None or found.queue is None or found.max_waiting_jobs is not None:
        queues.require_room(session, scheduling.queue, field="scheduling_config.queue")
    if found is None or found.quota:
        project_quotas.refuse_submission(session, project, checked.request, preemptible=scheduling.preemptible)
    return Entered(start=start, has_webhooks=found is not None and found.has_webhooks)


def _inherited(foreign: Mapping[str, Any]) -> dict[str, Any]:
    """Data of dialects that a retry inherits from its parent, without the mark of a deletion."""
    return {
        dialect: {name: each for name, each in data.items() if name != "deleted"} for dialect, data in foreign.items()
    }


def refuse_taken_alias(session: Session, origin: Origin | None) -> None:
    """Raises Conflict when there is a job or a sweep with the alias of the new job."""
    if origin is None or origin.alias is None:
        return
    earlier = session.scalar(select(Job.id).where(Job.alias == origin.alias))
    earlier = earlier or session.scalar(select(Sweep.id).where(Sweep.alias == origin.alias))
    if earlier is not None:
        name = origin.alias.split(":", 2)[2]
        raise Conflict(f"there is a job named {name} already, {earlier}; take another name, or delete that one")


def refuse_foreign_results(session: Session, reading: ReadingRules, project: str, spec: JobSpec) -> None:
    """Refuse results of jobs in other projects: they lie below a common root, but belong to the project of their job.

    Locks these jobs against deletion until the transaction ends.
    """
    share_lock = {"read": True, "key_share": True}
    for owner, field in sorted(read_results(spec.document, reading)):
        job = session.get(Job, owner, with_for_update=share_lock) if JOB_ID.fullmatch(owner) else None
        if job is None or job.project != project or session.get(JobDeletion, owner) is not None:
            raise BadSpec(
                f"the project {project} has no job with such results; look for them with GET "
                "/v1/jobs/{job_id}/artifacts",
                field=field,
            )


def read_results(document: JobDocument, reading: ReadingRules) -> list[tuple[str, str]]:
    """(job, field) of every location in the document that is among the stored results of a job, or names one."""
    model = document.inference.model.job_id if document.inference is not None else None
    base = document.training_config.base_model.job_id
    named = ((model, "model.job_id"), (base, "training_config.base_model.job_id"), *judging_jobs(document))
    found = [(job_id, field) for job_id, field in named if job_id is not None]
    for location, field in locations(document):
        path = None if is_hub_id(location) else local_path(location, field=field)
        owners = [job_of_path(candidate, reading) for candidate in candidates(path, reading)] if path else []
        found += [(owner, field) for owner in owners if owner is not None]
    return found


def store(
    session: Session,
    plane: ControlPlane,
    caller: Caller,
    checked: Checked,
    entered: Entered,
    *,
    parent: Job | None = None,
    origin: Origin | None = None,
) -> Job:
    """Write a new PENDING job, with the first line of its history; ``parent`` is the one whose work it does again."""
    job = new_job(plane, caller, checked, entered.start, parent=parent, origin=origin)
    data = {"parent_job_id": parent.id, "checkpoint_id": job.resume_checkpoint_id} if parent is not None else {}
    made = _submission(job, caller, checked, origin, data=data)
    transitions.record_submission(session, made, has_webhooks=entered.has_webhooks)
    return job


def _submission(
    job: Job, caller: Caller, checked: Checked, origin: Origin | None, *, data: Mapping[str, Any]
) -> transitions.Submission:
    return transitions.Submission(
        job=job, actor=caller.actor, message=f"queue {job.queue}", data=data, warnings=_warnings(checked, origin)
    )


def new_job(
    plane: ControlPlane,
    caller: Caller,
    checked: Checked,
    start: Checkpoint | None = None,
    *,
    parent: Job | None = None,
    origin: Origin | None = None,
) -> Job:
    """The row of a new job, in no session."""
    document, secrets = checked.spec.document, checked.spec.secrets
    origin = origin or Origin(foreign=_inherited(parent.foreign) if parent is not None else {})
    return new_row(
        Job,
        id=new_id("job"),
        project=checked.project,
        created_by=caller.key_id,
        **columns_of(document),
        sealed_secrets=plane.box.seal(dict(secrets)) if secrets else "",
        resume_checkpoint_id=start.id if start is not None else None,
        **start_points.evaluated(document, start),
        parent_job_id=parent.id if parent is not None else None,
        foreign=dict(origin.foreign),
        alias=origin.alias,
        sweep_id=origin.sweep_id,
    )
