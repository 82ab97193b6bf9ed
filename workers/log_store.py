"""The thread that writes log lines to the storage in batches, and never holds a rank up for it."""

import logging
import threading
from collections import deque

from app.domain.errors import TransientStorageError
from app.storage.logs import LogWriter
from app.storage.storage import Storage
from workers.disk_full import RoomWatch, is_full
from workers.log_lines import LogLine

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.2
RETRY_SECONDS = 1.0
BATCH_LINES = 5000
WHAT = "log lines"
MAX_LINES = 50_000  # kept while the storage is away; beyond that the oldest are lost, and readers are told


class LogStore:
    """Lines in, chunks out."""

    def __init__(self, storage: Storage, job_id: str, attempt: int, *, room: RoomWatch) -> None:
        self._room = room
        self._writer = LogWriter(storage, job_id, attempt)
        self._changed = threading.Condition()
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._busy = False
        self._ended = False
        self._urgent = False
        self._taken = self._settled = 0  # lines ever; the latter counts those that were lost, too
        self._thread = threading.Thread(target=self._serve, name="logs", daemon=True)
        self._thread.start()

    def add(self, lines: list[LogLine]) -> None:
        if lines:
            with self._changed:
                self._lines.extend(lines)
                self._taken += len(lines)
                self._changed.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait until the lines so far are stored, for at most that long; False when they are not."""
        with self._changed:
            taken = self._taken
            return self._changed.wait_for(lambda: self._ended or self._settled >= taken, seconds)

    def close(self, seconds: float) -> None:
        """Write what is left, for at most that long."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._busy or self._lines), seconds)
            self._ended = True
            self._lines.clear()
            self._changed.notify_all()
        self._thread.join(seconds)

    def _serve(self) -> None:
        while self._wait_for_lines():
            batch = self._next_batch()
            while batch and not self._write(batch):
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, RETRY_SECONDS)
                    if self._ended:
                        return
            with self._changed:
                self._busy = False
                self._settled = self._taken - len(self._lines)
                self._changed.notify_all()

    def _wait_for_lines(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._lines))
            if not self._urgent:
                self._changed.wait_for(lambda: self._ended or self._urgent, BATCH_SECONDS)
            return not self._ended

    def _next_batch(self) -> list[LogLine]:
        with self._changed:
            self._busy = True
            return [self._lines.popleft() for _ in range(min(BATCH_LINES, len(self._lines)))]

    def _write(self, batch: list[LogLine]) -> bool:
        rows = [
            (line.number, line.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), line.rank, line.text)
            for line in batch
        ]
        try:
            self._writer.append(rows)
        except TransientStorageError as error:
            log.warning("log lines could not be stored yet", exc_info=True)
            if is_full(error):
                self._room.full(WHAT, error)
            return False
        except Exception:
            log.exception("log lines were lost")
        self._room.stored(WHAT)
        return True
