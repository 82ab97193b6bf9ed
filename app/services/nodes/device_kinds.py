"""Which kind of devices `device_type: auto` is: GPUs where a node in reach has one, else CPU slots."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from app.domain.errors import CannotFit
from app.domain.nodes.project_demand import ProjectDemand, demanding, sharing
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.resources import NodeCapacity, Request, request_of
from app.domain.spec.model import JobDocument
from app.models import Attempt, Device, Job, Node
from app.models.base import database_now
from app.services.nodes import project_demands

# A node that restarts, or that a network cuts off for a moment, must not send the jobs that wait for its GPUs to CPU
# slots.
LOST_GRACE = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """``for_auto``: what `auto` takes; ``out_of_reach``: the lost nodes that are why it takes CPU slots."""

    for_auto: bool
    out_of_reach: tuple[str, ...] = ()

    def unused_by(self, document: JobDocument, request: Request) -> list[str]:
        """For a job with `auto` that no GPU is in reach for, because nodes are lost: which ones, and the ways out."""
        if not self.out_of_reach or document.resource_config.device_type != "auto":
            return []
        first, *others = self.out_of_reach
        more = f" and {len(others)} more nodes with GPUs are" if others else ", which has GPUs, is"
        if request.device_kind != "cpu":
            why = f"the job waits for GPUs, and {first}{more} lost"
            return [f"resource_config.device_type: {why}: start its worker, or run `trainyard nodes remove {first}`"]
        why = f"auto takes CPU slots, since {first}{more} lost"
        ways = f"start its worker, ask for device_type cuda to wait for it, or run `trainyard nodes remove {first}`"
        return [f"resource_config.device_type: {why}: {ways}"]


def gpus(session: Session) -> Gpus:
    """`auto` takes GPUs where a node in reach has one, and where no node in reach has a CPU slot either."""
    on_gpu = Device.type != "cpu"
    in_reach = (Node.state != "lost") | (Node.lost_at > database_now(session) - LOST_GRACE)
    if _any(session, on_gpu, in_reach):
        return Gpus(for_auto=True)
    lost = select(Node.name).join(Device, Device.node == Node.name).where(on_gpu).distinct().order_by(Node.name)
    names = tuple(session.scalars(lost))
    if not names or not _any(session, Device.type == "cpu", in_reach):
        return Gpus(for_auto=bool(names))
    return Gpus(for_auto=False, out_of_reach=names)


def began_on_gpus(session: Session, seen: Gpus, job_ids: Collection[str]) -> set[str]:
    """Those of the jobs whose `auto` stays GPUs although these are out of reach: an attempt has used some."""
    if not seen.out_of_reach or not job_ids:
        return set()
    began = Attempt.started_at.is_not(None)
    used = select(Attempt.job_id).where(Attempt.job_id.in_(job_ids), Attempt.device_type != "cpu", began)
    return set(session.scalars(used))


def request_of_job(session: Session, job: Job) -> Request:
    """The resource request of a stored job as the planner sees it now."""
    seen = gpus(session)
    request = request_of(job.document, has_gpus=seen.for_auto or bool(began_on_gpus(session, seen, [job.id])))
    return sharing(demanding(request, project_demands.of_project(session, job.project)), job.project)


def fitting_request(document: JobDocument, seen: Gpus, nodes: Sequence[NodeCapacity], demand: ProjectDemand) -> Request:
    """The request of a new job, with what its project demands. Raises CannotFit when no registered node could ever
    hold it.

    A job that only the GPUs of a lost node could hold waits for them.
    """
    request = demanding(request_of(document, has_gpus=seen.for_auto), demand)
    try:
        refuse_unfitting(request, nodes)
    except CannotFit:
        on_gpus = demanding(request_of(document, has_gpus=True), demand)
        if not seen.out_of_reach or on_gpus == request:
            raise
        try:
            refuse_unfitting(on_gpus, nodes)
        except CannotFit:
            pass
        else:
            return on_gpus
        raise
    return request


def _any(session: Session, *conditions: ColumnElement[bool]) -> bool:
    found = select(Device.node).join(Node, Node.name == Device.node).where(*conditions).limit(1)
    return session.scalar(found) is not None
