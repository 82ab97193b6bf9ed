"""The end of a batch: its jobs have ended or are cancelled, then its files are written and shown with its end, once."""

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from datetime import timedelta

from sqlalchemy.orm import Session

from app.domain.batches.problems import Problem, problem
from app.domain.batches.states import ENDED, BatchState
from app.domain.errors import Conflict
from app.domain.files import purposes
from app.domain.ids import new_id
from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Batch, BatchJob, Job
from app.models.base import utc_now
from app.services.access import projects
from app.services.batches import content, rows, stored_rows
from app.services.batches.content import ContentMissing, StepInterrupted
from app.services.batches.merging import Lost, merged
from app.services.files import creation, hidden_rows
from app.services.files.incoming import Incoming, StoredContent
from app.services.inference import listing
from app.services.jobs.control import commands
from app.services.requests.control_plane import ControlPlane

OUTPUT, ERRORS = "output", "errors"
NO_JOB_LEFT = "the job that was to answer this request was deleted"
MISSING_KEPT = timedelta(hours=1)  # how long its requests may be missing in the storage
_LINES_BETWEEN_CHECKS = 200

logger = logging.getLogger(__name__)


class _EndedMeanwhile(Exception):
    """Another process has ended the batch; what this one has written is deleted."""


class _File:
    """A file of the batch, begun with its first line."""

    def __init__(self, plane: ControlPlane, batch: Batch, stack: ExitStack) -> None:
        self._plane, self._batch, self._stack = plane, batch, stack
        self._incoming: Incoming | None = None
        self.lines = 0

    def write(self, line: bytes) -> None:
        if self._incoming is None:
            place = creation.place_of(new_id("file"), self._batch.project, max_bytes=sys.maxsize, free_bytes=None)
            self._incoming = self._stack.enter_context(Incoming(self._plane, place))
        self._incoming.write(line)
        self.lines += 1

    def finish(self) -> StoredContent | None:
        return self._incoming.finish() if self._incoming is not None else None


def advance(
    plane: ControlPlane, batch: Batch, jobs: list[tuple[BatchJob, Job | None]], keep_on: Callable[[], bool]
) -> None:
    """Cancel what still runs; once nothing does, write the files and end the batch.

    Raises StepInterrupted when ``keep_on`` says no while the files are written.
    """
    running = [job for _, job in jobs if job is not None and job.state not in TERMINAL]
    for job in running:
        _cancel(plane, batch, job)
    if running:
        return
    if batch.in_progress_at is None:  # nothing was submitted
        _end_without_files(plane, batch)
        return
    if not batch.cancel_requested and not _is_expired(batch) and _all_failed(plane, jobs):
        _end_as_failed(plane, batch, jobs)
        return
    try:
        _write(plane, batch, jobs, keep_on)
    except _EndedMeanwhile:
        logger.info("batch %s was ended by another process", batch.id)
    except ContentMissing as error:
        if not _is_given_up(batch):
            raise
        _fail(plane, batch, [problem("file_not_found", error.message)])


def _is_given_up(batch: Batch) -> bool:
    """A storage that is away for a while has nothing, too."""
    began_at = batch.finalizing_at or batch.cancelling_at
    return began_at is not None and utc_now() - began_at > MISSING_KEPT


def _cancel(plane: ControlPlane, batch: Batch, job: Job) -> None:
    if job.requested == "cancel":
        return
    reason = "its batch was cancelled" if batch.cancel_requested else "the window of its batch has ended"
    try:
        commands.cancel(plane, rows.caller_of(batch), job.id, reason=reason)
    except Conflict:
        return  # it has just ended


def _is_expired(batch: Batch) -> bool:
    return batch.finalizing_at is not None and batch.finalizing_at >= batch.expires_at


def _all_failed(plane: ControlPlane, jobs: list[tuple[BatchJob, Job | None]]) -> bool:
    """Whether no job has completed, and none has stored anything."""
    if any(job is not None and job.state is JobState.COMPLETED for _, job in jobs):
        return False
    with plane.db.read() as session:
        return not listing.counts(session, [row.job_id for row, _ in jobs])


def _end_as_failed(plane: ControlPlane, seen: Batch, jobs: list[tuple[BatchJob, Job | None]]) -> None:
    problems = []
    for row, job in jobs:
        why = _lost(seen, row, job)
        if refusal := _refusal(seen, row):
            problems.append(refusal)
        elif why is not None:
            problems.append({**problem(why.code, why.message), "model": row.model})
    _fail(plane, seen, problems)


def _fail(plane: ControlPlane, seen: Batch, problems: list[Problem]) -> None:
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.status not in ENDED:
            batch.completed, batch.failed = 0, batch.total
            rows.fail(session, batch, problems)


def _end_without_files(plane: ControlPlane, seen: Batch) -> None:
    with plane.db.write() as session:
        batch = rows.locked(session, seen.id)
        if batch.status not in ENDED:
            rows.move(session, batch, BatchState.CANCELLED if batch.cancel_requested else BatchState.EXPIRED)


