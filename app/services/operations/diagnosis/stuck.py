"""Checks of work that should have moved on long ago; times are generous, for nothing is decided by them."""

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
class Standing:
    """Rows that ``query`` (given the time before which they are late) finds, and what that means."""

    what: str
    late: timedelta
    query: Callable[[datetime], Select[Any]]
    fix: str
    fails: bool = True


def _live(*where: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists(select(Lease.id).where(Lease.released_at.is_(None), *where))


def _overdue(late: datetime) -> Select[Any]:
    """What nobody tries although nothing speaks against it: no rest after failures, no turn of a coordinator's."""
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
    Standing(
        what="wait for admission", late=timedelta(minutes=15), fails=False,
        query=lambda late: select(Job.id).where(Job.status == JobState.PENDING, Job.created_at < late),
        fix="is a coordinator alive? Its log says what it does with them",
    ),
    Standing(
        what="are placed on a node that does not take them up", late=timedelta(minutes=2),
        query=lambda late: select(Job.id).where(Job.status == JobState.SCHEDULING, Job.updated_at < late),
        fix="look into the log of the node worker (`node_names` of the job)",
    ),
    Standing(
        what="should run, but nobody holds them", late=timedelta(minutes=2),
        query=lambda late: select(Job.id).where(
            Job.status.in_(HELD), Job.updated_at < late, ~_live(Lease.job_id == Job.id)
        ),
        fix="report this as a fault; `trainyard jobs cancel JOB` and a retry free it",
    ),
    Standing(
        what="were asked to stop long ago and still run", late=timedelta(minutes=20), fails=False,
        query=lambda late: select(Job.id).where(
            Job.requested.is_not(None), Job.status.in_(HELD),
            func.coalesce(Job.cancel_requested_at, Job.pause_requested_at, type_=Job.created_at.type) < late,
        ),
        fix="look into the log of their node; `trainyard jobs cancel JOB` ends them",
    ),
)  # fmt: skip

LEASES = (
    Standing(
        what="leases are no longer renewed and not taken away", late=timedelta(minutes=2),
        query=lambda late: select(Lease.job_id).distinct().where(
            Lease.released_at.is_(None), func.coalesce(Lease.renewed_at, Lease.created_at, type_=Lease.created_at.type)
            < late,
        ),
        fix="is a coordinator alive? It takes such leases away within seconds",
    ),
    Standing(
        what="leases are held for jobs that have ended", late=timedelta(minutes=2),
        query=lambda late: select(Lease.job_id).distinct()
        .join(Job, Job.id == Lease.job_id)
        .where(Lease.released_at.is_(None), Job.status.in_(TERMINAL), Job.finished_at < late),
        fix="report this as a fault: their devices stay taken",
    ),
    Standing(
        what="devices are reserved for attempts that have ended", late=timedelta(0),
        query=lambda _late: select(Reservation.job_id).distinct().where(
            ~_live(and_(Lease.job_id == Reservation.job_id, Lease.attempt == Reservation.attempt))
        ),
        fix="report this as a fault: nobody else can have these devices",
    ),
    Standing(
        what="devices are out of service: a process of these jobs can't be ended", late=timedelta(0), fails=False,
        query=lambda _late: select(StuckDevice.job_id).distinct(),
        fix="what it waits for (a driver, a network file system) must answer, or its machine be restarted; "
        "`trainyard nodes show NAME` names the devices",
    ),
)  # fmt: skip

MESSAGES = (
    Standing(
        what="webhook deliveries are overdue", late=timedelta(minutes=10), fails=False, query=_overdue,
        fix="is a coordinator alive? Its log says what stops it from delivering",
    ),
    Standing(
        what="looks at model and data do not end", late=timedelta(minutes=20), fails=False,
        query=lambda late: select(Inspection.id).where(Inspection.state != "done", Inspection.created_at < late),
        fix="look into the coordinators' logs for preflights; TRAINYARD_PREFLIGHT_ENABLED=0 goes without",
    ),
)  # fmt: skip


def jobs(site: Site) -> Findings:
    return _look(site, JOBS, "jobs move on")


def leases(site: Site) -> Findings:
    return _look(site, LEASES, "leases and devices fit together")


def messages(site: Site) -> Findings:
    return _look(site, MESSAGES, "deliveries and looks at data move on")


def _look(site: Site, table: tuple[Standing, ...], well: str) -> Findings:
    findings: Findings = []
    with site.db.read() as session:
        for one in table:
            query = one.query(utc_now() - one.late)
            count = session.scalar(select(func.count()).select_from(query.subquery())) or 0
            if count:
                names = ", ".join(session.scalars(query.limit(SHOWN)))
                more = f" and {count - SHOWN} more" if count > SHOWN else ""
                findings += (failed if one.fails else warning)(f"{count} {one.what}: {names}{more}", one.fix)
    return findings or fine(well)
