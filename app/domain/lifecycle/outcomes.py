"""How an attempt ended, together with what people wished meanwhile → what becomes of the job."""

from dataclasses import dataclass
from typing import Literal

from app.domain.lifecycle.retry_policy import Policy, Recovery
from app.domain.lifecycle.states import JobState, allowed

OutcomeKind = Literal["completed", "paused", "cancelled", "requeued", "preempted", "failed"]
# What becomes of a job after it was preempted, as its scheduling_config.on_preemption says.
Preemption = Literal["terminate", "requeue"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The job's next state. ``policy`` is how it goes on by itself, for the record; None when it does not."""

    state: JobState
    policy: Policy | None = None
    recovery: Recovery | None = None  # of a failure
    by_way_of: JobState | None = None  # where the table has no step to it from the state that the job is in

    @property
    def restarts(self) -> bool:
        """Whether the supervisor of this attempt runs the next one."""
        return self.policy is Policy.RESTART


def decide(
    kind: OutcomeKind,
    *,
    state: JobState,
    requested: str | None,
    preemption: Preemption,
    recovery: Recovery | None,
) -> Decision:
    """A finished training stays finished; a wish to cancel beats every retry; pause and preemption beat a retry too.

    ``recovery`` is what can be done about a failure; None for an attempt that did not fail.
    """
    if kind == "completed":
        return Decision(state=JobState.COMPLETED)
    if kind == "cancelled" or requested == "cancel":
        return Decision(state=JobState.CANCELLED)
    if recovery is not None and recovery.policy is None:
        return Decision(state=JobState.FAILED, recovery=recovery)
    stopped = _stopped(kind, requested, preemption)
    if stopped is not None and allowed(state, stopped):
        return Decision(state=stopped, recovery=recovery)
    # An export is not stopped for a pause that came too late for the training; one that ended otherwise is not redone.
    if stopped is JobState.PAUSED and requested == "pause":
        return Decision(state=stopped, recovery=recovery, by_way_of=JobState.QUEUED)
    # What nobody took up was not preempted, and neither was an export: the table sends both back.
    if recovery is None:
        return Decision(state=JobState.QUEUED, policy=Policy.RESCHEDULE)
    return Decision(
        state=state if recovery.policy is Policy.RESTART else JobState.QUEUED,
        policy=recovery.policy,
        recovery=recovery,
    )


def _stopped(kind: OutcomeKind, requested: str | None, preemption: Preemption) -> JobState | None:
    """Where a wish leads that the attempt's end fulfils, whether the ranks stopped for it or broke meanwhile."""
    if kind == "paused" or requested == "pause":
        return JobState.PAUSED
    if (kind == "preempted" or requested == "preempt") and preemption == "terminate":
        return JobState.PREEMPTED
    return None
