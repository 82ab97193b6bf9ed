"""Types of the events in a sweep's history."""

from enum import StrEnum


class SweepEventType(StrEnum):
    STATUS = "sweep.status"
    BEST = "sweep.best"
    CHANGED = "sweep.changed"
    WARNING = "sweep.warning"
    TRIAL_STARTED = "trial.started"
    TRIAL_REPORTED = "trial.reported"
    TRIAL_STOP_REQUESTED = "trial.stop_requested"
    TRIAL_ENDED = "trial.ended"
