"""The thread that writes blocks of log lines to the storage in batches, with back-pressure on the ranks."""

import logging
import threading
import time
from collections.abc import Callable

from app.domain.errors import TransientStorageError
from app.storage.log_blocks import LogBlock
from app.storage.log_writer import LogWriter
from app.storage.storage import Storage
from workers.supervisor.recording.disk_space import DiskSpaceWatch, is_full
from workers.supervisor.recording.log_backlog import LogBacklog

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.2
RETRY_SECONDS = 1.0
BATCH_BYTES = 1 << 20
WHAT = "log lines"
# After a storage has stalled for so long, ranks are not held up: the oldest lines are dropped, with a notice.
STALLED_SECONDS = 5.0


class LogStore:
    """Blocks in, chunks out. Lines are dropped only while the storage fails or has stalled."""

    def __init__(
        self,
        storage: Storage,
        job_id: str,
        attempt: int,
        *,
        room: DiskSpaceWatch,
        backlog: LogBacklog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._room = room
        self._clock = clock
        self._writer = LogWriter(storage, job_id, attempt)
        self._changed = threading.Condition()
        self._backlog = backlog if backlog is not None else LogBacklog()
        self._batch: list[LogBlock] = []  # being written
        self._failing = False
        self._stored_at = clock()  # the last time that lines were stored, or that there were none
        self._ended = False
        self._urgent = False
        self._taken = self._settled = 0  # lines in all; the latter includes lost ones
        self._thread = threading.Thread(target=self._serve, name="logs", daemon=True)
        self._thread.start()

    def add(self, block: LogBlock) -> None:
        with self._changed:
            was_empty = not self._backlog.lines
            if was_empty and not self._batch:
                self._stored_at = self._clock()
            self._backlog.add(block)
            self._taken += block.count
            if was_empty or self._backlog.bytes >= BATCH_BYTES:  # waking the thread costs more than many lines
                self._changed.notify_all()

    @property
    def has_room(self) -> bool:
        """Whether ranks may continue to write; also True when waiting for the storage would not help."""
        with self._changed:
            stalled = self._failing or self._clock() - self._stored_at >= STALLED_SECONDS
            return stalled or not self._backlog.is_full

    def settle(self, seconds: float) -> bool:
        """Wait until the lines so far are stored, for at most that long; False when they are not."""
        with self._changed:
            taken = self._taken
            return self._changed.wait_for(lambda: self._ended or self._settled >= taken, seconds)

    def close(self, seconds: float) -> int:
        """Write the rest, for at most that long; returns how many lines could not be stored."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._batch or self._backlog.lines), seconds)
            self._ended = True
            lost = sum(block.stands_for for block in self._batch) + self._backlog.unstored
            self._changed.notify_all()
        self._thread.join(seconds)
        if lost:
            log.warning("%s log lines could not be stored", lost)
        return lost

    def _serve(self) -> None:
        while self._wait_for_lines():
            batch = self._next_batch()
            while batch and not self._write(batch):
                with self._changed:
                    self._failing = True
                    self._changed.wait_for(lambda: self._ended, RETRY_SECONDS)
                    if self._ended:
                        return
            with self._changed:
                self._batch = []
                self._failing = False
                self._stored_at = self._clock()
                self._settled = self._taken - self._backlog.lines
                self._changed.notify_all()

    def _wait_for_lines(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._backlog.lines > 0)
            self._changed.wait_for(
                lambda: self._ended or self._urgent or self._backlog.bytes >= BATCH_BYTES, BATCH_SECONDS
            )
            return not self._ended

    def _next_batch(self) -> list[LogBlock]:
        with self._changed:
            self._batch = self._backlog.take(BATCH_BYTES)
            return self._batch

    def _write(self, batch: list[LogBlock]) -> bool:
        try:
            self._writer.append(batch)
        except TransientStorageError as error:
            log.warning("log lines could not be stored yet", exc_info=True)
            if is_full(error):
                self._room.full(WHAT, error)
            return False
        except Exception:
            log.exception("%s log lines can't be stored", sum(block.stands_for for block in batch))
            with self._changed:
                self._backlog.drop(batch)
        self._room.stored(WHAT)
        return True
