"""What the first page shows: what needs a person, what runs with its loss, and what waits in order of service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, load_only

from app.database.engine import Database
from app.domain.lifecycle.states import HELD
from app.models import Job
from app.models.base import utc_now
from app.security.permissions import Caller, Permission
from app.services.jobs.details import OUTLOOK_SECONDS
from app.services.operations import attention, cluster_summary
from app.services.operations.attention import Concern, FailedJobs
from app.services.operations.cluster_summary import DeviceCount
from app.services.operations.diagnosis.checks import OF_PAGES, run_checks
from app.services.operations.diagnosis.findings import Finding, Level
from app.services.operations.diagnosis.site import Site
from app.services.operations.loss_curves import loss_curves
from app.services.operations.readiness import failing_parts
from app.services.queues import queues
from app.services.requests.pagination import PageRequest
from app.services.requests.short_cache import ShortCache
from app.services.scheduling import start_estimates
from config.settings import Settings

SHOWN = 20
# Viewers share what is shown for so long; what costs more is kept for longer.
SECONDS, WAITING_SECONDS, DOCTOR_SECONDS = 1.0, 3.0, 30.0
_AT_ONCE = timedelta(seconds=5)
# Without documents and other JSON that this page does not show.
_SHOWN_OF_RUNNING: tuple[Any, ...] = (
    *(Job.name, Job.project, Job.status, Job.progress, Job.current_step, Job.total_steps, Job.eta_seconds),
    *(Job.started_at, Job.node_names, Job.latest_metrics),
)


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """A job that holds devices, with the curve of its loss; an empty one when it reports none."""

    job_id: str
    name: str
    project: str
    status: str
    progress: float
    step: int
    total_steps: int | None
    eta_seconds: float | None
    started_at: datetime | None
    nodes: Sequence[str]
    loss_name: str
    losses: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    job_id: str
    name: str
    project: str
    status: str
    position: int
    reason: str
    waiting_seconds: float
    starts_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Overview:
    failed: FailedJobs
    concerns: Sequence[Concern]
    running: Sequence[RunningJob]
    running_count: int
    waiting: Sequence[WaitingJob]
    waiting_count: int
    devices: Sequence[DeviceCount]
    nodes: Mapping[str, int]


def overview(db: Database, caller: Caller, settings: Settings, shared: ShortCache) -> Overview:
    """Shared by all callers of a project for a moment; operators see what `doctor` finds besides."""
    found = shared.get(("overview", caller.project), SECONDS, lambda: _read(db, caller, shared))
    if not (caller.may(Permission.CLUSTER_ADMIN) and caller.project is None):
        return found
    doctor = shared.get(("overview of operators",), DOCTOR_SECONDS, lambda: findings(db, settings))
    return Overview(**{**vars(found), "concerns": [*doctor, *found.concerns]})


def findings(db: Database, settings: Settings) -> list[Concern]:
    """What those checks of `trainyard doctor` find that only read some rows and files."""
    site = Site(settings, lambda: db)
    found = [
        Concern(kind="platform", text=f"The {part} {problem}")
        for part, problem in failing_parts(db, settings.broker.url).items()
        if part != "coordinator"  # a concern of all callers
    ]
    return found + [_concern(each) for _, each in run_checks(site, OF_PAGES) if each.level is Level.FAILED]


def _concern(finding: Finding) -> Concern:
    return Concern(kind="platform", text=finding.message[:1].upper() + finding.message[1:], detail=finding.fix)


def _read(db: Database, caller: Caller, shared: ShortCache) -> Overview:
    now = utc_now()
    with db.read() as session:
        devices = cluster_summary.devices_by_type(session)
        waiting, waiting_count = shared.get(
            ("waiting", caller.project), WAITING_SECONDS, lambda: _waiting(session, caller, now, shared)
        )
        return Overview(
            failed=attention.failed_jobs(session, caller, now),
            concerns=[
                *attention.coordinators(session),
                *attention.nodes(session),
                *attention.quotas(session, caller),
                *attention.waiting_beside_free(session, caller, devices, now),
            ],
            running=_running(session, caller, shared),
            running_count=_count_running(session, caller),
            waiting=waiting,
            waiting_count=waiting_count,
            devices=devices,
            nodes=cluster_summary.nodes_by_state(session),
        )


def _running(session: Session, caller: Caller, shared: ShortCache) -> list[RunningJob]:
    query = select(Job).options(load_only(*_SHOWN_OF_RUNNING)).where(Job.status.in_(HELD))
    if caller.project is not None:
        query = query.where(Job.project == caller.project)
    jobs = session.scalars(query.order_by(Job.started_at.desc(), Job.id.desc()).limit(SHOWN)).all()
    curves = loss_curves(session, jobs, shared)
    return [_as_running(job, *curve) for job, curve in zip(jobs, curves, strict=True)]


def _as_running(job: Job, name: str, losses: Sequence[float]) -> RunningJob:
    return RunningJob(
        job_id=job.id,
        name=job.name,
        project=job.project,
        status=job.status,
        progress=job.progress,
        step=job.current_step,
        total_steps=job.total_steps,
        eta_seconds=job.eta_seconds,
        started_at=job.started_at,
        nodes=tuple(job.node_names),
        loss_name=name,
        losses=losses,
    )


def _count_running(session: Session, caller: Caller) -> int:
    query = select(func.count()).select_from(Job).where(Job.status.in_(HELD))
    if caller.project is not None:
        query = query.where(Job.project == caller.project)
    return session.scalar(query) or 0


def _waiting(session: Session, caller: Caller, now: datetime, shared: ShortCache) -> tuple[list[WaitingJob], int]:
    page = queues.line(session, caller, PageRequest(size=SHOWN, order=queues.SERVICE), now=now)
    expected = start_estimates.shared_front(session, shared, OUTLOOK_SECONDS).expected
    return [
        WaitingJob(
            job_id=each.job.id,
            name=each.job.name,
            project=each.job.project,
            status=each.job.status,
            position=each.position,
            reason=each.pending_reason,
            waiting_seconds=each.waiting_seconds,
            starts_at=_later(expected.get(each.job.id), each.pending_reason, now),
        )
        for each in page.items
    ], page.total_count


def _later(starts_at: datetime | None, reason: str, now: datetime) -> datetime | None:
    """Estimates know of devices alone: for a job that something else holds back, "at once" means unknown."""
    return None if reason and starts_at is not None and starts_at - now < _AT_ONCE else starts_at
