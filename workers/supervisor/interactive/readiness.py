"""Watches whether a job is ready, and whether its notebook starts: each change is a line of its history."""

import logging
import threading
import time
from collections.abc import Callable

from app.domain.lifecycle.events import EventType
from app.domain.spec.interactive import ReadinessProbe
from workers.supervisor.interactive.port_probe import NOTEBOOK, Final, Way, connect
from workers.supervisor.recording.report_writer import Note
from workers.supervisor.serving.probe import NoAnswer

log = logging.getLogger(__name__)
NOTEBOOK_LOOK_SECONDS = 2.0
NOTEBOOK_REASON = "NOTEBOOK"


class Readiness:
    """What a probe's answers mean. ``ready`` is None until it is known."""

    def __init__(self, probe: ReadinessProbe) -> None:
        self._probe = probe
        self._successes = self._failures = 0
        self.ready: bool | None = None

    def take(self, failure: str | None) -> Note | None:
        """One answer; the line for the job's history if it changes what is known."""
        if failure is None:
            self._successes, self._failures = self._successes + 1, 0
            if self.ready is not True and self._successes >= self._probe.success_threshold:
                self.ready = True
                return Note(kind=EventType.READY, message=f"ready: {self._asked()} answers", columns={"ready": True})
            return None
        self._successes, self._failures = 0, self._failures + 1
        if self.ready is not False and self._failures >= self._probe.failure_threshold:
            self.ready = False
            return Note(kind=EventType.NOT_READY, message=f"not ready: {failure}", columns={"ready": False})
        return None

    def _asked(self) -> str:
        return f"port {self._probe.port}" + (f", path {self._probe.path}" if self._probe.path is not None else "")


def watch_readiness(
    probe: ReadinessProbe,
    ask: Callable[[ReadinessProbe], None],
    *,
    add: Callable[[Note], None],
    closed: threading.Event,
) -> None:
    """Until closed; on a thread of its own. ``ask`` raises NoAnswer."""
    readiness, wait = Readiness(probe), float(probe.initial_delay_seconds)
    while not closed.wait(wait):
        began, failure = time.monotonic(), None
        try:
            ask(probe)
        except NoAnswer as error:
            failure = str(error)
        except Exception:  # the job decides what comes as an answer; the next one may be another
            log.exception("a readiness probe failed")
            failure = "its answer cannot be read"
        if (note := readiness.take(failure)) is not None and not closed.is_set():
            add(note)
        wait = max(0.0, probe.period_seconds - (time.monotonic() - began))


def watch_notebook(way: Way, *, add: Callable[[Note], None], closed: threading.Event) -> None:
    """Until the notebook server listens; one that can't is a line of the job's history. On a thread of its own."""
    while not closed.wait(NOTEBOOK_LOOK_SECONDS):
        try:
            connect(way, NOTEBOOK, seconds=NOTEBOOK_LOOK_SECONDS)
        except Final as error:
            add(Note(kind=EventType.WARNING, reason=NOTEBOOK_REASON, message=str(error)))
            return
        except NoAnswer:
            continue
        else:
            return
