"""A hang on record: the stacks of all ranks become an artifact of the job, before the ranks are killed."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from hashlib import sha256

from app.database.transient_errors import passes
from app.domain.lifecycle.outcomes import NewArtifact
from app.services.attempts import artifacts
from app.storage.keys import run_file_key, stacks_file
from workers.attempt_failed import AttemptFailed
from workers.supervisor.control.hang_detector import Hang
from workers.supervisor.control.stack_dump import dump
from workers.supervisor.recording.context import Ground

log = logging.getLogger(__name__)

# The devices stand still meanwhile; a dump that can't be stored is not worth more.
RECORD_SECONDS = 5.0
RETRY_SECONDS = 0.5
# A dump takes 4 s, its record 5 s at most: what takes longer waits for what the ranks wait for, a storage say.
KEEP_SECONDS = 15.0
WAY_OUT = (
    "look there for what they wait for; work that makes no steps and takes long is announced with "
    "`with run.section(...)`, and TRAINYARD_WATCH_STEP_SECONDS allows more for all"
)


def keep_stacks(
    on: Ground,
    hang: Hang,
    root_pid: int,
    ranks: Mapping[int, int],
    writing: Collection[int],
    ask: Callable[[], None],
) -> AttemptFailed:
    """Dump and store the stacks, and say what happened; takes some seconds, raises nothing.

    ``ranks``: rank -> pid; ``writing``: the ranks that write their stacks when they are asked; ``ask`` asks them.
    """
    path = stacks_file(on.work.attempt)
    try:
        body = dump(on.run, root_pid, ranks, writing, ask)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        text = f"job {on.work.job_id}, attempt {on.work.attempt}, {at}: {hang}\n\n{body}"
        _store(on, path, on.redaction(text).encode("utf-8", "replace"))
    except Exception:
        log.exception("the stacks of the ranks that hang could not be kept")
        return AttemptFailed("HANG", f"{hang}; their stacks could not be kept, see the supervisor's log")
    return AttemptFailed("HANG", f"{hang}; their stacks are kept as the artifact {path}: {WAY_OUT}")


def without_stacks(hang: Hang) -> AttemptFailed:
    """What is said when they could not be kept in time."""
    return AttemptFailed(
        "HANG", f"{hang}; their stacks could not be kept within {KEEP_SECONDS:g} s: the storage may hang, too"
    )


def _store(on: Ground, path: str, data: bytes) -> None:
    on.storage.write(run_file_key(on.work.job_id, path), data)
    new = NewArtifact(path=path, size_bytes=len(data), sha256=sha256(data).hexdigest())
    deadline = time.monotonic() + RECORD_SECONDS
    while True:
        try:
            artifacts.record(on.db, job_id=on.work.job_id, fence=on.work.fence, new=new)
            return
        except Exception as error:
            if not passes(error) or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
