"""The states of a job and the table of allowed transitions, from which all sets of states derive."""

from enum import StrEnum


class JobState(StrEnum):
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    SCHEDULING = "SCHEDULING"
    PREPARING = "PREPARING"
    TRAINING = "TRAINING"
    CHECKPOINTING = "CHECKPOINTING"
    EVALUATING = "EVALUATING"
    SERVING = "SERVING"
    EXPORTING = "EXPORTING"
    COMPLETED = "COMPLETED"
    PAUSED = "PAUSED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    PREEMPTED = "PREEMPTED"


_S = JobState
# Every state of a running job may be requeued, paused, or end.
_LEAVE_RUN = frozenset({_S.QUEUED, _S.PAUSED, _S.CANCELLED, _S.FAILED, _S.PREEMPTED})

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.PENDING: frozenset({_S.QUEUED, _S.PAUSED, _S.CANCELLED, _S.FAILED}),
    _S.QUEUED: frozenset({_S.SCHEDULING, _S.PAUSED, _S.CANCELLED, _S.FAILED}),
    _S.SCHEDULING: frozenset({_S.PREPARING, _S.QUEUED, _S.PAUSED, _S.CANCELLED, _S.FAILED}),
    _S.PREPARING: _LEAVE_RUN | {_S.TRAINING, _S.EVALUATING, _S.SERVING},
    _S.TRAINING: _LEAVE_RUN | {_S.CHECKPOINTING, _S.EVALUATING, _S.EXPORTING, _S.COMPLETED},
    _S.CHECKPOINTING: _LEAVE_RUN | {_S.TRAINING, _S.EVALUATING, _S.EXPORTING, _S.COMPLETED},
    _S.EVALUATING: _LEAVE_RUN | {_S.TRAINING, _S.CHECKPOINTING, _S.EXPORTING, _S.COMPLETED},
    _S.SERVING: (_LEAVE_RUN - {_S.PAUSED}) | {_S.COMPLETED},
    _S.EXPORTING: frozenset({_S.COMPLETED, _S.QUEUED, _S.CANCELLED, _S.FAILED}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED, _S.FAILED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.PREEMPTED: frozenset(),
}

TERMINAL = frozenset(state for state, after in TRANSITIONS.items() if not after)
# States of a job that holds a lease, devices and a supervisor.
HELD = frozenset({_S.SCHEDULING, _S.PREPARING, _S.TRAINING, _S.CHECKPOINTING, _S.EVALUATING, _S.SERVING, _S.EXPORTING})
# States in which a supervisor works for it; time in them counts as running time.
RUNNING = HELD - {_S.SCHEDULING}
# States without anything to stop: the job can be cancelled or paused at once.
UNHELD = frozenset(TRANSITIONS) - HELD - TERMINAL


def allowed(before: JobState, after: JobState) -> bool:
    """Whether the table has this transition."""
    return after in TRANSITIONS[before]
