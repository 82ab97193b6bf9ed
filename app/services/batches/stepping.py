"""A step of a batch: validate a slice, submit jobs, count what they have done, or end it."""

import logging
from collections.abc import Callable, Sequence

from sqlalchemy import select

from app.database.engine import Database
from app.domain.batches.states import ENDED, BatchState
from app.domain.errors import TrainyardError
from app.domain.lifecycle.states import TERMINAL
from app.models import Batch
from app.models.base import utc_now
from app.services.batches import finishing, launching, progress, rows, validating
from app.services.batches.finishing import Interrupted
from app.services.batches.validating import BodyCheck
from app.services.requests.control_plane import ControlPlane

logger = logging.getLogger(__name__)


def live(db: Database) -> Sequence[str]:
    """Ids of the batches that have not ended, oldest first."""
    with db.read() as session:
        return session.scalars(select(Batch.id).where(Batch.status.not_in(ENDED)).order_by(Batch.id)).all()


def step_all(plane: ControlPlane, batch_ids: Sequence[str], check: BodyCheck, keep_on: Callable[[], bool]) -> bool:
    """Advance each; whether one has more to do at once. One that fails is logged and must not hold up the others."""
    has_more = False
    for batch_id in batch_ids:
        if not keep_on():
            return False
        try:
            has_more = step(plane, batch_id, check, keep_on) or has_more
        except Interrupted:
            return False
        except TrainyardError as error:  # a storage that does not answer, above all
            logger.warning("batch %s can't advance yet", batch_id, exc_info=True)
            rows.wait(plane, _read(plane, batch_id), error.message)
        except Exception:
            logger.exception("batch %s failed to advance and will be retried", batch_id)
    return has_more


def step(plane: ControlPlane, batch_id: str, check: BodyCheck, keep_on: Callable[[], bool] = lambda: True) -> bool:
    """Do what is due; whether there is more to do at once."""
    batch = _read(plane, batch_id)
    if batch.status == BatchState.VALIDATING:
        if utc_now() < batch.expires_at:
            return validating.advance(plane, batch, check)
        _finalize(plane, batch)
    elif batch.status == BatchState.IN_PROGRESS:
        _run(plane, batch)
    batch = _read(plane, batch_id)
    if batch.status in (BatchState.FINALIZING, BatchState.CANCELLING):
        finishing.advance(plane, batch, keep_on)
    return False


def _run(plane: ControlPlane, batch: Batch) -> None:
    if utc_now() < batch.expires_at:
        launching.launch(plane, batch)
    is_over = _are_over(plane, batch) or utc_now() >= batch.expires_at
    progress.count(plane, batch)
    if is_over:
        _finalize(plane, batch)
    else:
        progress.raise_priority(plane, batch)


def _are_over(plane: ControlPlane, batch: Batch) -> bool:
    with plane.db.read() as session:
        jobs = rows.jobs_of(session, batch.id)
    return len(jobs) == len(batch.models) and all(job is None or job.state in TERMINAL for _, job in jobs)


def _finalize(plane: ControlPlane, seen: Batch) -> None:
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.status == seen.status:
            rows.move(batch, BatchState.FINALIZING)


def _read(plane: ControlPlane, batch_id: str) -> Batch:
    with plane.db.read() as session:
        return session.get_one(Batch, batch_id)
