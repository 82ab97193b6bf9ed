"""Jobs that the leader submits and admits itself. While its admission hangs, messages announce them."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tasks.celery_app import SubmittedJob

# A round that lasts longer may hang: a network file system of one of its jobs does not answer.
ROUND_SECONDS = 1.0


class OwnAdmissions:
    """What was submitted since the admission last read the database; thread-safe.

    A job that is admitted twice is queued once, so a round that is slow but not stuck costs some messages alone.
    """

    def __init__(self, ring: Callable[[str, str, int], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ring, self._clock = ring, clock
        self._lock = threading.Lock()
        self._waiting: list[SubmittedJob] = []
        self._taken = 0  # the first of them, which the current round has read
        self._began: float | None = None

    def expect(self, submitted: Sequence[SubmittedJob]) -> None:
        with self._lock:
            self._waiting += submitted
        self.announce_if_stuck()

    @contextmanager
    def round(self) -> Iterator[None]:
        """Around the admission of all jobs that wait in the database."""
        with self._lock:
            self._began, self._taken = self._clock(), len(self._waiting)
        try:
            yield
        finally:
            with self._lock:
                self._began = None
                del self._waiting[: self._taken]

    def announce_if_stuck(self) -> None:
        """Send messages for those whose admission has not ended, if the current round lasts too long."""
        with self._lock:
            if self._began is None or self._clock() - self._began < ROUND_SECONDS:
                return
            stuck, self._waiting, self._taken = self._waiting, [], 0
        for job in stuck:
            self._ring(job.job_id, job.queue, job.priority)
