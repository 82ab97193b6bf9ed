"""The parts of a supervisor that store and record its attempt's reports, each with a thread of its own."""

from dataclasses import dataclass

from workers.supervisor.recording.checkpoint_store import CheckpointStore
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
