"""Project quotas: checks for submission and start, and current usage."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import false, func, select
from sqlalchemy.orm import Session

from app.domain.errors import CannotFit, Conflict, QuotaExceeded
from app.domain.lifecycle.states import HELD
from app.domain.scheduling.fair_share import KINDS, ProjectQuota, QuotaUsage, never_fits, quota_of, refusal
from app.domain.scheduling.resources import Request
from app.domain.scheduling.serving_order import COMMON, Accounts
from app.domain.units import WHOLE
from app.models import Attempt, Device, Job, Project, Queue, Reservation
from app.models.base import utc_now
from app.services.files import storage_quota
from app.services.nodes.device_kinds import request_of_job
from app.services.queues import gpu_hours
from app.services.queues import limits as queue_limits

RETRY_FULL_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class CurrentUsage:
    """Current usage of a project. Devices of placed attempts count even before these have started."""

    devices: Mapping[str, float]  # by kind of request
    running_jobs: int
    waiting_jobs: int
    gpu_hours: float  # in this month
    storage_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Use:
    """Devices of one kind that a project's jobs in one queue hold."""

    project: str
    queue: str
    kind: str
    is_fixed: bool  # by jobs that can't be preempted
    devices: float


def accounts(session: Session, room: Mapping[str, int]) -> Accounts:
    """Accounts for the planner; ``room`` is the number of jobs that may still start per queue."""
    weights = {
        row.name: row.weight
        for row in session.execute(select(Queue.name, Queue.weight).where(Queue.weight.is_not(None)))
    }
    in_use = _in_use(session)
    queue_use: dict[tuple[str, str, str], float] = {}
    for each in in_use:
        place = (each.project, each.queue if each.queue in weights else COMMON, each.kind)
        queue_use[place] = queue_use.get(place, 0) + each.devices
    quotas = {row.name: quota_of(row.quota) for row in session.execute(select(Project.name, Project.quota))}
    running = count_jobs(session, [name for name, quota in quotas.items() if quota.max_running_jobs is not None], HELD)
    reasons = spent(session, quotas)
    usages = {
        name: QuotaUsage(
            quota=quota,
            used=_by_kind(in_use, name),
            fixed=_by_kind(in_use, name, only_fixed=True),
            running=running.get(name, 0),
            spent=reasons[name],
        )
        for name, quota in quotas.items()
    }
    return Accounts(room=room, projects=usages, queue_weights=weights, queue_use=queue_use)


def is_open(session: Session, project: Project, job: Job, amounts: Mapping[str, float]) -> bool:
    """Whether the quota of the project, which the caller has locked, admits the job with these devices, by kind."""
    if not project.quota:
        return True
    standing, preemptible = _usage_of(session, project), job.document.scheduling_config.preemptible
    return not any(
        refusal(job.project, standing, kind, amount, preemptible=preemptible) for kind, amount in amounts.items()
    )


def refuses(session: Session, name: str, request: Request, *, preemptible: bool) -> bool:
    """Whether the quota would currently keep such a job waiting; False for an unknown project."""
    project = session.get(Project, name) if "\0" not in name else None
    if project is None or not project.quota:
        return False
    standing = _usage_of(session, project)
    return any(
        refusal(name, standing, kind, amount, preemptible=preemptible) for kind, amount in request.amounts.items()
    )


def has_one(session: Session, name: str) -> bool:
    """Whether the project has a quota; False for an unknown project."""
    project = session.get(Project, name) if "\0" not in name else None
    return project is not None and bool(project.quota)


def refuse_submission(session: Session, name: str, request: Request, *, preemptible: bool) -> None:
    """Raises CannotFit for a job that the project's quota can never admit, QuotaExceeded for one too many.

    The caller adds the job in this transaction.
    """
    project = session.get_one(Project, name)
    # Locked until the new job is there: of two that are submitted at once, the second counts the first.
    session.refresh(project, with_for_update={"key_share": True})
    quota = quota_of(project.quota)
    if never := _never_fits(name, quota, request, preemptible=preemptible):
        raise CannotFit(never, field="tasks" if request.roles else "resource_config.gpu_count")
    if reason := spent(session, {name: quota})[name]:
        seconds = RETRY_FULL_SECONDS
        if not _storage_full(session, {name: quota}):
            seconds = max(1, round((gpu_hours.next_month(utc_now()) - utc_now()).total_seconds()))
        raise QuotaExceeded(reason, retry_after_seconds=seconds)
    _refuse_one_too_many(session, name, quota)


def _never_fits(name: str, quota: ProjectQuota, request: Request, *, preemptible: bool) -> str:
    found = (never_fits(name, quota, kind, amount, preemptible=preemptible) for kind, amount in request.amounts.items())
    return next(filter(None, found), "")


def refuse_when_full(session: Session, name: str) -> None:
    """Raises QuotaExceeded when no more jobs of the project may wait; the caller adds one in this transaction."""
    project = session.get_one(Project, name)
    if project.quota:
        session.refresh(project, with_for_update={"key_share": True})
        _refuse_one_too_many(session, name, quota_of(project.quota))


def _refuse_one_too_many(session: Session, name: str, quota: ProjectQuota) -> None:
    waiting = count_jobs(session, [name], queue_limits.WAITING).get(name, 0)
    if quota.max_waiting_jobs is not None and waiting >= quota.max_waiting_jobs:
        raise QuotaExceeded(
            f"the project {name} has {waiting} waiting jobs of at most {quota.max_waiting_jobs} (max_waiting_jobs of "
            "its quota); submit again when one has started, or cancel one",
            retry_after_seconds=RETRY_FULL_SECONDS,
        )


