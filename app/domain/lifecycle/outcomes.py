"""Outcome of an attempt plus pending control request → next state of the job."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.domain.lifecycle.retry_policy import Recovery, RecoveryPolicy
from app.domain.lifecycle.states import JobState, allowed

OutcomeKind = Literal["completed", "paused", "cancelled", "requeued", "preempted", "failed"]
# What happens to a preempted job, by its scheduling_config.on_preemption.
Preemption = Literal["terminate", "requeue"]


@dataclass(frozen=True, kw_only=True)
class NewArtifact:
    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an attempt ended, from what its supervisor observed to its record in the database.

    ``cause`` is one of ``domain.errors.ERROR_TYPES`` when it failed. ``end_step`` of a loss that went wrong is the
    step at which it did.
    """

    kind: OutcomeKind
    cause: str = ""
    message: str = ""
    stack: str = ""
    exit_code: int | None = None
    related_task: str = ""  # the rank that failed first
    end_step: int = 0
    ran_seconds: float = 0.0
    detect_seconds: float | None = None  # from the fault until it was noticed; None: unknown
    report: dict[str, Any] = field(default_factory=dict)  # model_hash, model_uri, weight_files, final_metrics
    artifacts: Sequence[NewArtifact] = ()
    left_behind: bool = False  # a process that can't be killed still holds the devices
    node: str = ""  # of an attempt on several nodes: the one whose ranks ended so, or made the attempt end
    ends_since: float | None = None  # monotonic clock: the first fault or the request to stop; None: just now
    is_consequence: bool = False  # of the end of ranks on another node: it knows no cause
    on_request: bool = False  # paused because it was asked to, and not by its document


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The job's next state. ``policy`` is how the platform continues it, for the record; None when it does not."""

    state: JobState
    policy: RecoveryPolicy | None = None
    recovery: Recovery | None = None  # of a failure
    via: JobState | None = None  # intermediate state, where the table has no direct transition
    halt: str = ""  # why the job is PAUSED although its attempt ended otherwise: it had reached its halt, and saved

    @property
    def restarts(self) -> bool:
        """Whether the supervisor of this attempt runs the next one."""
        return self.policy is RecoveryPolicy.RESTART


def decide(
    kind: OutcomeKind, *, state: JobState, requested: str | None, preemption: Preemption, recovery: Recovery | None
) -> Decision:
    """A completed training stays completed; cancel, drain, pause and preemption requests take precedence over a retry.

    A replica that was to drain and ended otherwise is not wanted again: it is CANCELLED.

    ``recovery`` is the decision of the retry policy; None for an attempt that did not fail.
    """
    if kind == "completed":
        return Decision(state=JobState.COMPLETED)
    if kind == "cancelled" or requested in ("cancel", "drain"):
        return Decision(state=JobState.CANCELLED)
    if recovery is not None and recovery.policy is None:
        return Decision(state=JobState.FAILED, recovery=recovery)
    stopped = _stopped(kind, requested, preemption)
    if stopped is not None and allowed(state, stopped):
        return Decision(state=stopped, recovery=recovery)
    # A pause does not stop an export; if the export ended otherwise, the job pauses instead of repeating it.
    if stopped is JobState.PAUSED and requested == "pause":
        return Decision(state=stopped, recovery=recovery, via=JobState.QUEUED)
    # An unclaimed attempt or an export can't be preempted: the table requeues both.
    if recovery is None:
        return Decision(state=JobState.QUEUED, policy=RecoveryPolicy.RESCHEDULE)
    return Decision(
        state=state if recovery.policy is RecoveryPolicy.RESTART else JobState.QUEUED,
        policy=recovery.policy,
        recovery=recovery,
    )


def at_halt(decision: Decision, state: JobState, reason: str) -> Decision:
    """The same for an attempt that had made and saved every step up to a halt of the document: the job would continue
    past it, so it is PAUSED. An end, a pause, and a return to an earlier checkpoint stay.
    """
    returns = decision.state is JobState.QUEUED or decision.restarts
    rolls_back = decision.recovery is not None and decision.recovery.rolls_back
    if not returns or rolls_back or not allowed(state, JobState.PAUSED):
        return decision
    return Decision(state=JobState.PAUSED, recovery=decision.recovery, halt=reason)


def _stopped(kind: OutcomeKind, requested: str | None, preemption: Preemption) -> JobState | None:
    """The state that the control request leads to, whether the ranks stopped for it or failed meanwhile."""
    terminates = preemption == "terminate"
    if requested == "preempt" and terminates:  # also while the ranks halted by their document
        return JobState.PREEMPTED
    if kind == "paused" or requested == "pause":
        return JobState.PAUSED
    return JobState.PREEMPTED if kind == "preempted" and terminates else None
