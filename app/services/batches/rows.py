"""Rows of batches: locking one, ending one, and the caller that submits its jobs."""

from collections.abc import Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.batches.limits import MOST_PROBLEMS
from app.domain.batches.problems import Problem
from app.domain.batches.states import ENDED, BatchState
from app.domain.errors import NotFound
from app.models import Batch, BatchJob, Job
from app.models.base import utc_now
from app.security.permissions import Caller, Role
from app.services.batches import announcing
from app.services.requests.control_plane import ControlPlane


def caller_of(batch: Batch) -> Caller:
    """In whose name its jobs are submitted; submission refuses them once that key has been revoked."""
    return Caller(key_id=batch.submits_as, role=Role.USER, project=batch.project)


def locked(session: Session, batch_id: str) -> Batch:
    """The batch with its row locked until the transaction ends: after project, files and jobs. Raises NotFound."""
    found = session.get(Batch, batch_id, with_for_update=True, populate_existing=True)
    if found is None:
        raise NotFound(f"no batch {batch_id}")
    return found


def jobs_of(session: Session, batch_id: str) -> list[tuple[BatchJob, Job | None]]:
    """Its jobs by model; None for one that was deleted, or that no submission has made."""
    query = select(BatchJob, Job).outerjoin(Job, Job.id == BatchJob.job_id).where(BatchJob.batch_id == batch_id)
    return [(row[0], row[1]) for row in session.execute(query.order_by(BatchJob.model))]


def move(session: Session, batch: Batch, to: BatchState) -> None:
    """Change the state of a batch whose row the caller has locked; webhooks get its end as it is now."""
    now = utc_now()
    batch.status, batch.pending_reason, batch.updated_at = to, "", now
    if to is BatchState.IN_PROGRESS:
        batch.in_progress_at = now
    elif to is BatchState.FINALIZING:
        batch.finalizing_at = now
    elif to is BatchState.CANCELLING:
        batch.cancelling_at = now
    elif to in ENDED:
        batch.ended_at = now
        announcing.announce(session, batch)


def fail(session: Session, batch: Batch, problems: Iterable[Problem]) -> None:
    batch.problems = [*problems][:MOST_PROBLEMS]
    move(session, batch, BatchState.FAILED)


def wait(plane: ControlPlane, seen: Batch, reason: str) -> None:
    """Note why it does not advance; it is tried again. Empty: it does."""
    if seen.pending_reason == reason:
        return
    with plane.db.write() as session:
        batch = locked(session, seen.id)
        if batch.status not in ENDED:
            batch.pending_reason, batch.updated_at = reason, utc_now()
