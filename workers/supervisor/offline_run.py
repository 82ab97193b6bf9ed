"""Writes the run of a job whose `tracking` is offline: an artifact for `wandb sync`, new at each attempt's end."""

import hashlib
import logging

from app.domain.errors import LeaseLost
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import NewArtifact, Outcome
from app.domain.spec.model import Tracker
from app.models import Job
from app.services.attempts import artifacts
from app.services.provenance.wandb_export import exported
from app.storage.object_keys import run_file_key, wandb_file
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.recording.report_writer import Note

log = logging.getLogger(__name__)

# A long run is read in parts, each of a few milliseconds; where a user or another job waits, the file is left out.
MOST_SECONDS, HURRIED_SECONDS = 60.0, 2.0
_EXIT_CODES = {"completed": 0, "failed": 1, "cancelled": 1}  # others continue in another attempt
_ENDS_BY_ITSELF = ("completed", "failed")
_WAY_OUT = "`trainyard wandb JOB` makes the same file"


def store_offline_run(attempt: FinishedAttempt, outcome: Outcome) -> None:
    """Write the points that the database has of all attempts. A failure is a warning in the job's history.

    Raises LeaseLost.
    """
    tracker = next((each for each in attempt.work.document.tracking if each.is_offline), None)
    if tracker is None or attempt.work.part > 0:
        return
    try:
        _store(attempt, tracker, outcome.kind)
    except LeaseLost:
        raise
    except Exception as error:
        log.warning("the offline run can't be written", exc_info=True)
        reason = str(error) if isinstance(error, TimeoutError) else type(error).__name__
        message = f"the run for `wandb sync` could not be written ({reason}); {_WAY_OUT}"
        attempt.reporter.add(Note(kind=EventType.WARNING, reason="TRACKING", message=message))


def _store(attempt: FinishedAttempt, tracker: Tracker, kind: str) -> None:
    """Raises TimeoutError; what an earlier attempt has written stays then."""
    seconds = MOST_SECONDS if kind in _ENDS_BY_ITSELF else HURRIED_SECONDS
    work, db = attempt.work, attempt.db
    with db.read() as session:
        job = session.get_one(Job, work.job_id)
    # The other nodes of a gang may fail yet.
    exit_code = None if work.is_gang and kind == "completed" else _EXIT_CODES.get(kind)
    digest, size, path = hashlib.sha256(), 0, wandb_file(work.job_id)
    with attempt.context.storage.create(run_file_key(work.job_id, path)) as writer:
        for part in exported(db, job, tracker, exit_code=exit_code, seconds=seconds):
            writer.write(part)
            digest.update(part)
            size += len(part)
        with db.read() as session:  # the file of a later attempt is not replaced
            artifacts.require_held(session, work.job_id, work.fence)
    new = NewArtifact(path=path, size_bytes=size, sha256=digest.hexdigest())
    artifacts.record(db, job_id=work.job_id, fence=work.fence, new=new)
