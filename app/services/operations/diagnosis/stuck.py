"""Checks for stuck work; the time limits are generous, because they only trigger findings."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select

from app.domain.lifecycle.states import HELD, TERMINAL, JobState
from app.models import Inspection, Job, Lease, Reservation, StuckDevice, Webhook, WebhookDelivery
from app.models.base import utc_now
from app.services.operations.diagnosis.findings import Findings, failed, fine, warning
from app.services.operations.diagnosis.site import Site

SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class StuckCheck:
    """A query for rows that are overdue at a given time, with the finding it leads to."""

    what: str
    late: timedelta
    query: Callable[[datetime], Select[Any]]
    fix: str
    fails: bool = True


def _live(*where: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists(select(Lease.id).where(Lease.released_at.is_(None), *where))


def _overdue(late: datetime) -> Select[Any]:
    """Deliveries that are overdue although neither a backoff nor a delivery lease holds them back."""
    asked_at = func.coalesce(
        WebhookDelivery.next_try_at, WebhookDelivery.created_at, type_=WebhookDelivery.created_at.type
    )
    return (
        select(WebhookDelivery.id)
        .join(Webhook, Webhook.id == WebhookDelivery.webhook_id)
        .where(WebhookDelivery.state == "waiting", asked_at < late, Webhook.is_active)
        .where(*(or_(until.is_(None), until < late) for until in (Webhook.rests_until, Webhook.turn_until)))
    )


JOBS = (
    StuckCheck(
        what="wait for admission",
        late=timedelta(minutes=15),
        fails=False,
        query=lambda late: select(Job.id).where(Job.status == JobState.PENDING, Job.created_at < late),
        fix="is a coordinator alive? Check its log",
    ),
    StuckCheck(
        what="are placed on a node that does not claim them",
        late=timedelta(minutes=2),
        query=lambda late: select(Job.id).where(Job.status == JobState.SCHEDULING, Job.updated_at < late),
        fix="check the log of the node worker (`node_names` of the job)",
    ),
    StuckCheck(
        what="should run, but hold no lease",
        late=timedelta(minutes=2),
        query=lambda late: select(Job.id).where(
            Job.status.in_(HELD), Job.updated_at < late, ~_live(Lease.job_id == Job.id)
        ),
        fix="report this as a bug; `trainyard jobs cancel JOB` and a retry recover it",
    ),
    StuckCheck(
        what="were requested to stop long ago and still run",
        late=timedelta(minutes=20),
        fails=False,
        query=lambda late: select(Job.id).where(
            Job.requested.is_not(None),
            Job.status.in_(HELD),
            func.coalesce(Job.cancel_requested_at, Job.pause_requested_at, type_=Job.created_at.type) < late,
        ),
        fix="check the log of their node; `trainyard jobs cancel JOB` ends them",
    ),
)

LEASES = (
    StuckCheck(
        what="leases are neither renewed nor reaped",
        late=timedelta(minutes=2),
        query=lambda late: (
            select(Lease.job_id)
            .distinct()
            .where(
                Lease.released_at.is_(None),
                func.coalesce(Lease.renewed_at, Lease.created_at, type_=Lease.created_at.type) < late,
            )
        ),
        fix="is a coordinator alive? It reaps such leases within seconds",
    ),
    StuckCheck(
        what="leases are held for jobs that have ended",
        late=timedelta(minutes=2),
        query=lambda late: (
            select(Lease.job_id)
            .distinct()
            .join(Job, Job.id == Lease.job_id)
            .where(Lease.released_at.is_(None), Job.status.in_(TERMINAL), Job.finished_at < late)
        ),
        fix="report this as a bug: their devices stay reserved",
    ),
    StuckCheck(
        what="devices are reserved for attempts that have ended",
        late=timedelta(0),
        query=lambda _late: (
            select(Reservation.job_id)
            .distinct()
            .where(~_live(and_(Lease.job_id == Reservation.job_id, Lease.attempt == Reservation.attempt)))
        ),
        fix="report this as a bug: these devices cannot be allocated",
    ),
    StuckCheck(
        what="devices are out of service: a process of these jobs is unkillable",
        late=timedelta(0),
        fails=False,
        query=lambda _late: select(StuckDevice.job_id).distinct(),
        fix="whatever it waits for (a driver, a network file system) must respond, or the machine be restarted; "
        "`trainyard nodes show NAME` names the devices",
    ),
)

MESSAGES = (
    StuckCheck(
        what="webhook deliveries are overdue",
        late=timedelta(minutes=10),
        fails=False,
        query=_overdue,
        fix="is a coordinator alive? Check its log for delivery errors",
    ),
    StuckCheck(
        what="preflight inspections do not end",
        late=timedelta(minutes=20),
        fails=False,
        query=lambda late: select(Inspection.id).where(Inspection.state != "done", Inspection.created_at < late),
        fix="check the coordinators' logs for preflights; TRAINYARD_PREFLIGHT_ENABLED=0 disables them",
    ),
)


def jobs(site: Site) -> Findings:
    return _check(site, JOBS, "no jobs are stuck")


def leases(site: Site) -> Findings:
    return _check(site, LEASES, "leases and devices are consistent")


def messages(site: Site) -> Findings:
    return _check(site, MESSAGES, "no deliveries or preflights are stuck")


def _check(site: Site, table: tuple[StuckCheck, ...], well: str) -> Findings:
    findings: Findings = []
    with site.db.read() as session:
        queries = [one.query(utc_now() - one.late) for one in table]
        # All counts at once: nearly always they are 0, and the dashboard asks every half minute.
        counts = session.execute(
            select(*(select(func.count()).select_from(query.subquery()).scalar_subquery() for query in queries))
        ).one()
        for one, query, count in zip(table, queries, counts, strict=True):
            if count:
                names = ", ".join(session.scalars(query.limit(SHOWN)))
                more = f" and {count - SHOWN} more" if count > SHOWN else ""
                findings += (failed if one.fails else warning)(f"{count} {one.what}: {names}{more}", one.fix)
    return findings or fine(well)
