"""Finding and listing batches, and the jobs of each."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, load_only

from app.domain.errors import InvalidRequest, NotFound
from app.domain.ids import BATCH_ID
from app.models import Batch, BatchJob, Job
from app.security.permissions import Caller
from app.services.access import projects
from app.services.queues import queues
from app.services.requests.pagination import PageRequest

NEWEST_FIRST = "-created_at"
ORDERS = ("created_at", NEWEST_FIRST)  # that of the ids, which begin with the moment of their creation


@dataclass(frozen=True, kw_only=True)
class BatchPage:
    items: Sequence[Batch]
    next_after: tuple[str] | None  # None: this is the last page


def find(session: Session, caller: Caller, batch_id: str) -> Batch:
    """The batch; raises the same NotFound for one that is not there, or not visible to the caller."""
    missing = f"no batch {batch_id[:64]}"
    batch = session.get(Batch, batch_id) if BATCH_ID.fullmatch(batch_id) else None
    if batch is None:
        raise NotFound(missing)
    caller.require_sight(batch.project, missing)
    return batch


def page(session: Session, caller: Caller, filters: Mapping[str, Any], request: PageRequest) -> BatchPage:
    """The caller's batches in one of ORDERS; filters are `project` and `status` (several).

    ``after`` is the id of a batch. Raises InvalidRequest for a page after what is none, and NotFound for a project of
    others.
    """
    query = select(Batch)
    if "project" in filters:
        projects.visible(session, caller, filters["project"])
        query = query.where(Batch.project == filters["project"])
    if caller.project is not None:
        query = query.where(Batch.project == caller.project)
    if filters.get("status"):
        query = query.where(Batch.status.in_(filters["status"]))
    is_descending = request.order == NEWEST_FIRST
    if request.after is not None:
        last = str(request.after[0])
        if not BATCH_ID.fullmatch(last):
            raise InvalidRequest(f"{last[:64]!r} is not the id of a batch; a list begins after one", field="after")
        query = query.where(Batch.id < last if is_descending else Batch.id > last)
    query = query.order_by(Batch.id.desc() if is_descending else Batch.id.asc())
    found = session.scalars(query.limit(request.size + 1)).all()
    shown = found[: request.size]
    return BatchPage(items=shown, next_after=(shown[-1].id,) if len(found) > len(shown) else None)


def jobs_of(session: Session, batch_ids: Collection[str]) -> Mapping[str, list[BatchJob]]:
    """Batch → its jobs by model; those whose jobs were deleted, too."""
    query = select(BatchJob).where(BatchJob.batch_id.in_(batch_ids)).order_by(BatchJob.model)
    found: dict[str, list[BatchJob]] = {}
    for row in session.scalars(query):
        found.setdefault(row.batch_id, []).append(row)
    return found


def waits_of(session: Session, batch_ids: Collection[str]) -> Mapping[str, str]:
    """Batch → why its oldest job that waits does; none where no job waits, or nothing says why."""
    query = (
        select(BatchJob.batch_id, Job)
        .join(Job, Job.id == BatchJob.job_id)
        .where(BatchJob.batch_id.in_(batch_ids), Job.status.in_(queues.WAITING))
        .order_by(Job.created_at, Job.id)
        .options(load_only(Job.queue, Job.status, Job.pending_reason))
    )
    waiting = [(row[0], row[1]) for row in session.execute(query)]
    reasons = queues.pending_reasons(session, [job for _, job in waiting])
    found: dict[str, str] = {}
    for batch_id, job in waiting:
        if reasons[job.id]:
            found.setdefault(batch_id, reasons[job.id])
    return found
