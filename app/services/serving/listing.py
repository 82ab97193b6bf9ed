"""Reading services: pages, one with its counts, its replicas."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL
from app.domain.serving.document import ServiceDocument
from app.domain.serving.states import ServiceState
from app.models import Job, Replica, Service
from app.security.permissions import Caller
from app.services.access import projects
from app.services.access.key_names import key_names
from app.services.requests.pagination import Orders, Page, PageRequest, page_of
from app.services.serving import endpoints, loads, lookup
from app.services.serving.fleet import Member
from app.services.serving.loads import Load

ORDERS: Orders = {
    "created_at": (Service.created_at, Service.id),
    "name": (Service.name, Service.id),
    "status": (Service.status, Service.created_at, Service.id),
}
REPLICA_ORDERS: Orders = {"number": (Replica.number,)}
ANSWERING, STARTING, DRAINING = "answering", "starting", "draining"


@dataclass(frozen=True, kw_only=True)
class ServiceDetails:
    """A service as it is shown; ``counts`` are of its live replicas, ``waits`` says why one of them waits."""

    service: Service
    load: Load = field(default_factory=Load)
    counts: Mapping[str, int] = field(default_factory=dict)
    waits: str = ""
    created_by_name: str = ""  # of the key; empty for one without a name

    @property
    def pending_reason(self) -> str:
        return self.waits or self.service.pending_reason

    @property
    def document(self) -> ServiceDocument:
        return ServiceDocument.from_json(self.service.spec)

    @property
    def answering(self) -> int:
        return self.counts.get(ANSWERING, 0)

    @property
    def starting(self) -> int:
        return self.counts.get(STARTING, 0)

    @property
    def draining(self) -> int:
        return self.counts.get(DRAINING, 0)


@dataclass(frozen=True, kw_only=True)
class ReplicaDetails:
    replica: Replica
    job: Job

    @property
    def answers(self) -> bool:
        return Member(self.replica, self.job).answers


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
    counted, current, waits = _counts(session, ids), loads.of(session, ids), endpoints.waits_of(session, ids)
    authors = key_names(session, {service.created_by for service in services})
    return [
        ServiceDetails(
            service=each,
            load=current.get(each.id, Load()),
            counts=counted.get(each.id, {}),
            waits=waits.get(each.id, ""),
            created_by_name=authors.get(each.created_by, ""),
        )
        for each in services
    ]


def _counts(session: Session, ids: Sequence[str]) -> dict[str, Counter[str]]:
    live = (
        select(Replica, Job)
        .join(Job, Job.id == Replica.job_id)
        .where(Replica.service_id.in_(ids), ~Replica.ended_seen, Job.status.not_in(TERMINAL))
    )
    found: dict[str, Counter[str]] = {}
    for replica, job in session.execute(live):
        member = Member(replica, job)
        word = ANSWERING if member.answers else DRAINING if member.is_draining else STARTING
        found.setdefault(replica.service_id, Counter())[word] += 1
    return found
