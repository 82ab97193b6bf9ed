"""Polls the server until something has happened, also while it is away for a while."""

import time
from collections.abc import Callable
from typing import TypeVar

from trainyard._client.calls import RetryPolicy, RetryState
from trainyard._client.errors import ApiError, Unreachable

# What runs there continues while the client or the server is away for a minute.
WAIT_RETRY_POLICY = RetryPolicy(tries=1_000_000, seconds=60.0)
LAST_POLL_SECONDS = 1.0  # timeout of the last poll, after the deadline
Found = TypeVar("Found")


def poll(
    ask: Callable[[float], Found],
    happened: Callable[[Found], bool],
    overdue: str,
    *,
    timeout_seconds: float,
    poll_seconds: float,
) -> Found:
    """The first answer for which ``happened``. ``ask`` takes the seconds that it may wait for a silent server,
    ``overdue`` is what a TimeoutError says.

    Raises TimeoutError after a last poll at the deadline, and the server's error when it is away for too long.
    """
    deadline, tries = time.monotonic() + timeout_seconds, RetryState(WAIT_RETRY_POLICY)
    while True:
        try:
            found = ask(max(deadline - time.monotonic(), LAST_POLL_SECONDS))
            if happened(found):
                return found
            pause, tries = poll_seconds, RetryState(WAIT_RETRY_POLICY)
        except (Unreachable, ApiError) as error:
            pause = tries.pause(error, least_seconds=poll_seconds)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{overdue} within {timeout_seconds:g} s")
        time.sleep(min(pause, left))