def refuse_to_keep_borrowed(session: Session, job: Job) -> None:
    """Raises Conflict when a job that stops being preemptible would keep borrowed devices, or could never start.

    The caller has locked the job.
    """
    project = session.get_one(Project, job.project, with_for_update={"key_share": True}, populate_existing=True)
    standing = _usage_of(session, project)
    if job.state in HELD:
        attempt = session.get_one(Attempt, (job.id, job.attempt))
        amounts = {_kind_of(attempt): sum(map(len, attempt.device_indices)) * attempt.device_share / WHOLE}
        if attempt.instances is not None:
            amounts = dict(request_of_job(session, job).amounts)
        for kind, amount in amounts.items():
            if standing.is_fixed_beyond(kind, amount):
                deserved, fixed = standing.quota.of(kind).deserved, standing.fixed.get(kind, 0)
                raise Conflict(
                    f"the project {job.project} deserves {deserved} {KINDS[kind]}, and its jobs that are not "
                    f"preemptible use {fixed:g} of them: the devices of this job must stay reclaimable"
                )
        return
    if never := _never_fits(job.project, standing.quota, request_of_job(session, job), preemptible=False):
        raise Conflict(never)


def _kind_of(attempt: Attempt) -> str:
    return "cpu" if attempt.device_type == "cpu" else "cuda"


def spent(session: Session, quotas: Mapping[str, ProjectQuota]) -> dict[str, str]:
    """Project → why none of its jobs may start although devices are free; "" when jobs may start.

    Computed for all projects at once, with queries only for those that have such a limit.
    """
    return {**dict.fromkeys(quotas, ""), **_storage_full(session, quotas), **hours_used_up(session, quotas)}


def hours_used_up(session: Session, quotas: Mapping[str, ProjectQuota]) -> dict[str, str]:
    """Project → reason, for projects without GPU-hours left."""
    limits = {name: each.gpu_hours_per_month for name, each in quotas.items() if each.gpu_hours_per_month is not None}
    hours = gpu_hours.used(session, limits)
    return {
        name: f"the project {name} has used {hours[name]:.1f} of its {limit:g} GPU-hours per month; the budget "
        f"is renewed on {gpu_hours.next_month(utc_now()):%Y-%m-%d}"
        for name, limit in limits.items()
        if hours[name] >= limit
    }


def _storage_full(session: Session, quotas: Mapping[str, ProjectQuota]) -> dict[str, str]:
    """Project → reason, for projects without storage left."""
    limits = {name: each.storage_gb for name, each in quotas.items() if each.storage_gb is not None}
    stored = storage_quota.stored_bytes(session, limits)
    return {
        name: f"the project {name} stores {stored[name] / storage_quota.GB:.1f} of at most {limit:g} GB of "
        "checkpoints, results and files; delete jobs with their artifacts, or files"
        for name, limit in limits.items()
        if stored[name] >= limit * storage_quota.GB
    }


def usage(session: Session, name: str) -> CurrentUsage:
    return CurrentUsage(
        devices={**dict.fromkeys(KINDS, 0), **_by_kind(_in_use(session, name), name)},
        running_jobs=count_jobs(session, [name], HELD).get(name, 0),
        waiting_jobs=count_jobs(session, [name], queue_limits.WAITING).get(name, 0),
        gpu_hours=round(gpu_hours.used(session, [name])[name], 3),
        storage_bytes=storage_quota.stored_bytes(session, [name])[name],
    )


def _usage_of(session: Session, project: Project) -> QuotaUsage:
    quota, in_use = quota_of(project.quota), _in_use(session, project.name)
    running = count_jobs(session, [project.name], HELD).get(project.name, 0)
    return QuotaUsage(
        quota=quota,
        used=_by_kind(in_use, project.name),
        fixed=_by_kind(in_use, project.name, only_fixed=True),
        running=running,
        spent=spent(session, {project.name: quota})[project.name],
    )


def _in_use(session: Session, name: str | None = None) -> list[_Use]:
    """Usage of all attempts that hold devices, or of those of one project."""
    same = (Attempt.job_id == Reservation.job_id) & (Attempt.number == Reservation.attempt)
    # Instances of one job may have GPUs and CPU slots: of each device its own type counts.
    own = (
        (Device.node == Reservation.node) & (Device.index == Reservation.device_index) & Attempt.instances.is_not(None)
    )
    is_cpu = (func.coalesce(Device.type, Attempt.device_type) == "cpu").label("is_cpu")
    preemptible = func.coalesce(Job.spec["scheduling_config", "preemptible"].as_boolean(), false()).label("preemptible")
    query = (
        select(Job.project, Job.queue, is_cpu, preemptible, func.sum(Reservation.share).label("share"))
        .select_from(Reservation)
        .join(Job, Job.id == Reservation.job_id)
        .join(Attempt, same)
        .outerjoin(Device, own)
        .group_by(Job.project, Job.queue, is_cpu, preemptible)
    )
    if name is not None:
        query = query.where(Job.project == name)
    return [
        _Use(
            project=row.project,
            queue=row.queue,
            kind="cpu" if row.is_cpu else "cuda",
            is_fixed=not row.preemptible,
            devices=row.share / WHOLE,
        )
        for row in session.execute(query)
    ]


def _by_kind(in_use: Iterable[_Use], project: str, *, only_fixed: bool = False) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in in_use:
        if each.project == project and (each.is_fixed or not only_fixed):
            found[each.kind] = found.get(each.kind, 0) + each.devices
    return found


def count_jobs(session: Session, names: Collection[str], states: Collection[str]) -> dict[str, int]:
    """Project → number of jobs in these states; projects without any are left out."""
    if not names:
        return {}
    counts = select(Job.project, func.count()).where(Job.project.in_(names), Job.status.in_(states))
    return {row[0]: row[1] for row in session.execute(counts.group_by(Job.project))}
