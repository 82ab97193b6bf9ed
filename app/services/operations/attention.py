"""What needs a person: failed jobs, nodes and devices out of service, jobs waiting beside free devices, full quotas."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import func, literal_column, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.scheduling.fair_share import KINDS, QuotaUsage
from app.domain.scheduling.resources import request_of
from app.models import Job, Node, ProcessBeat
from app.models.base import utc_now
from app.models.queue_order import LINE
from app.security.permissions import Caller
from app.services.nodes import device_kinds, stuck_devices
from app.services.operations.cluster_summary import FRESH, DeviceCount
from app.services.queues import limits, project_quotas, queues

FAILED_WITHIN = timedelta(hours=24)
# A job that was just queued waits for the planner's next pass.
WAITS_TOO_LONG = timedelta(minutes=1)
SHOWN = 5
_EXAMINED = 25  # waiting jobs
_NOUNS = {"cuda": "GPUs", "cpu": "CPU slots"}


@dataclass(frozen=True, kw_only=True)
class Concern:
    """``kind`` says what the link leads to: the job, the node, the shares or the operators' documents."""

    kind: Literal["failed", "waits", "node", "quota", "platform"]
    text: str
    detail: str = ""
    job_id: str = ""
    name: str = ""  # of the job, node or project
    at: datetime | None = None
    is_lost: bool = False  # a node that may be removed


@dataclass(frozen=True, kw_only=True)
class FailedJobs:
    count: int
    newest: Sequence[Concern]


def failed_jobs(session: Session, caller: Caller, now: datetime) -> FailedJobs:
    """The caller's jobs that failed within a day, the newest first."""
    # Literally, by which databases choose the partial index.
    where = [Job.status == literal_column("'FAILED'"), Job.finished_at >= now - FAILED_WITHIN]
    if caller.project is not None:
        where.append(Job.project == caller.project)
    count = session.scalar(select(func.count()).select_from(Job).where(*where)) or 0
    columns = Job.id, Job.name, Job.finished_at, Job.error_type, Job.error_message
    query = select(*columns).where(*where).order_by(Job.finished_at.desc()).limit(SHOWN)
    rows = session.execute(query).all() if count else []
    return FailedJobs(
        count=count,
        newest=[
            Concern(
                kind="failed",
                text=row.error_type or "failed",
                detail=_first_line(row.error_message),
                job_id=row.id,
                name=row.name,
                at=row.finished_at,
            )
            for row in rows
        ],
    )


def nodes(session: Session) -> list[Concern]:
    """Nodes that are lost or quarantined, and devices that are out of service."""
    query = select(Node.name, Node.state, Node.quarantine_reason, Node.lost_at, Node.last_seen_at)
    bad = session.execute(query.where(Node.state.in_(("lost", "quarantined"))).order_by(Node.state, Node.name)).all()
    found = [
        Concern(
            kind="node",
            name=row.name,
            text=f"is {row.state}",
            detail=row.quarantine_reason if row.state == "quarantined" else "sends no heartbeat",
            at=(row.lost_at or row.last_seen_at) if row.state == "lost" else None,
            is_lost=row.state == "lost",
        )
        for row in bad
    ]
    for name, held in sorted(stuck_devices.by_node(session).items()):
        indices = ", ".join(map(str, sorted(held)))
        found.append(
            Concern(
                kind="node",
                name=name,
                text=f"has {len(held)} device{'s' if len(held) > 1 else ''} out of service: {indices}",
                detail="a process of an ended attempt can't be killed",
                at=min(each.since for each in held.values()),
            )
        )
    return found


def waiting_beside_free(
    session: Session, caller: Caller, devices: Sequence[DeviceCount], now: datetime
) -> list[Concern]:
    """Jobs that have waited for a while although a device of a type that they take is free, the first in line first."""
    free = {count.type for count in devices if count.free}
    if not free:
        return []
    query = select(Job).where(Job.status == JobState.QUEUED, Job.queued_at < now - WAITS_TOO_LONG)
    if caller.project is not None:
        query = query.where(Job.project == caller.project)
    jobs = session.scalars(query.order_by(*LINE).limit(_EXAMINED)).all()
    if not jobs:
        return []
    seen, reasons = device_kinds.gpus(session), queues.pending_reasons(session, jobs)
    return [
        Concern(
            kind="waits",
            text="waits while devices are free",
            detail=reasons[job.id],
            job_id=job.id,
            name=job.name,
            at=job.queued_at,
        )
        for job in jobs
        if _takes(job, free, has_gpus=seen.for_auto)
    ][:SHOWN]


def quotas(session: Session, caller: Caller) -> list[Concern]:
    """Projects that may start no further job, or none that takes another device, while jobs of theirs wait."""
    standings = {
        name: each for name, each in project_quotas.accounts(session, {}).projects.items() if caller.sees(name)
    }
    limited = [name for name, each in standings.items() if each.quota.max_running_jobs is not None or _is_full(each)]
    waiting = project_quotas.count_jobs(session, limited, limits.WAITING)
    found = []
    for name, each in sorted(standings.items()):
        if each.spent:
            found.append(Concern(kind="quota", name=name, text="has used up its quota", detail=each.spent))
        elif waiting.get(name) and (reason := each.stopped(name) or _is_full(each)):
            text = f"has reached its quota, and {waiting[name]} of its jobs wait"
            found.append(Concern(kind="quota", name=name, text=text, detail=reason))
    return found


def coordinators(session: Session) -> list[Concern]:
    """Says so when no coordinator answers: nothing is started then."""
    newest = session.scalar(select(func.max(ProcessBeat.last_seen_at)).where(ProcessBeat.kind == "coordinator"))
    if newest is not None and utc_now() - newest <= FRESH:
        return []
    detail = "no job is admitted or started until one runs: trainyard coordinator"
    return [Concern(kind="platform", text="No coordinator answers", detail=detail, at=newest)]


def _first_line(message: str | None) -> str:
    return (message or "").strip().partition("\n")[0][:300]


def _takes(job: Job, free: set[str], *, has_gpus: bool) -> bool:
    request = request_of(job.document, has_gpus=has_gpus)
    if request.device_kind == "cpu":
        return "cpu" in free
    wanted = {name.lower() for name in request.gpu_type_names if name}
    return bool({kind for kind in free if kind != "cpu" and (not wanted or kind.split("-mig-")[0] in wanted)})


def _is_full(standing: QuotaUsage) -> str:
    """Why the project gets no further device of a kind; empty when it gets some of all kinds."""
    for kind in KINDS:
        most = standing.quota.of(kind).most
        if most is not None and most > 0 and standing.used.get(kind, 0) >= most:
            return f"it uses {standing.used[kind]:g} of at most {most} {_NOUNS[kind]}"
    return ""
