"""The wall clock."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The current time in UTC, truncated to milliseconds, as the database and the wire store it.

    For display, ages and pauses, where a clock step has a limited effect. Leases and durations use counters and
    monotonic clocks.
    """
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
