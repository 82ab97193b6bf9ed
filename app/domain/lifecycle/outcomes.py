"""How an attempt ended, and what becomes of its job, given the control requests that came meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.domain.lifecycle.retry_policy import Policy, Recovery
from app.domain.lifecycle.states import JobState, allowed

OutcomeKind = Literal["completed", "paused", "cancelled", "requeued", "preempted", "failed"]
# What becomes of a job after it was preempted, as its scheduling_config.on_preemption says.
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
    """A finished training stays finished; a request to cancel beats every retry; pause and preemption do, too.

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
    # An attempt that no node took up was not preempted, and neither was an export: the table sends both back.
    if recovery is None:
        return Decision(state=JobState.QUEUED, policy=Policy.RESCHEDULE)
    return Decision(
        state=state if recovery.policy is Policy.RESTART else JobState.QUEUED,
        policy=recovery.policy,
        recovery=recovery,
    )


def _stopped(kind: OutcomeKind, requested: str | None, preemption: Preemption) -> JobState | None:
    """The state that a control request leads to, whether the ranks stopped for it or broke meanwhile."""
    if kind == "paused" or requested == "pause":
        return JobState.PAUSED
    if (kind == "preempted" or requested == "preempt") and preemption == "terminate":
        return JobState.PREEMPTED
    return None
