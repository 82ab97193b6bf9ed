"""The parts of a supervisor that store and record its attempt's reports, each with a thread of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from app.services.attempts import artifacts
from trainyard.protocol.commands import Answer
from workers.supervisor.recording.checkpoint_store import CheckpointStore
from workers.supervisor.recording.context import AttemptContext
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.log_store import LogStore
from workers.supervisor.recording.report_writer import Reporter
from workers.supervisor.recording.tensorboard_store import TensorboardStore


@dataclass(frozen=True, kw_only=True)
class Recorders:
    """Where reports, log lines, metrics and checkpoints go."""

    reporter: Reporter
    logs: LogStore
    events: TensorboardStore
    checkpoints: CheckpointStore

    def close(self) -> None:
        """End the threads; what is still queued is dropped."""
        self.checkpoints.close()
        self.reporter.close()
        self.logs.close(0.0)
        self.events.close(0.0)


def start_recorders(
    on: AttemptContext,
    *,
    room: DiskSpaceWatch,
    answer: Callable[[Answer], None],
    on_lost: Callable[[str], None],
) -> Recorders:
    """``answer`` gets the answers to the ranks' checkpoints, ``on_lost`` is called on a stale fencing token."""
    work = on.work
    reporter = Reporter(on.db, work, on_lost, on.redaction)
    logs = LogStore(on.storage, work.job_id, work.attempt, room=room)
    return Recorders(
        reporter=reporter,
        logs=logs,
        events=TensorboardStore(
            on.storage, work.job_id, work.attempt,
            record=lambda new: artifacts.record(on.db, job_id=work.job_id, fence=work.fence, new=new),
        ),
        checkpoints=CheckpointStore(on, reporter, logs, room=room, answer=answer),
    )  # fmt: skip
