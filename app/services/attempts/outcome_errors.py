"""Fallback when Trainyard fails to write an attempt's outcome: end the attempt with minimal writes."""

from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import Cause, LeaseLost, what_to_do
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff, RecoveryPolicy
from app.domain.lifecycle.states import HELD, JobState
from app.models import Attempt, Job, Lease
from app.models.base import database_now, utc_now
from app.services.attempts import completion, gang_parts
from app.services.attempts.completion import Ending
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions

CAUSE: Cause = "OUTCOME_ERROR"


def outcome_of(kind: str, error: Exception, *, left_behind: bool = False) -> Outcome:
    """The outcome that is written instead; without the error's text, which may be what can't be written."""
    message = f"the outcome {kind} could not be written: {type(error).__name__}"
    return Outcome(kind="failed", cause=CAUSE, message=message, left_behind=left_behind)


def finish(db: Database, work: WorkOrder, outcome: Outcome, backoff: Backoff) -> Ending | None:
    """End the supervisor's part of the attempt when its regular completion failed. Raises LeaseLost."""
    with db.write() as session:
        job = transitions.load_for_change(session, work.job_id)
        lease = session.get(Lease, work.lease_id, with_for_update=True, populate_existing=True)
        if lease is None or lease.released_at is not None or job.fence != work.fence or job.state not in HELD:
            raise LeaseLost(f"attempt {work.attempt} of job {work.job_id} was ended already")
        return end(session, job, lease, outcome, backoff, actor=work.actor)


def end(session: Session, job: Job, lease: Lease, outcome: Outcome, backoff: Backoff, *, actor: str) -> Ending | None:
    """Release the devices of an attempt's lease, and retry or fail the locked job.

    None while the attempt has parts on other nodes, which are asked to end. Reads only plain columns of the job, since
    the rest may be why `completion.end_attempt` failed; usage of the attempt isn't accounted.
    """
    attempt = session.get_one(Attempt, (job.id, lease.attempt), with_for_update=True, populate_existing=True)
    if outcome.left_behind:
        completion.leave_behind(session, attempt, actor, node=lease.node)
    if gang_parts.others_run(session, lease):
        gang_parts.request_end(session, attempt, outcome, node=lease.node)
        completion.free(session, job.id, attempt.number, node=lease.node)
        session.flush()
        return None
    state, changes = _next(session, job, outcome.message, backoff)
    attempt.ended_at, attempt.cause, attempt.end_reason = utc_now(), CAUSE, outcome.message
    attempt.end_step = max(job.current_step, attempt.start_step)
    attempt.policy = attempt.end_recover = RecoveryPolicy.RESCHEDULE if state is JobState.QUEUED else None
    completion.free(session, job.id, attempt.number)
    transitions.record_event(
        session,
        job.id,
        EventType.ATTEMPT_ENDED,
        actor=actor,
        reason=CAUSE,
        message=outcome.message,
        data={"attempt": attempt.number, "end_step": attempt.end_step, "policy": attempt.policy},
    )
    transitions.transition(session, job, state, actor=actor, reason=CAUSE, message=outcome.message, **changes)
    return Ending(state=state)


def _next(session: Session, job: Job, message: str, backoff: Backoff) -> tuple[JobState, dict[str, Any]]:
    if job.requested == "cancel":
        return JobState.CANCELLED, {}
    error = {"error_type": CAUSE, "error_message": message, "error_stack": None}
    if job.retries_used >= job.max_retries:
        return JobState.FAILED, {**error, "error_message": f"{message}. {what_to_do(CAUSE)}"}
    now, retry = database_now(session), job.retries_used + 1
    seconds = min(backoff.max_seconds, backoff.base_seconds * 2.0**job.retries_used)
    return JobState.QUEUED, {
        **error,
        "retries_used": retry,
        "queued_at": now,
        "not_before_at": now + timedelta(seconds=seconds),
        "pending_reason": f"retry {retry} of {job.max_retries} after {CAUSE}, in {seconds:g} s",
    }
