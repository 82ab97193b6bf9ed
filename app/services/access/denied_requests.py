"""Denied attempts in the audit trail: a flood of them fills a few lines, which say how many were left out."""

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
LINES_OF_ONE = 10  # for one source in a window; after them every power of ten
LINES_OF_ALL = 300
SOURCES = 10_000
_ALL = ""


@dataclass
class _Window:
    began_at: float
    seen: int = 0
    left_out: int = 0


class Floodgate:
    """Decides which attempts of a source are written one by one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def admit(self, source: str) -> int | None:
        """None: only count it. Else write it, and that so many of this source's were left out since the last line."""
        with self._lock:
            window, of_all = self._window(source), self._window(_ALL)
            window.seen += 1
            if not _is_written(window.seen) or of_all.seen >= LINES_OF_ALL:
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
        if len(self._windows) > SOURCES:
            self._windows.popitem(last=False)
        return window


@dataclass(frozen=True, kw_only=True)
class Denial:
    """Who was refused what, as far as it is known. ``project`` None: only super admins may read of it."""

    actor: str
    project: str | None
    target: str
    message: str
    data: Mapping[str, Any]


def note(db: Database, gate: Floodgate, source: str, denial: Denial) -> None:
    """Write it in a transaction of its own, unless it is one of a flood. Never fails: the answer is the refusal."""
    left_out = gate.admit(source)
    if left_out is None:
        return
    data = {**denial.data, "left_out": left_out} if left_out else denial.data
    try:
        with db.write() as session:
            audit.record(
                session, actor=denial.actor, action=ACTION, project=denial.project, target=denial.target,
                outcome="denied", message=denial.message, data=data,
            )  # fmt: skip
    except SQLAlchemyError:
        logger.warning("a denied attempt of %s could not be written to the audit trail", denial.actor, exc_info=True)


def _is_written(number: int) -> bool:
    return number <= LINES_OF_ONE or str(number).strip("0") == "1"
