"""Gang parts: the parts of an attempt on several nodes end one by one; the last one completes the attempt."""

import time
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff, takes_host_down
from app.domain.lifecycle.states import HELD, TERMINAL, JobState
from app.models import Attempt, Job, Lease
from app.models.base import database_now
from app.services.attempts import artifact_rows, completion, node_outputs
from app.services.attempts.completion import Ending, end_attempt
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions
from app.services.queues import gpu_hours

# Fields of an outcome that are stored until the last part ends; report and artifacts only the first part has.
_STORED = (
    "kind",
    "cause",
    "message",
    "stack",
    "exit_code",
    "end_step",
    "related_task",
    "detect_seconds",
    "node",
    "is_consequence",
    "on_request",
)

# Causes that can't follow from the end of another rank, so of two nearly simultaneous ends these are the cause.
_FROM_OUTSIDE = frozenset({"RANK_KILLED", "HOST_OUT_OF_MEMORY", "DEVICE_FAULT"})
# Causes of an output that is not stored, which only a part whose ranks have ended by themselves has.
_NOT_STORED = frozenset({"EXPORT_FAILED", "DISK_FULL", "STORAGE_ERROR", "INTERNAL", "OUTCOME_ERROR"})
# Within this time two nodes may report events in the wrong order, when one of them is busy.
_CLOSE_SECONDS = 1.0

# How specific an outcome is about the cause.
_UNKNOWN, _NAMED, _HOST_DOWN = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class _PartEnd:
    """Outcome of a part, and when its end began, by the database's clock, which all nodes share."""

    outcome: Outcome
    since: float

    def to_document(self) -> dict[str, Any]:
        return {"since": self.since, **{name: getattr(self.outcome, name) for name in _STORED}}


def finish(db: Database, work: WorkOrder, outcome: Outcome, backoff: Backoff, *, waits: bool = True) -> Ending | None:
    """End one supervisor's part of the attempt; None while other parts still run.

    The first part has the results of the attempt: it ``waits`` with its devices until the others have ended, and calls
    again. A job that has completed is COMPLETED only with all outputs that the other parts announced. Raises LeaseLost
    when the attempt is no longer current.
    """
    artifact_rows.prepare(db, job_id=work.job_id, fence=work.fence, artifacts=outcome.artifacts)
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        lease = session.get(Lease, work.lease_id, with_for_update=True, populate_existing=True)
        is_ours = lease is not None and lease.released_at is None and job.fence == work.fence and job.state in HELD
        if lease is None or not is_ours:
            raise LeaseLost(f"the part of attempt {work.attempt} of job {work.job_id} on {work.node} was ended already")
        ending = end_part(session, job, lease, outcome, backoff, actor=work.actor, stays=waits and work.part == 0)
        if work.part > 0 and outcome.kind == "completed" and ending is None:
            node_outputs.record_stored(session, work, outcome.artifacts)
        if work.part == 0 and ending is not None:
            _show_artifacts(session, work, outcome, ending)
        return ending


def _show_artifacts(session: Session, work: WorkOrder, outcome: Outcome, ending: Ending) -> None:
    if ending.state not in TERMINAL:  # another attempt writes its own
        return
    attempt = session.get_one(Attempt, (work.job_id, work.attempt))
    artifact_rows.reveal(session, work.job_id, outcome.artifacts, node_outputs.stored_folders(attempt))
    if ending.state is JobState.COMPLETED and work.is_training:
        node_outputs.note_missing(session, attempt, actor=work.actor)


def end_others(db: Database, work: WorkOrder, outcome: Outcome) -> None:
    """Tell the other parts to end: the first part ended with ``outcome`` and has waited long enough for them."""
    with db.write() as session:
        attempt = session.get_one(Attempt, (work.job_id, work.attempt), with_for_update=True, populate_existing=True)
        request_end(session, attempt, outcome, node=work.node)


def request_end(session: Session, attempt: Attempt, outcome: Outcome, *, node: str) -> None:
    """Tell the parts of the locked attempt to end, because the part on ``node`` has; the first call sets the cause."""
    if attempt.ending is None:
        attempt.ending = _end(session, replace(outcome, node=node)).to_document()


