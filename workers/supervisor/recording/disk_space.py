"""Full disks: recognised in exceptions, and how long an attempt has been waiting for space."""

import errno
import os
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from workers.attempt_failed import AttemptFailed

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
SQLITE_FULL = 13  # sqlite3.SQLITE_FULL, without importing sqlite3 for PostgreSQL
MOST_CAUSES = 20


def is_full(error: BaseException | None) -> bool:
    """Whether it was raised because a disk or a quota is full, or while that was being handled."""
    return bool(reason(error))


def reason(error: BaseException | None) -> str:
    """The system's error message without paths; empty when no disk was full."""
    for _ in range(MOST_CAUSES):
        if error is None:
            break
        if isinstance(error, OSError) and error.errno in FULL:
            return os.strerror(error.errno)
        if isinstance(error, DBAPIError) and getattr(error.orig, "sqlite_errorcode", None) == SQLITE_FULL:
            return str(error.orig)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return ""


def named(error: AttemptFailed) -> AttemptFailed:
    """The same failure, with DISK_FULL as its type if a full disk caused it."""
    if error.error_type == "DISK_FULL" or not is_full(error):
        return error
    return AttemptFailed("DISK_FULL", error.message, error.stack)


class DiskSpaceWatch:
    """Tracks what an attempt can't store because a disk is full; safe from any thread.

    ``hurries``: whether a stop is in progress, so that space is not waited for. ``on_waiting`` gets a description of
    what waits, once until it is stored; ``on_over`` once when a wait exceeds ``patience_seconds``.
    """

    def __init__(
        self,
        patience_seconds: float,
        *,
        hurries: Callable[[], bool],
        on_waiting: Callable[[str], None],
        on_over: Callable[[str], None],
    ) -> None:
        self._hurries = hurries
        self._patience_seconds = patience_seconds
        self._on_waiting = on_waiting
        self._on_over = on_over
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}  # what waits
        self._told: set[str] = set()
        self.is_over = False
        self.last_error = ""  # why something was not stored; empty when the last of it was

    def full(self, what: str, error: BaseException) -> bool:
        """``what`` found no space; returns whether to wait for some."""
        now = time.monotonic()
        with self._lock:
            is_new = what not in self._told
            self._told.add(what)
            waited = now - self._since.setdefault(what, now)
            goes_over = not self.is_over and waited > self._patience_seconds
            self.is_over = self.is_over or goes_over
            waits = not self.is_over and not self._hurries()
            if not waits:
                del self._since[what]
            self.last_error = f"{what} found no room: {reason(error)}"
        if is_new:
            self._on_waiting(self.last_error)
        if goes_over:
            self._on_over(f"{self.last_error}; waited for {self._patience_seconds:g} s")
        return waits

    def stored(self, what: str) -> None:
        """``what`` was stored after all."""
        with self._lock:
            self._since.pop(what, None)
            self._told.discard(what)
            if not self._told:
                self.last_error = ""
