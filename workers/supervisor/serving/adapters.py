"""Fetches adapters for a replica while it answers, verifies them, and puts them where its rank can read them."""

import contextlib
import logging
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from app.database.engine import Database
from app.domain.errors import TrainyardError
from app.services.attempts.work_orders import WorkOrder
from app.services.serving import adapters
from app.storage.storage import Storage
from trainyard.protocol.commands import AdapterAnswer, AdapterReady, AdapterRefused
from trainyard.protocol.messages import FetchAdapter
from workers.attempt_failed import AttemptFailed
from workers.prepare.inputs.model_weights import find_result
from workers.run_dir.layout import RunDirectory

log = logging.getLogger(__name__)

DIRECTORY = "adapters"  # in the run directory
MOST_WAITING = 256  # requests; a rank may send any number
LEAST_KEPT = 4
_FILES = "adapter_*"  # what peft reads; a checkpoint also has the state of its optimizer


class Adapters:
    """Answers requests one after another on a thread of its own; ``answer`` is called there."""

    def __init__(
        self,
        db: Database,
        storage: Storage,
        work: WorkOrder,
        run: RunDirectory,
        answer: Callable[[AdapterAnswer], None],
    ) -> None:
        self._db, self._storage, self._work, self._run = db, storage, work, run
        self._answer = answer
        self._asked: queue.Queue[FetchAdapter | None] = queue.Queue(MOST_WAITING)
        self._there: dict[str, FetchAdapter] = {}  # the one asked for last at the end
        inference = work.document.inference
        serving = None if inference is None else inference.serving
        self._most = max(LEAST_KEPT, 2 * (0 if serving is None else serving.max_loaded))
        self._removed = 0
        self._thread: threading.Thread | None = None

    def ask(self, request: FetchAdapter) -> None:
        """Returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="adapters", daemon=True)
            self._thread.start()
        try:
            self._asked.put_nowait(request)
        except queue.Full:
            self._answer(AdapterRefused(request.name, f"{MOST_WAITING} adapters are being fetched already"))

    def close(self) -> None:
        """Fetch no more; one that is being fetched is not waited for."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._asked.get_nowait()
        self._asked.put_nowait(None)

    def _serve(self) -> None:
        while (request := self._asked.get()) is not None:
            try:
                self._answer(AdapterReady(request.name, str(self._found(request))))
            except TrainyardError as error:
                self._answer(AdapterRefused(request.name, error.message))
            except AttemptFailed as error:
                self._answer(AdapterRefused(request.name, error.message))
            except Exception as error:
                log.warning("adapter %s could not be fetched", request.name, exc_info=True)
                self._answer(AdapterRefused(request.name, f"it could not be fetched: {type(error).__name__}"))

    def _found(self, request: FetchAdapter) -> Path:
        """Raises AttemptFailed, TrainyardError and OSError."""
        target = self._run.path / DIRECTORY / request.name
        if (before := self._there.get(request.name)) is not None and before != request:
            raise AttemptFailed("INVALID_CONFIG", f"{request.name} is the name of another adapter already")
        if before is not None and target.is_dir() and not target.is_symlink():
            self._there[request.name] = self._there.pop(request.name)
            return target
        with self._db.read() as session:
            reference = adapters.find(
                session,
                self._work.project,
                self._work.document,
                job_id=request.job_id,
                checkpoint_id=request.checkpoint_id,
            )
        aside = self._run.taken_over / DIRECTORY
        scratch, copy = aside / "fetched", aside / request.name
        try:
            found = find_result(self._db, self._storage, self._work, reference, scratch)
            _copy(found, copy)
            _hand_over(copy, self._run.path)
        finally:
            for left in (scratch, copy):
                shutil.rmtree(left, ignore_errors=True)
        self._there.pop(request.name, None)
        self._there[request.name] = request
        self._make_room(aside)
        return target

    def _make_room(self, aside: Path) -> None:
        """Remove those that were not asked for in a long time; they are fetched again when they are asked for.

        A rank that reads one just now has it open or asks again.
        """
        while len(self._there) > self._most:
            name = next(iter(self._there))
            del self._there[name]
            self._removed += 1
            try:
                _remove(self._run.path, name, aside / f"removed-{self._removed}")
            except (OSError, RecursionError) as error:
                log.warning("adapter %s could not be removed: %s", name, type(error).__name__)


def _copy(directory: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    files = [path for path in directory.glob(_FILES) if path.is_file() and not path.is_symlink()]
    if not files:
        raise AttemptFailed("MODEL_NOT_FOUND", "there is no adapter among its files")
    for path in files:
        shutil.copyfile(path, copy / path.name, follow_symlinks=False)


def _hand_over(directory: Path, run: Path) -> None:
    """Move it into the run directory. Raises OSError."""
    with _opened(run) as target:
        os.rename(directory, directory.name, dst_dir_fd=target)


def _remove(run: Path, name: str, aside: Path) -> None:
    """Take it out of the ranks' reach first. Raises OSError and RecursionError."""
    with _opened(run) as target:
        os.rename(name, aside, src_dir_fd=target)
    if aside.is_dir() and not aside.is_symlink():
        shutil.rmtree(aside)
    else:
        aside.unlink()


@contextlib.contextmanager
def _opened(run: Path) -> Iterator[int]:
    """The directory of adapters; ranks may put links in the way: none is followed. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    root = os.open(run, flags)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(DIRECTORY, dir_fd=root)
        target = os.open(DIRECTORY, flags, dir_fd=root)
        try:
            yield target
        finally:
            os.close(target)
    finally:
        os.close(root)