def end_part(
    session: Session, job: Job, lease: Lease, outcome: Outcome, backoff: Backoff, *, actor: str, stays: bool = False
) -> Ending | None:
    """End the part of an attempt of the locked job that one lease covers; the last part completes the attempt.

    None while other parts run; they are asked to stop, unless this part ended as all were asked to. ``stays`` keeps its
    devices until the others have ended. For an attempt on one node this is its completion.
    """
    attempt = session.get_one(Attempt, (job.id, lease.attempt), with_for_update=True, populate_existing=True)
    if len(attempt.node_names) == 1:
        return end_attempt(session, job, attempt.number, outcome, backoff, actor=actor)
    outcome = replace(outcome, node=lease.node)
    known, this = _known(attempt), _end(session, outcome)
    if not others_run(session, lease):
        _take_out_of_service(session, attempt, outcome, actor)
        stays_completed = _does_not_matter(known) and not node_outputs.is_one_lost(attempt)
        is_done = lease.part == 0 and outcome.kind == "completed" and stays_completed
        whole = replace(outcome if is_done else _of_all(known, this), left_behind=False)
        return end_attempt(session, job, attempt.number, whole, backoff, actor=actor)
    if outcome.kind != "completed" and outcome.exit_code != 0:
        attempt.ending = (this if known is None else _more_relevant(known, this)).to_document()
    if not stays:
        _release(session, job, attempt, outcome, actor)
    session.flush()
    return None


def others_run(session: Session, lease: Lease) -> bool:
    """Whether the lease's attempt still has parts on other nodes."""
    others = select(func.count()).where(
        Lease.job_id == lease.job_id, Lease.attempt == lease.attempt, Lease.id != lease.id, Lease.released_at.is_(None)
    )
    return bool(session.scalar(others))


def _release(session: Session, job: Job, attempt: Attempt, outcome: Outcome, actor: str) -> None:
    gpus = completion.gpus_of(session, job.id, attempt.number, node=outcome.node)
    gpu_hours.count_gpu_seconds(session, job.project, outcome.ran_seconds, gpus)
    job.gpu_seconds += outcome.ran_seconds * gpus
    _take_out_of_service(session, attempt, outcome, actor)
    completion.free(session, job.id, attempt.number, node=outcome.node)


def _take_out_of_service(session: Session, attempt: Attempt, outcome: Outcome, actor: str) -> None:
    if outcome.left_behind:
        completion.leave_behind(session, attempt, actor, node=outcome.node)


def _end(session: Session, outcome: Outcome) -> _PartEnd:
    asked = time.monotonic()
    now = database_now(session).timestamp()
    answered = time.monotonic()
    seconds = 0.0 if outcome.ends_since is None else (asked + answered) / 2 - outcome.ends_since
    return _PartEnd(outcome=outcome, since=now - seconds)


def _known(attempt: Attempt) -> _PartEnd | None:
    stored = attempt.ending
    if stored is None:
        return None
    return _PartEnd(
        outcome=Outcome(**{name: stored[name] for name in _STORED if name in stored}), since=stored.get("since", 0.0)
    )


def _of_all(known: _PartEnd | None, this: _PartEnd) -> Outcome:
    """Outcome of the attempt: that of its last part, unless another part has a more specific cause."""
    last = this.outcome
    as_requested = last.kind not in ("completed", "failed") and last.exit_code == 0
    if known is None or as_requested or last.kind == "cancelled":
        return last
    if last.kind != "completed" and _more_relevant(known, this) is this:
        return last
    return replace(
        known.outcome,
        ran_seconds=last.ran_seconds,
        end_step=max(known.outcome.end_step, last.end_step),
        report=last.report,
        artifacts=last.artifacts,
    )


def _does_not_matter(known: _PartEnd | None) -> bool:
    """Whether a completed training stays completed: a node was lost, or asked to stop, only after it."""
    return known is None or known.outcome.kind != "failed" or _weight(known.outcome) == _HOST_DOWN


def _more_relevant(known: _PartEnd, this: _PartEnd) -> _PartEnd:
    """The end that decides; an output that couldn't be stored undoes an attempt that else has completed."""
    if known.outcome.kind == "completed" and this.outcome.cause in _NOT_STORED:
        return this
    return _weightier(known, this)


def _weightier(first: _PartEnd, later: _PartEnd) -> _PartEnd:
    """The one of two ends that caused the other: the more specific, else the one that began first.

    When a node fails its ranks may take seconds to end, while ranks on other nodes have noticed and ended already.
    """
    by_weight = _weight(later.outcome) - _weight(first.outcome)
    both_failed = first.outcome.kind == later.outcome.kind == "failed"
    if by_weight == 0 and both_failed and abs(later.since - first.since) < _CLOSE_SECONDS:
        by_weight = (later.outcome.cause in _FROM_OUTSIDE) - (first.outcome.cause in _FROM_OUTSIDE)
    return later if by_weight > 0 or (by_weight == 0 and later.since < first.since) else first


def _weight(outcome: Outcome) -> int:
    """Ranks that lose a peer don't know the cause; a lost machine explains whatever the others report."""
    if outcome.kind == "failed" and takes_host_down(outcome.cause):
        return _HOST_DOWN
    return _UNKNOWN if outcome.is_consequence else _NAMED
