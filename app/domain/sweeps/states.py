"""The states of a sweep and of a trial, and the tables of allowed transitions."""

from enum import StrEnum


class SweepState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHING = "FINISHING"  # no new trial; those that run end
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class TrialState(StrEnum):
    RUNNING = "RUNNING"  # its job has not ended
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"  # ended early by its sweep; its reports count
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPLOITED = "EXPLOITED"  # population based training: a fork of a better trial replaces it


_S = SweepState
_ENDED = frozenset({_S.COMPLETED, _S.CANCELLED, _S.FAILED})

TRANSITIONS: dict[SweepState, frozenset[SweepState]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.PAUSED, _S.FINISHING}) | _ENDED,
    _S.RUNNING: frozenset({_S.PAUSED, _S.FINISHING}) | _ENDED,
    _S.PAUSED: frozenset({_S.RUNNING, _S.FINISHING}) | _ENDED,
    _S.FINISHING: frozenset({_S.RUNNING}) | _ENDED,  # its budget was raised
    _S.COMPLETED: frozenset({_S.RUNNING}),  # its budget was raised
    _S.CANCELLED: frozenset(),
    _S.FAILED: frozenset(),
}

TERMINAL = _ENDED
TRIAL_TERMINAL = frozenset(TrialState) - {TrialState.RUNNING}


def allowed(before: SweepState, after: SweepState) -> bool:
    """Whether the table has this transition."""
    return after in TRANSITIONS[before]
