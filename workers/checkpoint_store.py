"""The thread that takes a rank's complete checkpoints over: verified, moved to the storage, recorded, answered."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from app.domain.errors import LeaseLost, TrainyardError, TransientStorageError
from app.domain.events import EventType
from app.extensions import Database
from app.services import checkpoints
from app.services.attempts import Work
from app.services.checkpoints import NewCheckpoint
from app.storage.keys import checkpoint_key
from app.storage.storage import Storage
from trainyard import _manifest
from trainyard._channel import Message
from workers.database_errors import passes
from workers.messages import CheckpointReady
from workers.reports import Note, Reporter
from workers.run_directory import RunDirectory

log = logging.getLogger(__name__)

STORE_TRIES = 3
MAX_MANIFEST_BYTES = 32 << 20
RETRY_SECONDS = 1.0


class Refused(Exception):
    """A checkpoint that is not what its rank says it is."""


class CheckpointStore:
    """Takes checkpoints in the order they were offered; ``answer`` gets what the ranks are to be told."""

    def __init__(
        self,
        db: Database,
        storage: Storage,
        work: Work,
        run: RunDirectory,
        reporter: Reporter,
        *,
        answer: Callable[[Message], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._db = db
        self._storage = storage
        self._work = work
        self._run = run
        self._reporter = reporter
        self._answer = answer
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._offered: deque[CheckpointReady] = deque()
        self._busy = False
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="checkpoints", daemon=True)
        self._thread.start()

    def offer(self, ready: CheckpointReady) -> None:
        with self._changed:
            self._offered.append(ready)
            self._changed.notify_all()

    def drain(self, seconds: float | None = None) -> bool:
        """Wait until every offered checkpoint was dealt with."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended or not (self._busy or self._offered), seconds)

    def close(self) -> None:
        """Take no more; one that is being stored is finished first."""
        with self._changed:
            self._ended = True
            self._offered.clear()
            self._changed.notify_all()
        self._thread.join()

    def _serve(self) -> None:
        while (ready := self._next()) is not None:
            try:
                self._answer(self._take_over(ready))
            except LeaseLost as error:
                self._on_lost(str(error))
                with self._changed:
                    self._ended = True
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _next(self) -> CheckpointReady | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._offered))
            self._busy = bool(self._offered) and not self._ended
            return self._offered.popleft() if self._busy else None

    def _take_over(self, ready: CheckpointReady) -> Message:
        try:
            checkpoint_id = self._store(ready)
        except LeaseLost:
            raise
        except Exception as error:
            # Whatever a rank made of its directory: it gets an answer, and the next checkpoint its chance.
            log.warning("checkpoint at step %s not stored", ready.step, exc_info=True)
            self._reporter.add(
                Note(
                    kind=EventType.CHECKPOINT_FAILED,
                    message=f"checkpoint at step {ready.step} was not stored: {error}",
                    data={"step": ready.step},
                )
            )
            return {"type": "checkpoint_failed", "path": ready.path, "message": str(error)}
        return {"type": "checkpoint_saved", "path": ready.path, "checkpoint_id": checkpoint_id}

    def _store(self, ready: CheckpointReady) -> str:
        directory = self._out_of_reach(ready.path)
        manifest = _manifest.verify(directory)
        self._check(manifest, ready)
        checkpoint_id = checkpoints.new_checkpoint_id()
        key = checkpoint_key(self._work.job_id, checkpoint_id)
        self._put(directory, key)
        new = NewCheckpoint(
            checkpoint_id=checkpoint_id,
            step=manifest.step,
            epoch=manifest.epoch,
            world_size=manifest.world_size,
            threads_per_rank=manifest.threads_per_rank,
            size_bytes=manifest.size_bytes,
            sha256=_manifest.digest(manifest),
            uri=self._storage.uri(key),
            # PostgreSQL's JSON knows no NaN, and no checkpoint is best by one.
            metrics={name: value for name, value in ready.metrics.items() if abs(value) < float("inf")},
        )
        self._record(new, key)
        return checkpoint_id

    def _out_of_reach(self, named: str) -> Path:
        """Move the directory to where its rank can't change it any more; it must be one of the rank's own."""
        path = Path(named)
        if path.parent != self._run.checkpoints or path.name in ("", ".", "..") or path.is_symlink():
            raise Refused(f"{named} is not directly in {self._run.checkpoints}")
        manifest = path / _manifest.NAME
        if not path.is_dir() or manifest.is_symlink() or not manifest.is_file():
            raise Refused(f"{named} is not a committed checkpoint: it has no {_manifest.NAME}")
        if manifest.stat().st_size > MAX_MANIFEST_BYTES:
            raise Refused(f"{named}: its {_manifest.NAME} is larger than {MAX_MANIFEST_BYTES} bytes")
        target = self._run.taken_over / path.name
        path.rename(target)
        return target

    def _check(self, manifest: _manifest.Manifest, ready: CheckpointReady) -> None:
        said = (manifest.job_id, manifest.attempt, manifest.step)
        expected = (self._work.job_id, self._work.attempt, ready.step)
        if said != expected:
            raise Refused(f"its manifest is of (job, attempt, step) {said}, not {expected}")

    def _put(self, directory: Path, key: str) -> None:
        for left in reversed(range(STORE_TRIES)):
            try:
                self._storage.put_tree(directory, key, move=True)
                return
            except TransientStorageError:
                if not left or self._ended:
                    raise
                time.sleep(RETRY_SECONDS)

    def _record(self, new: NewCheckpoint, key: str) -> None:
        work = self._work
        while True:
            try:
                recorded = checkpoints.record(
                    self._db, job_id=work.job_id, attempt=work.attempt, fence=work.fence, actor=work.actor, new=new
                )
                break
            except LeaseLost:
                self._delete(key)
                raise
            except Exception as error:
                if not passes(error):
                    self._delete(key)
                    raise
                log.warning("checkpoint %s could not be recorded yet: %s", new.checkpoint_id, error)
                time.sleep(RETRY_SECONDS)
        for _, uri in recorded.prune:
            self._delete(self._storage.key_of(uri))

    def _delete(self, key: str) -> None:
        try:
            self._storage.delete_tree(key)
        except TrainyardError:
            log.warning("%s could not be deleted; housekeeping will", key, exc_info=True)
