"""A step of a service: take notice of replicas that ended, decide how many there should be, drain and start some."""

import logging
from collections.abc import Sequence

from sqlalchemy import exists, or_, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.serving.document import ServiceDocument
from app.domain.serving.events import ServiceEventType
from app.domain.serving.states import ServiceState
from app.models import Job, Replica, Service, ServiceLoad
from app.models.base import utc_now
from app.services.lifecycle import transitions
from app.services.requests.control_plane import ControlPlane
from app.services.serving import (
    demand,
    draining,
    failures,
    fleet,
    history,
    loads,
    lookup,
    next_replica,
    rollover,
    states,
    waiting_jobs,
)
from app.services.serving.demand import Demand
from app.services.serving.fleet import FleetMember
from app.services.serving.history import ACTOR
from app.services.serving.loads import Load

# Replicas that are started in one step: other services are next.
MOST_AT_ONCE = 16

logger = logging.getLogger(__name__)


def any_live(db: Database) -> bool:
    """Whether there is a service that has not ended."""
    with db.query() as connection:
        return connection.scalar(select(Service.id).where(Service.ended_at.is_(None)).limit(1)) is not None


def active(db: Database) -> Sequence[str]:
    """Ids of the services that may have something to do, oldest first.

    Most have no replicas and no requests: a project may have thousands of models that are rarely asked.
    """
    has_replicas = exists().where(Replica.service_id == Service.id, ~Replica.ended_seen)
    has_requests = exists().where(
        ServiceLoad.service_id == Service.id,
        ServiceLoad.at >= utc_now() - loads.FRESH_FOR,
        ServiceLoad.in_flight + ServiceLoad.waiting > 0,
    )
    is_active = or_(Service.status == ServiceState.ENDING, Service.wanted > 0, has_replicas, has_requests)
    query = select(Service.id).where(Service.ended_at.is_(None), is_active)
    with db.query() as connection:
        return connection.scalars(query.order_by(Service.created_at, Service.id)).all()


def step_all(plane: ControlPlane, service_ids: Sequence[str]) -> None:
    """Advance each of these services. One that fails is logged and must not hold up the others."""
    for service_id in service_ids:
        try:
            step(plane, service_id)
        except Exception:
            logger.exception("service %s failed to advance and will be retried", service_id)


def step(plane: ControlPlane, service_id: str) -> None:
    """Do what is due."""
    with plane.db.read() as session:
        service = session.get(Service, service_id)
        if service is None or service.status == ServiceState.ENDED:
            return
        is_due = _is_due(session, service)
    if is_due:
        _advance(plane, service_id)
    for _ in range(MOST_AT_ONCE):
        if not next_replica.launch(plane, service_id):
            break


def _is_due(session: Session, service: Service) -> bool:
    """Whether `_advance` has anything to write; reads only, so that most steps take no lock."""
    members = fleet.members(session, service)
    if any(not each.is_live and not each.replica.ended_seen for each in members):
        return True
    if service.status == ServiceState.ENDING and not members:
        return True
    return (
        _demand(session, service, members).differs(service)
        or failures.recovered(service, members)
        or bool(_to_drain(service, members))
        or bool(_to_give_way(service, members))
    )


def _demand(session: Session, service: Service, members: list[FleetMember]) -> Demand:
    load = loads.of(session, [service.id]).get(service.id, Load())
    of_revision = fleet.live(members, revision=service.revision)
    now = utc_now()
    # Only then does it matter.
    could_end = service.wanted > ServiceDocument.from_json(service.spec).replicas.min
    jobs_wait = could_end and waiting_jobs.want_devices_of(session, of_revision, now)
    is_starting = any(each.is_starting for each in of_revision)
    return demand.of(service, load, now, is_starting=is_starting, jobs_wait=jobs_wait)


def _to_drain(service: Service, members: list[FleetMember]) -> list[tuple[FleetMember, str]]:
    """Those that the service can do without, and those that were to drain but wait or run again since."""
    again = [
        (each, "the service does not need it any more")
        for each in members
        if each.is_live and each.is_draining and each.job.requested is None
    ]
    return [*rollover.surplus(service, members, utc_now()), *again]


def _to_give_way(service: Service, members: list[FleetMember]) -> list[FleetMember]:
    return rollover.to_give_way(service, fleet.live(members, revision=service.revision))


def _advance(plane: ControlPlane, service_id: str) -> None:
    to_nudge: list[Job] = []
    with plane.db.write() as session:
        service = lookup.locked(session, service_id)
        if service.status == ServiceState.ENDED:
            return
        members = fleet.locked_members(session, service)
        failures.notice_ends(session, service, members)
        if failures.recovered(service, members):
            failures.forget(service)
        _scale(session, service, members, _demand(session, service, members))
        for each, reason in _to_drain(service, members):
            job = _drain(session, service, each, reason)
            to_nudge += [job] if job is not None else []
        for each in _to_give_way(service, members):
            _make_preemptible(session, each.job)
        if service.status == ServiceState.ENDING and not any(each.is_live for each in members):
            states.move(session, service, ServiceState.ENDED, actor=ACTOR)
    for job in to_nudge:
        plane.nudge(job)


def _scale(session: Session, service: Service, members: list[FleetMember], wanted: Demand) -> None:
    service.above_target_since, service.needed_at = wanted.above_target_since, wanted.needed_at
    if wanted.wanted == service.wanted:
        return
    before, service.wanted = service.wanted, wanted.wanted
    answering = sum(each.answers for each in fleet.live(members, revision=service.revision))
    if service.wanted < before and (not service.failures or 0 < service.wanted <= answering):
        service.pending_reason = ""
    service.mark_changed()
    history.record(
        session,
        service,
        ServiceEventType.SCALED,
        actor=ACTOR,
        message=f"from {before} to {service.wanted} replicas",
        data={"from": before, "to": service.wanted},
    )


def _drain(session: Session, service: Service, member: FleetMember, reason: str) -> Job | None:
    is_first = not member.is_draining
    job = draining.request(session, member.replica, reason=reason)
    if is_first:
        history.record(
            session,
            service,
            ServiceEventType.REPLICA_DRAINING,
            actor=ACTOR,
            message=f"replica {member.replica.number}: {reason}",
            data={"number": member.replica.number, "job_id": member.replica.job_id},
        )
        service.mark_changed()
    return job


def _make_preemptible(session: Session, job: Job) -> None:
    # Other sections stay as they are, with fields that this version does not know.
    scheduling = job.document.scheduling_config.changed(preemptible=True)
    job.spec = {**job.spec, "scheduling_config": scheduling.to_json()}
    job.mark_changed()
    data = {"preemptible": {"from": False, "to": True}}
    transitions.record_event(session, job.id, EventType.CHANGED, actor=ACTOR, message="preemptible", data=data)
