"""Denied requests in the audit log, throttled: under a flood, sampled entries carry the number of omitted ones."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from app.database.engine import Database
from app.services.lifecycle import audit

logger = logging.getLogger(__name__)

ACTION = "auth.denied"
WINDOW_SECONDS = 60.0
MAX_PER_SOURCE = 10  # entries per source and window; then only powers of ten
MAX_TOTAL = 300
MAX_SOURCES = 10_000
_ALL = ""


@dataclass
class _Window:
    began_at: float
    seen: int = 0
    left_out: int = 0


class DenialThrottle:
    """Decides which denied requests of a source are recorded individually."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def admit(self, source: str) -> int | None:
        """None: do not record. Otherwise the number of this source's unrecorded requests since the last entry."""
        with self._lock:
            window, of_all = self._window(source), self._window(_ALL)
            window.seen += 1
            if not _is_written(window.seen) or of_all.seen >= MAX_TOTAL:
                window.left_out += 1
                return None
            of_all.seen += 1
            left_out, window.left_out = window.left_out, 0
            return left_out

    def _window(self, source: str) -> _Window:
        now = self._clock()
        window = self._windows.pop(source, None) or _Window(now)
        if now - window.began_at >= WINDOW_SECONDS:
            window = _Window(now, left_out=window.left_out)
        self._windows[source] = window
        if len(self._windows) > MAX_SOURCES:
            self._windows.popitem(last=False)
        return window


@dataclass(frozen=True, kw_only=True)
class Denial:
    """A denied request, as far as known. ``project`` None: visible to super admins only."""

    actor: str
    project: str | None
    target: str
    message: str
    data: Mapping[str, Any]


def note(db: Database, gate: DenialThrottle, source: str, denial: Denial) -> None:
    """Record a denied request in its own transaction, unless throttled. Database errors are only logged."""
    left_out = gate.admit(source)
    if left_out is None:
        return
    data = {**denial.data, "left_out": left_out} if left_out else denial.data
    try:
        with db.write() as session:
            audit.record(
                session,
                actor=denial.actor,
                action=ACTION,
                project=denial.project,
                target=denial.target,
                outcome="denied",
                message=denial.message,
                data=data,
            )
    except SQLAlchemyError:
        logger.warning("a denied request of %s could not be recorded in the audit log", denial.actor, exc_info=True)


def _is_written(number: int) -> bool:
    return number <= MAX_PER_SOURCE or str(number).strip("0") == "1"
