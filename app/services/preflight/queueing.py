"""PENDING → QUEUED for jobs that passed their checks: several in one transaction, so that they share its cost."""

import logging
import time
from collections.abc import Callable, Sequence

from sqlalchemy import select
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import load_only

from app.database.engine import Database, is_deadlock
from app.domain.errors import StaleJob
from app.domain.lifecycle.states import JobState
from app.models import Job
from app.services.lifecycle import transitions
from app.services.lifecycle.transitions import Step

TOGETHER = 50  # jobs per transaction, which other writers of theirs wait for
GATHER_SECONDS = 0.05  # that the first of them may wait for others while more jobs are checked
ADMITTED, ACTOR = "admitted", "coordinator"

Failed = Callable[[Sequence[str], Exception], None]  # jobs that stay PENDING, and why

logger = logging.getLogger(__name__)


class Gathered:
    """Jobs that passed their checks and are to be queued. Used by one thread."""

    def __init__(self, db: Database, failed: Failed, clock: Callable[[], float] = time.monotonic) -> None:
        self._db, self._failed, self._clock = db, failed, clock
        self._ids: list[str] = []
        self._since = 0.0

    def add(self, job_id: str) -> None:
        self._since = self._since if self._ids else self._clock()
        self._ids.append(job_id)

    @property
    def is_due(self) -> bool:
        """Whether they should not wait for others any longer."""
        waited = self._clock() - self._since
        return bool(self._ids) and (len(self._ids) >= TOGETHER or waited >= GATHER_SECONDS)

    def queue(self) -> list[str]:
        """Queue those that are still PENDING; returns them. Errors are reported to ``failed``."""
        ids, self._ids = self._ids, []
        return _queue(self._db, ids, self._failed) if ids else []


def _queue(db: Database, job_ids: Sequence[str], failed: Failed) -> list[str]:
    """Falls back to one transaction per job where one of several may be the reason."""
    try:
        return _queue_together(db, job_ids)
    except OperationalError as error:
        if not is_deadlock(error) or len(job_ids) == 1:
            failed(job_ids, error)
            return []
        logger.warning("admissions were aborted by a deadlock and are retried one by one: %s", error)
    except StaleJob as error:
        if len(job_ids) == 1:
            return []  # it has changed, so the next round begins at once
        logger.info("admissions are retried one by one: %s", error)
    except SQLAlchemyError as error:  # the next transaction would most likely fail, too, perhaps after a long wait
        failed(job_ids, error)
        return []
    except Exception as error:  # noqa: BLE001 – one job's error must not hold up the others
        if len(job_ids) == 1:
            failed(job_ids, error)
            return []
    return [queued for job_id in job_ids for queued in _queue(db, [job_id], failed)]


def _queue_together(db: Database, job_ids: Sequence[str]) -> list[str]:
    query = select(Job).where(Job.id.in_(job_ids), Job.status == JobState.PENDING).order_by(Job.id)
    query = query.options(load_only(*transitions.TRANSITION_COLUMNS)).with_for_update()
    with db.write() as session:
        jobs = session.scalars(query, execution_options={"populate_existing": True}).all()
        steps = [Step(job=job, message="", changes={"pending_reason": ""}) for job in jobs]
        transitions.transition_all(session, steps, JobState.QUEUED, actor=ACTOR, reason=ADMITTED)
        return [job.id for job in jobs]
