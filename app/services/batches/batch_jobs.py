"""The jobs of a batch: one for each model that its requests name, submitted like any other."""

import logging
from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.batches.problems import Problem, problem
from app.domain.batches.states import BatchState
from app.domain.errors import CannotFit, Conflict, InvalidRequest, NotFound, TrainyardError, Unauthenticated
from app.models import Batch, BatchJob
from app.services.batches import models, rows, validating
from app.services.inference import submission
from app.services.jobs.submission import Submitted
from app.services.requests.control_plane import ControlPlane

KEY_ENDED = "api_key_ended"
KEY_HAS_ENDED = (
    "the API key that created the batch was revoked or has expired before this job was submitted; send its requests "
    "again with another key"
)
NO_JOB = ""  # batch_job.job_id of a model whose job was refused

logger = logging.getLogger(__name__)


class _NotNeeded(Exception):
    """The batch does not run any more, or has this job already: nothing is written."""


def launch(plane: ControlPlane, batch: Batch) -> bool:
    """Submit the jobs that are missing; whether none has to wait, which the next step tries again."""
    with plane.db.read() as session:
        known = set(session.scalars(select(BatchJob.model).where(BatchJob.batch_id == batch.id)))
    for number, name in enumerate(sorted(batch.models)):
        if name not in known and not _submitted(plane, batch, name, number):
            return False
    return True


def _submitted(plane: ControlPlane, batch: Batch, name: str, number: int) -> bool:
    """Whether the next one may be submitted."""
    try:
        _submit(plane, batch, name, number)
    except _NotNeeded:
        return False
    except CannotFit as error:
        rows.wait(plane, batch, error.message)
        return False
    except Unauthenticated:
        _note_refusal(plane, batch, name, problem(KEY_ENDED, KEY_HAS_ENDED))
    except (InvalidRequest, NotFound, Conflict) as error:  # its model has gone since the validation
        _note_refusal(plane, batch, name, problem(error.code.lower(), error.message, param=validating.MODEL))
    except TrainyardError as error:  # a limit, or a storage that does not answer
        rows.wait(plane, batch, error.message)
        return False
    return True


def _submit(plane: ControlPlane, batch: Batch, name: str, number: int) -> None:
    caller = rows.caller_of(batch)
    with plane.db.read() as session:
        meant = models.meant(plane, session, caller, name, batch.endpoint)
    submission.submit(
        plane,
        caller,
        validating.new_job(batch, name, number, meant),
        project=batch.project,
        forwarded=meant.tokens,
        on_written=_noted(batch.id, name),
    )


def _noted(batch_id: str, name: str) -> Callable[[Session, Any], None]:
    def note(session: Session, submitted: Submitted) -> None:
        session.flush()
        _add(session, batch_id, name, submitted.job.id)

    return note


def _add(session: Session, batch_id: str, name: str, job_id: str) -> None:
    batch = rows.locked(session, batch_id)
    if batch.status != BatchState.IN_PROGRESS or session.get(BatchJob, (batch_id, name)) is not None:
        raise _NotNeeded
    session.add(BatchJob(batch_id=batch_id, model=name, job_id=job_id, requests=batch.models[name]))
    batch.pending_reason = ""


def _note_refusal(plane: ControlPlane, batch: Batch, name: str, refusal: Problem) -> None:
    """Its requests will have this error; others are answered."""
    logger.warning("batch %s: the job for %s was refused: %s", batch.id, name, refusal["message"])
    try:
        with plane.db.write() as session:
            _add(session, batch.id, name, NO_JOB)
            found = rows.locked(session, batch.id)
            found.problems = [*found.problems, {**refusal, "model": name}]
    except _NotNeeded:
        return
