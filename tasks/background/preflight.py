"""Runs preflights of waiting jobs, inspections of uploaded files, and Python graders, in child processes, a bounded
number at a time, without blocking a coordinator thread.
"""

import contextlib
import functools
import importlib.util
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.database.engine import Database
from app.services.preflight import admission, file_inspections, gradings, inspections
from app.services.preflight.admission import InspectionSettings
from app.services.preflight.file_inspections import FileTask
from app.services.preflight.gradings import GradingTask
from app.services.preflight.inspection_queue import RENEW_SECONDS, AbandonedInspections, InspectionQueue
from app.services.preflight.inspections import InspectionTask, Open, Report
from config.settings import PreflightSettings, Settings
from tasks.background.changes import Poll
from tasks.background.loop import Loop
from tasks.celery_app import Runtime
from workers.prepare.preflight_process import FILE_INSPECTION, GRADING, PREFLIGHT, PreflightProcess

# After its own time limit the child still reports its findings; it is abandoned this long after.
GRACE_SECONDS = 15.0
MOST_PROCESSES = 2
# A file gets the time limit of a preflight, and a second for so many bytes: packed ones are many more than they seem.
FILE_BYTES_PER_SECOND = 2_000_000
GRADING_SECONDS = 20.0  # the client waits for it
OFF = "TRAINYARD_PREFLIGHT_ENABLED is off"
NEEDED = ("torch", "transformers", "datasets", "trl")

Task = InspectionTask | FileTask | GradingTask
_CLAIMS: dict[type[Task], Callable[[Database, Open, str], Task | None]] = {
    InspectionTask: inspections.claim,
    FileTask: file_inspections.claim,
    GradingTask: gradings.claim,
}
_PROGRAMS: dict[type[Task], str] = {InspectionTask: PREFLIGHT, FileTask: FILE_INSPECTION, GradingTask: GRADING}
logger = logging.getLogger(__name__)


def preflight_policy(settings: Settings) -> InspectionSettings | None:
    """The preflight policy for admission; None when preflights are disabled."""
    preflight = settings.preflight
    if not preflight.enabled:
        return None
    return InspectionSettings(rows=preflight.rows, waiting=preflight.waiting, unable=why_unable())


