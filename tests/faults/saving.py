"""Saves checkpoints, each in a child process that waits until a tracer has attached to it: ``python -m
tests.faults.saving DATA_DIR DATABASE_URL JOB``.

Reads a step per line from standard input, and answers with the pid of the child that is going to save it. The child
stops itself first; continued, it does all that a rank and its supervisor do for one checkpoint, and exits with 0 when
it is recorded, 1 when it was refused.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from app.database.engine import Database, make_engine
from app.domain.lifecycle.events import EventType
from app.services.attempts import checkpoints, work_orders
from app.storage.storage import Storage
from config.redaction import Redaction
from tests.faults.invariants import chain_of
from trainyard.protocol import checkpoint_manifest
from trainyard.protocol.commands import Answer, CheckpointSaved
from trainyard.protocol.messages import CheckpointReady
from workers.run_dir.layout import RunDirectory
from workers.supervisor.recording.checkpoint_store import CheckpointStore
from workers.supervisor.recording.context import AttemptContext
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.log_store import LogStore
from workers.supervisor.recording.report_writer import Reporter

# Imported here, so that no child opens a module's file while its system calls are counted.
__all__ = ["EventType", "checkpoints", "main"]

SAVE_SECONDS = 20.0


def main() -> None:
    data_dir, database_url, job_id = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(save(data_dir, database_url, job_id, int(line)))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def save(data_dir: Path, database_url: str, job_id: str, step: int) -> int:
    """What becomes of one step; the exit code."""
    db = Database().bind(make_engine(database_url))
    work = work_orders.load_work(db, job_id, 1)
    run = RunDirectory(data_dir / "run" / str(step))
    run.make()
    storage = Storage(f"file://{data_dir / 'files'}")
    reporter = Reporter(db, work, lambda _: None)
    room = DiskSpaceWatch(0.0, hurries=lambda: True, on_waiting=lambda _: None, on_over=lambda _: None)
    logs = LogStore(storage, job_id, 1, room=room)
    answers: list[Answer] = []
    ground = AttemptContext(db=db, storage=storage, work=work, run=run, redaction=Redaction())
    store = CheckpointStore(ground, reporter, logs, room=room, answer=answers.append)
    try:
        store.offer(CheckpointReady(step=step, epoch=0.0, path=str(written(run, job_id, step)), metrics={}))
        store.drain(SAVE_SECONDS)
    except OSError:
        return 1  # the rank's own part failed, and its script hears of it
    store.close()
    reporter.close()
    logs.close(0.0)
    return 0 if answers and isinstance(answers[0], CheckpointSaved) else 1


def written(run: RunDirectory, job_id: str, step: int) -> Path:
    """The rank's part."""
    draft, final = run.path / "work" / "draft", run.checkpoints / f"step-{step}"
    draft.mkdir()
    (draft / "state.json").write_text(f'{{"step": {step}, "digest": "{chain_of(step)}"}}')
    (draft / "weights.bin").write_bytes(b"w" * 100_000)
    checkpoint_manifest.commit(draft, final, checkpoint_manifest.Manifest(job_id=job_id, attempt=1, step=step))
    return final


if __name__ == "__main__":
    threading.current_thread().name = "saving"
    main()
