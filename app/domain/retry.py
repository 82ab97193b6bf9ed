"""Cause and history of a failure → retry when, or give up. (The full policy by cause comes with recovery.)"""

from dataclasses import dataclass

# Causes that another attempt may cure; everything else is fatal at once.
TRANSIENT = frozenset({"RANK_KILLED", "SUPERVISOR_LOST", "NODE_LOST", "STORAGE_ERROR", "OUT_OF_MEMORY", "INTERNAL"})


@dataclass(frozen=True, kw_only=True)
class Backoff:
    base_seconds: float
    max_seconds: float


def retry_after_seconds(cause: str, *, retries_used: int, max_retries: int, backoff: Backoff) -> float | None:
    """Seconds to wait before the next attempt, or None when the job has failed for good."""
    if cause not in TRANSIENT or retries_used >= max_retries:
        return None
    return min(backoff.max_seconds, backoff.base_seconds * 2.0**retries_used)
