"""The replicas of a service with their jobs, and which of them answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import HELD, TERMINAL, JobState
from app.domain.serving.document import ServiceDocument
from app.domain.spec.model import JobDocument
from app.models import Job, Replica, Service


@dataclass(frozen=True)
class FleetMember:
    """A replica that has not ended, or whose end the coordinator has not taken notice of."""

    replica: Replica
    job: Job

    @property
    def is_live(self) -> bool:
        return self.job.state not in TERMINAL

    @property
    def is_draining(self) -> bool:
        return self.replica.drain_requested_at is not None

    @property
    def answers(self) -> bool:
        """New requests may be sent to it."""
        return (
            self.job.state is JobState.SERVING
            and self.replica.answers_since is not None
            and self.replica.fence == self.job.fence
            and not self.is_draining
        )

    @property
    def is_starting(self) -> bool:
        """It has devices, and does not answer yet."""
        return self.job.state in HELD and not self.answers and not self.is_draining

    @property
    def is_preemptible(self) -> bool:
        return self.job.document.scheduling_config.preemptible


def members(session: Session, service: Service) -> list[FleetMember]:
    """In the order of their numbers."""
    query = (
        select(Replica, Job)
        .join(Job, Job.id == Replica.job_id)
        .where(Replica.service_id == service.id, ~Replica.ended_seen)
        .order_by(Replica.number)
    )
    return [FleetMember(replica, job) for replica, job in session.execute(query)]


def locked_members(session: Session, service: Service) -> list[FleetMember]:
    """As `members`, with the rows of their jobs locked in the order of ids, and read again."""
    ids = [each.job.id for each in members(session, service)]
    locked = select(Job.id).where(Job.id.in_(ids)).order_by(Job.id).with_for_update()
    session.execute(locked).all()
    for kind in (Job, Replica):
        column = Job.id if kind is Job else Replica.job_id
        session.scalars(select(kind).where(column.in_(ids)), execution_options={"populate_existing": True}).all()
    return members(session, service)


def lasting(service: Service) -> int:
    """How many of the wanted replicas are not to give way to other jobs."""
    least = min(service.wanted, ServiceDocument.from_json(service.spec).replicas.min)
    return 0 if least and JobDocument.from_json(service.base).scheduling_config.preemptible else least


def live(found: Sequence[FleetMember], *, revision: int) -> list[FleetMember]:
    """Those of a revision that are neither ended nor draining."""
    return [each for each in found if each.is_live and not each.is_draining and each.replica.revision == revision]
