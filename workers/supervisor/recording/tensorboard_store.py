"""The thread that stores an attempt's metrics as TensorBoard event files while the training runs."""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime

from app.database.transient_errors import is_transient
from app.domain.errors import LeaseLost, TransientStorageError
from app.domain.lifecycle.outcomes import NewArtifact
from app.domain.metric_groups import tag_of
from app.storage.object_keys import event_file, run_file_key
from app.storage.storage import Storage
from workers.supervisor.recording import tensorboard_format

log = logging.getLogger(__name__)

LOCAL_SECONDS = 5.0
REMOTE_SECONDS = 30.0  # a growing file is rewritten there
LOCAL_BYTES = 16 << 20
REMOTE_BYTES = 1 << 20
LIST_SECONDS = 30.0  # a file that grew is listed with its new size at least that often
RETRY_SECONDS = 0.5
MAX_WAITING = 50_000  # messages buffered while the storage is away; beyond it the oldest are dropped


class TensorboardStore:
    """One folder per job, with the files of later attempts after those of earlier ones.

    ``record`` records a file as an artifact of the job, with its current size and hash.
    """

    def __init__(self, storage: Storage, job_id: str, attempt: int, *, record: Callable[[NewArtifact], None]) -> None:
        self._storage = storage
        self._job_id = job_id
        self._attempt = attempt
        self._record = record
        remote = storage.local_path(run_file_key(job_id, event_file(attempt, 1))) is None
        self._keeps_whole = remote
        self._write_seconds = REMOTE_SECONDS if remote else LOCAL_SECONDS
        self._file_bytes = REMOTE_BYTES if remote else LOCAL_BYTES
        self._restart_step: int | None = None
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, datetime, Mapping[str, float]]] = deque(maxlen=MAX_WAITING)
        self._unwritten = b""
        self._unlisted: dict[str, NewArtifact] = {}  # path → content that is not recorded yet
        self._busy = self._urgent = self._ended = self._failed = False
        self._file = _File("")
        self._files = 0
        self._listed_at = float("-inf")
        self._thread: threading.Thread | None = None

    def start_from(self, step: int) -> None:
        """Discard an earlier attempt's values of later steps, which are repeated."""
        self._restart_step = step + 1 if self._attempt > 1 else None

    def add(self, step: int, at: datetime, values: Mapping[str, float]) -> None:
        """Values of one step by name; never waits."""
        with self._changed:
            if self._ended or not values:
                return
            self._waiting.append((step, at, values))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="events", daemon=True)
                self._thread.start()

    def close(self, seconds: float) -> None:
        """Write and record the rest, for at most that long; nothing when that is 0."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(self._is_idle, seconds)
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _is_idle(self) -> bool:
        return self._ended or not (self._busy or self._waiting or self._unwritten or self._unlisted)

    def _serve(self) -> None:
        try:
            while self._wait_for_turn():
                self._failed = False
                self._write()
                self._list()
        except LeaseLost:
            log.info("the lease is lost: the event files are left as they are")
        except Exception:
            log.exception("TensorBoard's files are not written any more")
        with self._changed:
            self._ended, self._busy = True, False
            self._changed.notify_all()

    def _wait_for_turn(self) -> bool:
        """Write once per interval; at the end until all is written."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            if self._urgent and self._failed:
                self._changed.wait_for(lambda: self._ended, RETRY_SECONDS)
            else:
                hurry = lambda: self._ended or (self._urgent and not self._is_idle())  # noqa: E731
                self._changed.wait_for(hurry, self._write_seconds)
            self._busy = not self._ended
            return not self._ended

    def _write(self) -> None:
        """Encode what waits and append it to the files; what could not be stored is retried in the next round."""
        while self._unwritten or self._waiting:
            self._unwritten = self._unwritten or self._encoded()
            try:
                self._grow(self._unwritten)
            except TransientStorageError as error:
                log.warning("TensorBoard's file could not be written yet: %s", error)
                self._failed = True
                return
            self._unwritten = b""

    def _list(self) -> None:
        """Record the files with their current content."""
        if not self._urgent and time.monotonic() - self._listed_at < LIST_SECONDS:
            return
        for path, described in list(self._unlisted.items()):
            try:
                self._record(described)
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("TensorBoard's file could not be recorded yet: %s", error)
                self._failed = True
                return
            del self._unlisted[path]
            self._listed_at = time.monotonic()

    def _encoded(self) -> bytes:
        """The part of what waits that fits into the current file, or into a new one."""
        parts = self._begin_file() if self._file.size >= self._file_bytes or not self._file.path else []
        room = self._file_bytes - self._file.size
        with self._changed:
            while self._waiting and room > 0:
                step, at, values = self._waiting.popleft()
                tagged = {tag_of(name): value for name, value in values.items()}
                parts.append(tensorboard_format.scalars_event(at.timestamp(), step, tagged))
                room -= len(parts[-1])
        return b"".join(parts)

    def _begin_file(self) -> list[bytes]:
        self._files += 1
        self._file = _File(event_file(self._attempt, self._files))
        now, again = time.time(), self._restart_step
        self._restart_step = None
        return [
            tensorboard_format.first_event(now),
            *([tensorboard_format.restart_event(now, again)] if again is not None else []),
        ]

    def _grow(self, tail: bytes) -> None:
        file = self._file
        whole = bytes(file.whole) + tail if self._keeps_whole else b""
        self._storage.grow(run_file_key(self._job_id, file.path), offset=file.size, tail=tail, whole=whole)
        file.size += len(tail)
        file.digest.update(tail)
        file.whole = whole
        self._unlisted[file.path] = NewArtifact(
            path=file.path, size_bytes=file.size, sha256=file.digest.copy().hexdigest()
        )


class _File:
    """A file that grows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = 0
        self.digest = hashlib.sha256()
        self.whole = b""