def _write(
    plane: ControlPlane, batch: Batch, jobs: list[tuple[BatchJob, Job | None]], keep_on: Callable[[], bool]
) -> None:
    streams = {row.model: stored_rows.rows_of(plane, row.job_id) for row, _ in jobs}
    lost = {row.model: _lost(batch, row, job) for row, job in jobs}
    never = _lost_by_end(batch)
    with ExitStack() as stack:
        files = {True: _File(plane, batch, stack), False: _File(plane, batch, stack)}
        requests = stack.enter_context(closing(content.lines_of(plane, batch)))
        for stream in streams.values():
            stack.enter_context(closing(stream))
        for number, line in enumerate(merged(batch.id, requests, streams, lambda model: lost.get(model, never))):
            if number % _LINES_BETWEEN_CHECKS == 0 and not keep_on():
                raise StepInterrupted
            files[line.is_answer].write(line.content)
        output, errors = files[True].finish(), files[False].finish()
        counted = {"completed": files[True].lines, "failed": files[False].lines}
        ends_as = _end_of(batch, jobs)
        with plane.db.write() as session:
            _show(session, batch, output, errors, ends_as, counted)


def _show(
    session: Session,
    seen: Batch,
    output: StoredContent | None,
    errors: StoredContent | None,
    ends_as: BatchState,
    counted: Mapping[str, int],
) -> None:
    """Both files and the end of the batch, in one transaction: project, files, batch, as they are locked elsewhere."""
    projects.hold(session, seen.project)
    for stored, what in ((output, OUTPUT), (errors, ERRORS)):
        if stored is not None:
            _complete(session, seen, stored, what)
    batch = rows.locked(session, seen.id)
    if batch.status in ENDED:
        raise _EndedMeanwhile
    batch.output_file_id = output.file_id if output is not None else None
    batch.error_file_id = errors.file_id if errors is not None else None
    batch.completed, batch.failed = counted["completed"], counted["failed"]
    rows.move(session, batch, ends_as)


def _complete(session: Session, batch: Batch, stored: StoredContent, what: str) -> None:
    file = hidden_rows.taken(session, stored.file_id)
    file.created_by = batch.created_by
    file.filename, file.purpose = f"{batch.id}_{what}.jsonl", purposes.BATCH_OUTPUT
    file.size_bytes, file.sha256, file.records = stored.size_bytes, stored.sha256, stored.records
    file.status = purposes.PROCESSED
    seconds = batch.output_expires_seconds
    file.expires_at = utc_now() + timedelta(seconds=seconds) if seconds is not None else None


def _end_of(batch: Batch, jobs: list[tuple[BatchJob, Job | None]]) -> BatchState:
    if batch.cancel_requested:
        return BatchState.CANCELLED
    is_cut = len(jobs) < len(batch.models) or any(job is not None and _is_cut(batch, job) for _, job in jobs)
    return BatchState.EXPIRED if is_cut and _is_expired(batch) else BatchState.COMPLETED


def _is_cut(batch: Batch, job: Job) -> bool:
    """Whether the end of the window has cancelled it, and no user before."""
    is_late = job.finished_at is not None and job.finished_at >= batch.expires_at
    return job.state is JobState.CANCELLED and is_late


def _lost_by_end(batch: Batch) -> Lost | None:
    """Of a request whose job the end of the batch has kept from running, or from its end."""
    if batch.cancel_requested:
        return None
    return Lost(code="batch_expired", message="the request was not answered before the window of the batch ended")


def _refusal(batch: Batch, row: BatchJob) -> Problem | None:
    """Why the model's job was never submitted; None: it was."""
    if row.job_id:
        return None
    refused = problem("batch_job_refused", "its job was refused")
    return next((each for each in batch.problems if each.get("model") == row.model), refused)


def _lost(batch: Batch, row: BatchJob, job: Job | None) -> Lost | None:
    """Why requests without a row have none."""
    if refusal := _refusal(batch, row):
        return Lost(code=refusal["code"], message=refusal["message"])
    if job is None:
        return Lost(code="batch_job_deleted", message=NO_JOB_LEFT)
    if job.state is JobState.FAILED:
        return Lost(code="batch_job_failed", message=f"{job.id} failed with {job.error_type}: {job.error_message}")
    if job.state is JobState.PREEMPTED:
        message = f"{job.id} gave its devices to another job; set scheduling_config.on_preemption to requeue"
        return Lost(code="batch_job_preempted", message=message)
    if job.state is JobState.CANCELLED:
        if batch.cancel_requested or _is_cut(batch, job):
            return _lost_by_end(batch)
        return Lost(code="batch_job_cancelled", message=f"{job.id}, which was to answer this request, was cancelled")
    return Lost(code="no_answer", message=f"{job.id} has completed without an answer to this request")
