"""How an attempt ended, together with what people wished meanwhile → what becomes of the job."""

from dataclasses import dataclass
from typing import Literal

from app.domain.job_state import JobState
from app.domain.retry import Backoff, retry_after_seconds

OutcomeKind = Literal["completed", "paused", "cancelled", "requeued", "failed"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The job's next state; for a retry also how long to wait. ``policy`` is the recovery that the record names."""

    state: JobState
    retry_after_seconds: float | None = None
    policy: str | None = None


def decide(
    kind: OutcomeKind,
    *,
    cause: str,
    requested: str | None,
    retries_used: int,
    max_retries: int,
    backoff: Backoff,
) -> Decision:
    """A finished training stays finished; a wish to cancel beats every retry; a pause beats an automatic retry."""
    if kind == "completed":
        return Decision(state=JobState.COMPLETED)
    if kind == "cancelled" or requested == "cancel":
        return Decision(state=JobState.CANCELLED)
    if kind == "paused" or (kind == "requeued" and requested == "pause"):
        return Decision(state=JobState.PAUSED)
    if kind == "requeued":
        return Decision(state=JobState.QUEUED, policy="job_reschedule")
    wait = retry_after_seconds(cause, retries_used=retries_used, max_retries=max_retries, backoff=backoff)
    if wait is None:
        return Decision(state=JobState.FAILED)
    if requested == "pause":
        return Decision(state=JobState.PAUSED)
    return Decision(state=JobState.QUEUED, retry_after_seconds=wait, policy="job_reschedule")
