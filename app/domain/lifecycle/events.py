"""Types of the events in a job's history."""

from enum import StrEnum


class EventType(StrEnum):
    SUBMITTED = "job.submitted"
    STATUS = "job.status"
    PREFLIGHT = "job.preflight"
    CANCEL_REQUESTED = "job.cancel_requested"
    PAUSE_REQUESTED = "job.pause_requested"
    CHECKPOINT_REQUESTED = "job.checkpoint_requested"
    CHANGED = "job.changed"
    PREEMPT_REQUESTED = "job.preempt_requested"
    DRAIN_REQUESTED = "job.drain_requested"
    PAUSE_FAILED = "job.pause_failed"
    ADJUSTED = "job.adjusted"
    RESUME_FALLBACK = "job.resume_fallback"
    ATTEMPT_STARTED = "attempt.started"
    ATTEMPT_ENDED = "attempt.ended"
    RANK_EXITED = "rank.exited"
    CHECKPOINT_SAVED = "checkpoint.saved"
    CHECKPOINT_FAILED = "checkpoint.failed"
    CHECKPOINT_PRUNED = "checkpoint.pruned"
    EXPORTED = "job.exported"
    IMAGE = "job.image"
    PACKAGES = "job.packages"
    CONNECTION = "job.connection"
    WARNING = "job.warning"
