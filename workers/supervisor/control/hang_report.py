"""Stores the stacks of all ranks as an artifact of the job before hanging ranks are killed."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from hashlib import sha256

from app.database.transient_errors import is_transient
from app.domain.lifecycle.outcomes import NewArtifact
from app.services.attempts import artifacts
from app.storage.object_keys import run_file_key, stacks_file
from workers.attempt_failed import AttemptFailed
from workers.supervisor.control.hang_detector import Hang
from workers.supervisor.control.stack_dump import dump
from workers.supervisor.recording.context import AttemptContext

log = logging.getLogger(__name__)

# The devices are idle meanwhile; storing a dump is not worth more.
RECORD_SECONDS = 5.0
RETRY_SECONDS = 0.5
# A dump takes 4 s, its record 5 s at most; beyond that it probably waits for the same thing as the ranks.
KEEP_SECONDS = 15.0
WAY_OUT = (
    "look there for what they wait for; work that makes no steps and takes long is announced with "
    "`with run.section(...)`, and TRAINYARD_WATCH_STEP_SECONDS allows more for all"
)


def store_stacks(
    on: AttemptContext,
    hang: Hang,
    root_pid: int,
    ranks: Mapping[int, int],
    writing: Collection[int],
    ask: Callable[[], None],
) -> AttemptFailed:
    """Dump and store the stacks; return the failure to report. Takes some seconds, raises nothing.

    ``ranks``: rank -> pid; ``writing``: ranks that write their stacks on request; ``ask`` sends that request.
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
    """The failure to report when the stacks could not be stored in time."""
    return AttemptFailed(
        "HANG", f"{hang}; their stacks could not be kept within {KEEP_SECONDS:g} s: the storage may hang, too"
    )


def _store(on: AttemptContext, path: str, data: bytes) -> None:
    on.storage.write(run_file_key(on.work.job_id, path), data)
    new = NewArtifact(path=path, size_bytes=len(data), sha256=sha256(data).hexdigest())
    deadline = time.monotonic() + RECORD_SECONDS
    while True:
        try:
            artifacts.record(on.db, job_id=on.work.job_id, fence=on.work.fence, new=new)
            return
        except Exception as error:
            if not is_transient(error) or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
