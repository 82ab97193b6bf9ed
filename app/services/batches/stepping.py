"""A step of a batch: validate a slice, submit jobs, count what they have done, or end it."""

import logging
from collections.abc import Callable, Sequence

from sqlalchemy import select

from app.database.engine import Database
from app.domain.batches.states import ENDED, BatchState
from app.domain.errors import TrainyardError
from app.domain.lifecycle.states import TERMINAL
from app.models import Batch, BatchJob, Job
from app.models.base import utc_now
from app.services.batches import batch_jobs, finishing, progress, rows, validating
from app.services.batches.content import StepInterrupted
from app.services.batches.reading import Reading
from app.services.batches.validating import BodyCheck
from app.services.requests.control_plane import ControlPlane

FAULT = "an internal error, which the coordinator's log has; it is tried again"

logger = logging.getLogger(__name__)


def live(db: Database) -> Sequence[str]:
    """Ids of the batches that have not ended, oldest first."""
    with db.query() as connection:
        return connection.scalars(select(Batch.id).where(Batch.status.not_in(ENDED)).order_by(Batch.id)).all()


def step_all(
    plane: ControlPlane,
    batch_ids: Sequence[str],
    check: BodyCheck,
    keep_on: Callable[[], bool],
    reading: Reading | None = None,
) -> bool:
    """Advance each; whether one has more to do at once. One that fails is logged and must not hold up the others."""
    has_more, reading = False, reading or Reading()
    for batch_id in batch_ids:
        if not keep_on():
            return False
        try:
            has_more = step(plane, batch_id, check, keep_on, reading) or has_more
        except StepInterrupted:
            return False
        except TrainyardError as error:  # a storage that does not answer, above all
            logger.warning("batch %s can't advance yet", batch_id, exc_info=True)
            _wait(plane, batch_id, error.message)
        except Exception:
            logger.exception("batch %s failed to advance and will be retried", batch_id)
            _wait(plane, batch_id, FAULT)
    return has_more


def _wait(plane: ControlPlane, batch_id: str, reason: str) -> None:
    with plane.db.read() as session:
        batch = session.get(Batch, batch_id)
    if batch is not None:
        rows.wait(plane, batch, reason)


def step(
    plane: ControlPlane,
    batch_id: str,
    check: BodyCheck,
    keep_on: Callable[[], bool] = lambda: True,
    reading: Reading | None = None,
) -> bool:
    """Do what is due; whether there is more to do at once. ``reading``: that of the steps before, if any."""
    batch = _read(plane, batch_id)
    if batch.status == BatchState.VALIDATING:
        if utc_now() < batch.expires_at:
            return validating.advance(plane, batch, check, keep_on, reading or Reading())
        _finalize(plane, batch)
    elif batch.status == BatchState.IN_PROGRESS:
        _run(plane, batch)
    batch = _read(plane, batch_id)
    if batch.status in (BatchState.FINALIZING, BatchState.CANCELLING):
        jobs = _jobs(plane, batch)
        progress.count(plane, batch, jobs)  # what jobs have stored since their cancellation counts, too
        finishing.advance(plane, batch, jobs, keep_on)
        rows.wait(plane, batch, "")
    return False


def _run(plane: ControlPlane, batch: Batch) -> None:
    jobs, are_submitted = _jobs(plane, batch), True
    if len(jobs) < len(batch.models) and utc_now() < batch.expires_at:
        are_submitted = batch_jobs.launch(plane, batch)
        jobs = _jobs(plane, batch)
    is_over = len(jobs) == len(batch.models) and all(job is None or job.state in TERMINAL for _, job in jobs)
    progress.count(plane, batch, jobs)
    if is_over or utc_now() >= batch.expires_at:
        _finalize(plane, batch)
        return
    progress.raise_priority(plane, batch, jobs)
    if are_submitted:
        rows.wait(plane, batch, "")  # what an outage has left there


def _jobs(plane: ControlPlane, batch: Batch) -> list[tuple[BatchJob, Job | None]]:
    with plane.db.read() as session:
        return rows.jobs_of(session, batch.id)


def _finalize(plane: ControlPlane, seen: Batch) -> None:
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.status == seen.status:
            rows.move(session, batch, BatchState.FINALIZING)


def _read(plane: ControlPlane, batch_id: str) -> Batch:
    with plane.db.read() as session:
        return session.get_one(Batch, batch_id)
