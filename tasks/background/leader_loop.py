"""A loop of the leading coordinator over state that is wholly in the database, so that any leader continues."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

from app.services.operations.control_plane import control_plane
from app.services.requests.control_plane import ControlPlane
from app.services.requests.wakeups import GATHER_SECONDS
from tasks.background.changes import Poll
from tasks.background.loop import Loop
from tasks.celery_app import Runtime, SubmittedJob


class _OwnRings:
    """Wake-ups for what a leader submits: it admits these jobs itself, without a message to itself.

    Those that one loop submits within `GATHER_SECONDS` are admitted, and then placed, together. Used by one thread.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._submitted: list[SubmittedJob] = []
        self._since = 0.0  # when the first of them was submitted

    def ring_admit(self, job_id: str, queue: str, priority: int) -> None:
        now = time.monotonic()
        self._since = self._since if self._submitted else now
        self._submitted.append(SubmittedJob(job_id, queue, priority))
        if now - self._since >= GATHER_SECONDS:
            self.ring()

    def ring(self) -> None:
        """What was submitted is to be admitted now."""
        submitted, self._submitted = self._submitted, []
        if submitted:
            self._runtime.on_submitted(submitted)

    def nudge(self, job_id: str, node: str) -> None:
        self._runtime.dispatcher.nudge(job_id, node)


class LeaderLoop(ABC):
    """One thread; only the leader's works: after a change, and when `advance` says so."""

    def __init__(self, name: str, runtime: Runtime, is_leader: Callable[[], bool], poll_seconds: float) -> None:
        self._runtime = runtime
        self._is_leader = is_leader
        self._poll_seconds = poll_seconds
        self._due = Poll()
        self._loop = Loop(name, self._work, poll_seconds)
        self._rings = _OwnRings(runtime)

    @abstractmethod
    def advance(self) -> float | None:
        """Take everything one step further; returns the seconds until there is something to do without a change, None:
        nothing.
        """

    def start(self) -> None:
        self._loop.start()

    def wake(self) -> None:
        self._due.expect()
        self._loop.wake()

    def stop(self) -> None:
        self._loop.stop()

    def join(self) -> None:
        self._loop.join()

    @cached_property
    def plane(self) -> ControlPlane:
        """Made for the first row: a coordinator needs the key of secrets for nothing else."""
        return control_plane(self._runtime.settings, self._runtime.database, self._rings)

    def _work(self) -> float:
        if not self._is_leader():
            self._due.expect()
            return self._poll_seconds
        if self._due.begin():
            try:
                self._due.end(again_in=self.advance())
            finally:
                self._rings.ring()
        return self._due.rest_seconds