@functools.cache
def why_unable() -> str:
    """Why this coordinator cannot run preflights; empty when the training libraries are installed. Imports nothing
    of them.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return f"this coordinator has no {', '.join(missing)} installed" if missing else ""


@dataclass(frozen=True)
class _Running:
    thread: threading.Thread
    kind: type[Task]


class PreflightRunner:
    """Claims waiting inspections and runs each to its end, or until it is no longer needed.

    Where preflights are impossible or disabled, those of jobs that no other coordinator claims are left to the nodes;
    those of files, and graders, run everywhere.
    """

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._runtime = runtime
        self._name = name
        self._why_not = why_unable() if runtime.settings.preflight.enabled else OFF
        self._abandoned = AbandonedInspections(runtime.database)
        self._line = InspectionQueue(runtime.database, without_models=bool(self._why_not))
        self._limit = _limit(runtime.settings.preflight)
        self._running: dict[str, _Running] = {}
        self._children: dict[str, PreflightProcess] = {}
        self._stopping = threading.Event()
        self._poll_seconds = runtime.settings.scheduler.poll_seconds
        self._due_poll = Poll()
        self._loop = Loop("inspections", self._poll, self._poll_seconds)

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._due_poll.expect()
        self._loop.wake()

    def stop(self) -> None:
        """Abandons running inspections: another coordinator, or the next start, repeats them."""
        self._stopping.set()
        self._loop.stop()
        for child in list(self._children.values()):
            child.kill()

    def join(self) -> None:
        self._loop.join()
        for running in list(self._running.values()):
            running.thread.join(RENEW_SECONDS)

    def _poll(self) -> float:
        if self._due_poll.begin():
            if self._why_not:
                self._leave(self._why_not)
            self._take_free()
            is_empty = self._line.is_empty and (not self._why_not or self._abandoned.is_empty)
            # While any is open, the counters of their holders are watched.
            self._due_poll.end(again_in=None if is_empty else self._poll_seconds)
        return self._due_poll.rest_seconds

    def _take_free(self) -> None:
        for seen in self._line.free(self._running):
            if not self._stopping.is_set() and self._has_room(_kind_of(seen)):
                self._take(seen)

    def _has_room(self, kind: type[Task]) -> bool:
        """Each kind is counted apart: large files take minutes, for which neither jobs nor clients should wait."""
        return sum(each.kind is kind for each in list(self._running.values())) < self._limit

    def _leave(self, why: str) -> None:
        for seen in self._abandoned.left():
            work = inspections.claim(self._runtime.database, seen, self._abandoned.me)
            if work is not None:
                self._conclude(work, work.report or {"left_out": [why]})

    def _take(self, seen: Open) -> None:
        work = _CLAIMS[_kind_of(seen)](self._runtime.database, seen, self._line.me)
        if work is None:
            return
        if work.report is not None:  # already known
            self._conclude(work, work.report)
            return
        thread = threading.Thread(target=self._inspect, args=(work,), name=f"inspection-{work.id}", daemon=True)
        self._running[work.id] = _Running(thread, type(work))
        thread.start()

    def _inspect(self, work: Task) -> None:
        """A preflight that is a child dies with this thread, so the thread waits for it."""
        try:
            report = self._run_child(work)
            if report is not None:
                self._conclude(work, report)
        except Exception:
            logger.exception("inspection %s of %s failed and will be retried", work.id, _subject(work))
        finally:
            del self._running[work.id]
            self.wake()

    def _conclude(self, work: Task, report: Report) -> None:
        database = self._runtime.database
        if isinstance(work, FileTask):
            for reason in (report.get("unavailable"), *report.get("left_out", [])):
                if reason:
                    logger.warning("inspection of %s has no result and will be retried: %s", _subject(work), reason)
            file_inspections.conclude(database, work, report)  # jobs that wait for it are admitted after this change
        elif isinstance(work, GradingTask):
            gradings.conclude(database, work, report)
        elif admission.conclude(database, work, report, actor=self._name) and work.job_id is not None:
            self._runtime.on_admitted(work.job_id)

    def _run_child(self, work: Task) -> Report | None:
        """The report of a preflight; None when it is no longer needed."""
        question, program = _question(work, self._seconds(work)), _PROGRAMS[type(work)]
        process = PreflightProcess(self._runtime.settings, question, program=program)
        self._children[work.id] = process
        try:
            output = self._read_output(process, work)
        finally:
            del self._children[work.id]
            process.close()
        return None if output is None or self._stopping.is_set() else _report(output, process.exit_code)

    def _read_output(self, process: PreflightProcess, work: Task) -> bytes | None:
        """The process's output at its end or time limit; None when it is no longer needed."""
        until = time.monotonic() + self._seconds(work) + GRACE_SECONDS
        while time.monotonic() < until:
            output = process.read(RENEW_SECONDS)
            if output is not None:
                return output
            if not self._is_needed(work):
                return None
        return b""

    def _seconds(self, work: Task) -> float:
        if isinstance(work, GradingTask):
            return GRADING_SECONDS
        size_bytes = work.size_bytes if isinstance(work, FileTask) else 0
        return self._runtime.settings.preflight.timeout_seconds + size_bytes / FILE_BYTES_PER_SECOND

    def _is_needed(self, work: Task) -> bool:
        if self._stopping.is_set():
            return False
        with contextlib.suppress(Exception):  # the database is briefly unavailable: the preflight continues
            return inspections.renew(self._runtime.database, work)
        return True


def _question(work: Task, seconds: float) -> bytes:
    asked: dict[str, Any] = {"project": work.project}
    if isinstance(work, FileTask):
        asked |= {"file_id": work.file_id, "purpose": work.purpose, "size_bytes": work.size_bytes, "seconds": seconds}
    elif isinstance(work, GradingTask):
        asked |= {"grading": work.question, "seconds": seconds}
    else:
        asked |= {"job_id": work.job_id, "spec": work.document.to_json(), "sealed_secrets": work.sealed_secrets}
    return json.dumps(asked).encode()


def _subject(work: Task) -> str:
    return work.file_id if isinstance(work, FileTask) else work.job_id or "a request"


def _kind_of(seen: Open) -> type[Task]:
    if seen.is_of_models:
        return InspectionTask
    return GradingTask if seen.is_grading else FileTask


def _report(output: bytes, code: int | None) -> Report:
    try:
        report = json.loads(output.splitlines()[-1])
        if isinstance(report, dict):
            return report
    except (IndexError, ValueError):
        pass
    known = "" if code is None else f" (exit code {code})"
    return {"left_out": [f"the preflight of model and data ended without a result{known}"]}


def _limit(settings: PreflightSettings) -> int:
    return settings.processes or max(1, min(MOST_PROCESSES, (os.cpu_count() or 1) // 2))
