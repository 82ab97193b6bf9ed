"""The thread that takes over a rank's complete checkpoints and shards: verifies, stores, records and answers them."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from app.database.transient_errors import is_transient
from app.domain.errors import LeaseLost, TrainyardError
from app.domain.lifecycle.events import EventType
from app.storage.beneath import DIRECTORY, FileDigest, copied, directory_opened, file_opened
from trainyard.protocol import checkpoint_manifest as _manifest
from trainyard.protocol.commands import Answer, CheckpointFailed, CheckpointSaved
from trainyard.protocol.messages import CheckpointReady, clean_text
from workers.supervisor.recording import disk_space
from workers.supervisor.recording.context import AttemptContext
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.ledgers import LedgerEntry, ledger_of
from workers.supervisor.recording.log_store import LogStore
from workers.supervisor.recording.rate_limit import TokenBucket
from workers.supervisor.recording.report_writer import Note, Reporter
from workers.supervisor.recording.takeover import CheckpointRefused, take_over
from workers.supervisor.recording.upload import RETRY_SECONDS, Patience, move_to_storage

log = logging.getLogger(__name__)

MAX_MANIFEST_BYTES = 32 << 20
# Built-in trainers and hooks wait for the answer before they offer the next one.
MAX_WAITING = 2
# Each failure is a line in the job's history; a rank may cause thousands a second.
FAILURE_BURST = 20
FAILURE_SECONDS = 30.0
MAX_REASON = 2000
# Waiting for earlier reports to be stored, in portions, so that the end of the attempt is noticed soon.
SETTLE_SECONDS = 0.5
SETTLE_TRIES = 20


class CheckpointStore:
    """Takes checkpoints in the order they were offered; ``answer`` gets the answer for the ranks.

    Of a job that does not train they are its shards.
    Create it before any rank runs: it keeps the offers' directory open, so that no rank can replace it.
    """

    def __init__(
        self,
        on: AttemptContext,
        reporter: Reporter,
        logs: LogStore,
        *,
        room: DiskSpaceWatch,
        answer: Callable[[Answer], None],
    ) -> None:
        self._ledger = ledger_of(on)
        self._storage = on.storage
        self._work = on.work
        self._run = run = on.run
        self._reporter = reporter
        self._room = room
        self._answer = answer
        self._logs = logs
        self._offers_fd = os.open(run.checkpoints, DIRECTORY)
        self._taken_fd = os.open(run.taken_over, DIRECTORY)
        self._taken = 0
        self.newest_step = 0  # of stored checkpoints
        self._failures = TokenBucket(FAILURE_BURST, FAILURE_SECONDS)
        self._changed = threading.Condition()
        self._offered: deque[CheckpointReady] = deque()
        self._busy = False
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="checkpoints", daemon=True)
        self._thread.start()

    def begin(self, finished: Iterable[int], most: int) -> None:
        """As `Ledger.begin`."""
        self._ledger.begin(finished, most)

    def offer(self, ready: CheckpointReady) -> None:
        with self._changed:
            if len(self._offered) < MAX_WAITING:
                self._offered.append(ready)
                self._changed.notify_all()
                return
        self._answer(
            self._failed(ready, CheckpointRefused(f"{MAX_WAITING} {self._ledger.noun}s wait already to be stored"))
        )

    def drain(self, seconds: float | None = None) -> bool:
        """Wait until every offered checkpoint is answered."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended or not (self._busy or self._offered), seconds)

    def close(self) -> None:
        """Stop; a checkpoint that is being stored is finished first."""
        with self._changed:
            self._ended = True
            self._offered.clear()
            self._changed.notify_all()
        self._thread.join()
        os.close(self._offers_fd)
        os.close(self._taken_fd)

    def _serve(self) -> None:
        while (ready := self._next()) is not None:
            try:
                self._answer(self._take_over(ready))
            except LeaseLost as error:
                self._reporter.lose(str(error))
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

    def _take_over(self, ready: CheckpointReady) -> Answer:
        try:
            shown_id = self._store(ready)
        except LeaseLost:
            raise
        except Exception as error:  # noqa: BLE001  logged, rate-limited, in _failed
            # Whatever the directory holds: the rank gets an answer, and the next checkpoint is tried.
            return self._failed(ready, error)
        return CheckpointSaved(ready.path, shown_id)

    def _failed(self, ready: CheckpointReady, error: Exception) -> CheckpointFailed:
        no_room = disk_space.reason(error)
        reason = f"the storage has no room: {no_room}" if no_room else clean_text(str(error), MAX_REASON)
        if self._failures.take():
            what = self._ledger.describe(ready.step)
            log.warning("%s not stored", what, exc_info=error)
            self._reporter.add(
                Note(
                    kind=EventType.CHECKPOINT_FAILED,
                    message=f"{what} was not stored: {reason}",
                    data={"step": ready.step},
                )
            )
        return CheckpointFailed(ready.path, reason)

    def _store(self, ready: CheckpointReady) -> str:
        self._taken += 1
        directory = self._run.taken_over / str(self._taken)
        try:
            self._take_out_of_reach(ready.path, directory.name)
            return self._store_taken(directory, ready)
        finally:
            _manifest.discard(directory)  # what was not stored is useless and takes disk space

    def _store_taken(self, directory: Path, ready: CheckpointReady) -> str:
        known = {_manifest.NAME: _own_manifest(directory, ready.path)}
        manifest = _manifest.verify(directory)
        known |= {file.path: FileDigest(file.size, file.sha256) for file in manifest.files}
        self._check(manifest, ready)
        entry, what = self._ledger.entry(ready, manifest), f"a {self._ledger.noun}"
        patience = Patience(rest=self._rest, waits=partial(self._room.full, what))
        move_to_storage(self._storage, directory, entry.key, patience, known=known)
        self._room.stored(what)
        # Steps up to here are never repeated, so their reports must be stored first.
        if not self._settle():
            self._delete(entry.key)
            raise CheckpointRefused("the attempt ended before the metrics of its steps were stored")
        self._record(entry)
        self.newest_step = max(self.newest_step, ready.step)
        return entry.shown_id

    def _settle(self) -> bool:
        """False when the end came first. The wait for log lines is bounded: they may go to another disk."""
        for _ in range(SETTLE_TRIES):
            if self._logs.settle(SETTLE_SECONDS) or self._ended:
                break
        while not self._reporter.settle(SETTLE_SECONDS):
            if self._ended:
                return False
        return True

    def _take_out_of_reach(self, named: str, target: str) -> None:
        """Move the directory out of the rank's reach; it must lie in the rank's checkpoints.

        Raises CheckpointRefused.
        """
        path = Path(named)
        if path.parent != self._run.checkpoints or path.name in ("", ".", ".."):
            raise CheckpointRefused(f"{named} is not directly in {self._run.checkpoints}")
        take_over(path.name, self._offers_fd, self._taken_fd, target)

    def _check(self, manifest: _manifest.Manifest, ready: CheckpointReady) -> None:
        claimed = (manifest.job_id, manifest.attempt, manifest.step)
        expected = (self._work.job_id, self._work.attempt, ready.step)
        if claimed != expected:
            raise CheckpointRefused(f"its manifest is of (job, attempt, step) {claimed}, not {expected}")

    def _rest(self, seconds: float) -> bool:
        """Wait before a retry; False when the attempt has ended."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._ended, seconds)

    def _record(self, entry: LedgerEntry) -> None:
        while True:
            try:
                obsolete = entry.record()
                break
            except LeaseLost:
                self._delete_unrecorded(entry)
                raise
            except Exception as error:
                if not is_transient(error):
                    self._delete_unrecorded(entry)
                    raise
                log.warning("%s could not be recorded yet: %s", entry.key, error)
                if not self._rest(RETRY_SECONDS):
                    raise
        for key in obsolete:
            self._delete(key)

    def _delete_unrecorded(self, entry: LedgerEntry) -> None:
        """Delete its files only if the database says that it is not recorded: the answer to a commit may be lost."""
        try:
            known = entry.is_recorded()
        except Exception:
            log.warning("%s may be unused; housekeeping will check", entry.key, exc_info=True)
            return
        if not known:
            self._delete(entry.key)

    def _delete(self, key: str) -> None:
        try:
            self._storage.delete_tree(key)
        except TrainyardError:
            log.warning("%s could not be deleted; housekeeping will", key, exc_info=True)


def _own_manifest(directory: Path, named: str) -> FileDigest:
    """Replace the manifest by a copy, because the rank may have it open; returns its content."""
    blocks: list[bytes] = []
    try:
        with directory_opened(directory) as root, file_opened(root, _manifest.NAME) as file:
            if os.fstat(file.fileno()).st_size > MAX_MANIFEST_BYTES:
                raise CheckpointRefused(f"{named}: its {_manifest.NAME} is larger than {MAX_MANIFEST_BYTES} bytes")
            content = copied(file, _manifest.NAME, blocks.append)
    except FileNotFoundError:
        raise CheckpointRefused(f"{named} is not a committed checkpoint: it has no {_manifest.NAME}") from None
    path = directory / _manifest.NAME
    path.unlink()
    path.write_bytes(b"".join(blocks))
    return content
