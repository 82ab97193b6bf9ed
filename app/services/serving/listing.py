"""Reading services: pages, one with its counts, its replicas."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL
from app.domain.serving import first_tokens
from app.domain.serving.document import ServiceDocument
from app.domain.serving.states import ServiceState
from app.models import Job, Replica, Service
from app.security.permissions import Caller
from app.services.access import projects
from app.services.access.key_names import key_names
from app.services.requests.pagination import Orders, Page, PageRequest, page_of
from app.services.serving import endpoints, loads, lookup
from app.services.serving.fleet import FleetMember
from app.services.serving.loads import Load

ORDERS: Orders = {
    "created_at": (Service.created_at, Service.id),
    "name": (Service.name, Service.id),
    "status": (Service.status, Service.created_at, Service.id),
}
REPLICA_ORDERS: Orders = {"number": (Replica.number,)}
_MOST = 1e9
_SHARE = 0.95  # of streams whose first token came sooner than is shown


@dataclass(kw_only=True)
class Fleet:
    """The live replicas of a service: how many, and what those that answer have reported last."""

    answering: int = 0
    starting: int = 0
    draining: int = 0
    tokens_per_second: float = 0.0
    adapters_loaded: int = 0

    def add(self, member: FleetMember) -> None:
        if member.answers:
            self.answering += 1
        elif member.is_draining:
            self.draining += 1
        else:
            self.starting += 1
        if member.answers or member.is_draining:
            reported = member.job.latest_metrics or {}
            if reported.get("in_flight"):  # a replica without requests reports nothing more
                self.tokens_per_second += _number(reported.get("tokens_per_second"))
            self.adapters_loaded += int(_number(reported.get("adapters")))


@dataclass(frozen=True, kw_only=True)
class ServiceDetails:
    """A service as it is shown; ``fleet`` is of its live replicas, ``waits`` says why one of them waits."""

    service: Service
    load: Load = field(default_factory=Load)
    fleet: Fleet = field(default_factory=Fleet)
    first_token_seconds: float | None = None  # of 95 % of the streams of the last minutes; None: there were none
    waits: str = ""
    created_by_name: str = ""  # of the key; empty for one without a name

    @property
    def pending_reason(self) -> str:
        return self.waits or self.service.pending_reason

    @property
    def answering(self) -> int:
        return self.fleet.answering

    @property
    def starting(self) -> int:
        return self.fleet.starting

    @property
    def document(self) -> ServiceDocument:
        return ServiceDocument.from_json(self.service.spec)


@dataclass(frozen=True, kw_only=True)
class ReplicaDetails:
    replica: Replica
    job: Job

    @property
    def answers(self) -> bool:
        return FleetMember(self.replica, self.job).answers


@dataclass(frozen=True, kw_only=True)
class UsedTime:
    """What all replicas that a service has had have used."""

    replicas: int
    seconds: float
    gpu_seconds: float


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> Page[ServiceDetails]:
    """The caller's services, by default those that have not ended. Raises NotFound for a project of others."""
    query = select(Service)
    if "project" in filters:
        projects.visible(session, caller, filters["project"])
        query = query.where(Service.project == filters["project"])
    if caller.project is not None:
        query = query.where(Service.project == caller.project)
    states = filters.get("status") or [state for state in ServiceState if state is not ServiceState.ENDED]
    query = query.where(Service.status.in_(states))
    if filters.get("name"):
        query = query.where(Service.name == filters["name"])
    found: Page[Service] = page_of(session, query, ORDERS, request)
    return Page(
        items=_details(session, found.items),
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def one(session: Session, caller: Caller, handle: str) -> ServiceDetails:
    """Raises NotFound as `lookup.service`."""
    return details(session, lookup.service(session, caller, handle))


def details(session: Session, service: Service) -> ServiceDetails:
    return _details(session, [service])[0]


def replicas(
    session: Session, service: Service, filters: Mapping[str, Any], request: PageRequest
) -> Page[ReplicaDetails]:
    query = select(Replica).where(Replica.service_id == service.id)
    if filters.get("status"):
        query = query.join(Job, Job.id == Replica.job_id).where(Job.status.in_(filters["status"]))
    found: Page[Replica] = page_of(session, query, REPLICA_ORDERS, request)
    jobs = {
        job.id: job for job in session.scalars(select(Job).where(Job.id.in_([each.job_id for each in found.items])))
    }
    return Page(
        items=[ReplicaDetails(replica=each, job=jobs[each.job_id]) for each in found.items],
        next_after=found.next_after,
        total_count=found.total_count,
        total_count_capped=found.total_count_capped,
    )


def used_time(session: Session, service: Service) -> UsedTime:
    jobs = session.scalars(select(Job).join(Replica, Replica.job_id == Job.id).where(Replica.service_id == service.id))
    found = [(job.elapsed_seconds, job.gpu_seconds) for job in jobs]
    return UsedTime(
        replicas=len(found), seconds=sum(each[0] for each in found), gpu_seconds=sum(each[1] for each in found)
    )


def _details(session: Session, services: Sequence[Service]) -> list[ServiceDetails]:
    ids = [service.id for service in services]
    fleets, current, waits = _fleets(session, ids), loads.of(session, ids), endpoints.waits_of(session, ids)
    first = loads.first_tokens_of(session, ids)
    authors = key_names(session, {service.created_by for service in services})
    return [
        ServiceDetails(
            service=each,
            load=current.get(each.id, Load()),
            fleet=fleets.get(each.id, Fleet()),
            first_token_seconds=first_tokens.quantile(first.get(each.id, ()), _SHARE),
            waits=waits.get(each.id, ""),
            created_by_name=authors.get(each.created_by, ""),
        )
        for each in services
    ]


def _fleets(session: Session, ids: Sequence[str]) -> dict[str, Fleet]:
    live = (
        select(Replica, Job)
        .join(Job, Job.id == Replica.job_id)
        .where(Replica.service_id.in_(ids), ~Replica.ended_seen, Job.status.not_in(TERMINAL))
    )
    found: dict[str, Fleet] = {}
    for replica, job in session.execute(live):
        found.setdefault(replica.service_id, Fleet()).add(FleetMember(replica, job))
    return found


def _number(value: object) -> float:
    """0 for what is none, within bounds: ranks report anything."""
    return min(max(float(value), 0.0), _MOST) if isinstance(value, int | float) and math.isfinite(value) else 0.0
