"""How many replicas a service needs, and when the next one may start after failures."""

import math
from datetime import timedelta

from app.domain.serving.document import Replicas

ABOVE_TARGET_SECONDS = 5.0  # of more to do than the target says, before another replica starts
IDLE_WHILE_JOBS_WAIT_SECONDS = 15.0  # before a replica ends whose devices jobs wait for
FAILURES_IN_A_ROW = 5  # after which a service counts as failing
PAUSES_SECONDS = (1, 5, 15, 30, 300)  # before the next replica, by failures in a row; the last one is repeated


def needed(replicas: Replicas, in_flight: int, waiting: int) -> int:
    """Replicas for this many requests, within the limits of the document, but not below ``min``."""
    for_all = math.ceil((in_flight + waiting) / max(1, replicas.target_in_flight))
    return min(replicas.max, max(replicas.min, for_all))


def is_above_target(replicas: Replicas, *, wanted: int, in_flight: int, waiting: int) -> bool:
    return in_flight + waiting > wanted * replicas.target_in_flight


def wanted(
    replicas: Replicas,
    *,
    now_wanted: int,
    in_flight: int,
    waiting: int,
    seconds_above_target: float,
    idle_seconds: float,
    jobs_wait: bool = False,
) -> int:
    """The number of replicas from now on.

    Up at once when more requests wait than the wanted replicas are to have, whether those start or answer, and after
    some seconds above the target otherwise; down after ``replicas.idle_seconds``, or earlier when ``jobs_wait`` for
    their devices. ``idle_seconds``: since there was last enough to do for all wanted replicas.
    """
    bounded = min(replicas.max, max(replicas.min, now_wanted))
    target = needed(replicas, in_flight, waiting)
    if target > bounded:
        is_due = bounded == 0 or waiting > 0 or seconds_above_target >= ABOVE_TARGET_SECONDS
        return target if is_due else bounded
    patience = min(replicas.idle_seconds, IDLE_WHILE_JOBS_WAIT_SECONDS) if jobs_wait else replicas.idle_seconds
    return target if target < bounded and idle_seconds >= patience else bounded


def pause_after(failures: int) -> timedelta:
    """Until the next replica starts, after so many failures in a row, from 1."""
    return timedelta(seconds=PAUSES_SECONDS[min(failures, len(PAUSES_SECONDS)) - 1])
