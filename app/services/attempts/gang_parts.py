"""The parts of an attempt on several nodes: each ends by itself, and with the last of them the attempt."""

import time
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff, takes_host_down
from app.domain.lifecycle.states import HELD
from app.models import Attempt, Job, Lease
from app.models.base import database_now
from app.services.attempts import artifact_rows, completion
from app.services.attempts.completion import Ending, end_attempt
from app.services.attempts.work_orders import Work
from app.services.lifecycle import transitions
from app.services.queues import project_quotas

# What of an outcome is kept until the last part is gone; what it has made only the first part knows.
_KEPT = (
    "kind", "cause", "message", "stack", "exit_code", "end_step", "related_task", "detect_seconds", "node",
    "is_consequence",
)  # fmt: skip

# What a rank can't end by because another one has, so that of two ends at nearly the same time it is the cause.
_FROM_OUTSIDE = frozenset({"RANK_KILLED", "HOST_OUT_OF_MEMORY", "DEVICE_FAULT"})
# Two nodes see what happened in so short a time in the wrong order, when one of them is busy.
_CLOSE_SECONDS = 1.0

# How much an outcome says of the cause.
_UNKNOWN, _NAMED, _HOST_DOWN = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class _PartEnd:
    """The outcome of a part, and since when it ends, by the clock of the database, which all nodes share."""

    outcome: Outcome
    since: float

    def to_document(self) -> dict[str, Any]:
        return {"since": self.since, **{name: getattr(self.outcome, name) for name in _KEPT}}


def finish(db: Database, work: Work, outcome: Outcome, backoff: Backoff, *, waits: bool = True) -> Ending | None:
    """End the part of one supervisor; None while others still run.

    The first part has what the attempt has made: it ``waits``, with its devices, until the others have gone, and asks
    again. Raises LeaseLost when the attempt is no longer the job's.
    """
    artifact_rows.prepare(db, job_id=work.job_id, fence=work.fence, artifacts=outcome.artifacts)
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        lease = session.get(Lease, work.lease_id, with_for_update=True, populate_existing=True)
        is_ours = lease is not None and lease.released_at is None and job.fence == work.fence and job.state in HELD
        if lease is None or not is_ours:
            raise LeaseLost(f"the part of attempt {work.attempt} of job {work.job_id} on {work.node} was ended already")
        ending = end_part(session, job, lease, outcome, backoff, actor=work.actor, stays=waits and work.part == 0)
        if ending is not None:
            artifact_rows.reveal(session, job.id, outcome.artifacts)
        return ending


def end_others(db: Database, work: Work, outcome: Outcome) -> None:
    """Tell the other parts to end: this one, the first, has ended with ``outcome`` and waited long enough for them."""
    with db.write() as session:
        attempt = session.get_one(Attempt, (work.job_id, work.attempt), with_for_update=True, populate_existing=True)
        tell_to_end(session, attempt, outcome, node=work.node)


def tell_to_end(session: Session, attempt: Attempt, outcome: Outcome, *, node: str) -> None:
    """Tell the parts of the locked attempt to end, because that of the node has; the first one told is the cause."""
    if attempt.ending is None:
        attempt.ending = _end(session, replace(outcome, node=node)).to_document()


def end_part(
    session: Session, job: Job, lease: Lease, outcome: Outcome, backoff: Backoff, *, actor: str, stays: bool = False
) -> Ending | None:
    """End what an attempt of the locked job has under one lease; the attempt, when that was its last one.

    None while others run: they are told to stop, unless this part has done what was asked of all. ``stays``: its
    devices are not free before the others have gone. Of an attempt on one node this is its end.
    """
    attempt = session.get_one(Attempt, (job.id, lease.attempt), with_for_update=True, populate_existing=True)
    if len(attempt.node_names) == 1:
        return end_attempt(session, job, attempt.number, outcome, backoff, actor=actor)
    outcome = replace(outcome, node=lease.node)
    known, this = _known(attempt), _end(session, outcome)
    if not others_run(session, lease):
        _take_out(session, attempt, outcome, actor)
        is_done = lease.part == 0 and outcome.kind == "completed" and _says_nothing(known)
        whole = replace(outcome if is_done else _of_all(known, this), left_behind=False)
        return end_attempt(session, job, attempt.number, whole, backoff, actor=actor)
    if outcome.kind != "completed" and outcome.exit_code != 0:
        attempt.ending = (this if known is None else _weightier(known, this)).to_document()
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
    project_quotas.count_gpu_seconds(session, job.project, outcome.ran_seconds, gpus)
    job.gpu_seconds += outcome.ran_seconds * gpus
    _take_out(session, attempt, outcome, actor)
    completion.free(session, job.id, attempt.number, node=outcome.node)


def _take_out(session: Session, attempt: Attempt, outcome: Outcome, actor: str) -> None:
    if outcome.left_behind:
        completion.leave_behind(session, attempt, actor, node=outcome.node)


def _end(session: Session, outcome: Outcome) -> _PartEnd:
    asked = time.monotonic()
    now = database_now(session).timestamp()
    answered = time.monotonic()
    seconds = 0.0 if outcome.ends_since is None else (asked + answered) / 2 - outcome.ends_since
    return _PartEnd(outcome=outcome, since=now - seconds)


def _known(attempt: Attempt) -> _PartEnd | None:
    kept = attempt.ending
    if kept is None:
        return None
    return _PartEnd(
        outcome=Outcome(**{name: kept[name] for name in _KEPT if name in kept}), since=kept.get("since", 0.0)
    )


def _of_all(known: _PartEnd | None, this: _PartEnd) -> Outcome:
    """How the attempt ended: as its last part did, unless another one knows better why."""
    last = this.outcome
    obeyed = last.kind not in ("completed", "failed") and last.exit_code == 0
    if known is None or obeyed or last.kind == "cancelled":
        return last
    if last.kind != "completed" and _weightier(known, this) is this:
        return last
    return replace(
        known.outcome, ran_seconds=last.ran_seconds, end_step=max(known.outcome.end_step, last.end_step),
        report=last.report, artifacts=last.artifacts,
    )  # fmt: skip


def _says_nothing(known: _PartEnd | None) -> bool:
    """Whether a training that is done and exported stays done: a node was lost, or told to stop, after it."""
    return known is None or known.outcome.kind != "failed" or _weight(known.outcome) == _HOST_DOWN


def _weightier(first: _PartEnd, later: _PartEnd) -> _PartEnd:
    """Which of two is the cause of the other: of those that name one the end that began first, whoever wrote it first.

    The ranks of a node that breaks may take seconds to end, in which those on others have noticed, and ended.
    """
    by_weight = _weight(later.outcome) - _weight(first.outcome)
    both_failed = first.outcome.kind == later.outcome.kind == "failed"
    if by_weight == 0 and both_failed and abs(later.since - first.since) < _CLOSE_SECONDS:
        by_weight = (later.outcome.cause in _FROM_OUTSIDE) - (first.outcome.cause in _FROM_OUTSIDE)
    return later if by_weight > 0 or (by_weight == 0 and later.since < first.since) else first


def _weight(outcome: Outcome) -> int:
    """Ranks that lose another one know no cause; when a machine is gone, whatever the others say follows from that."""
    if outcome.kind == "failed" and takes_host_down(outcome.cause):
        return _HOST_DOWN
    return _UNKNOWN if outcome.is_consequence else _NAMED
