"""A run's connection to its supervisor: reports, checkpoints and commands."""

import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from trainyard.protocol import checkpoint_manifest, messages
from trainyard.protocol import stacks as _stacks
from trainyard.protocol.channel import Channel, Message
from trainyard.protocol.commands import CheckpointNotSaved, ModelAnswered, ReceivedCommands, WriteStacks, parse
from trainyard.protocol.messages import AskModel, FetchAdapter, Progress, Report, Result, fields_of
from trainyard.protocol.run_spec import RunSpec

_METRIC_BYTES = 64  # approximate size of a name with its value


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which run this is; copied into the manifest of its checkpoints."""

    run_dir: Path
    rank: int = 0
    world_size: int = 1
    job_id: str = "local"
    attempt: int = 1
    framework: str = "CUSTOM"
    training_type: str = ""
    threads_per_rank: int = 1

    @classmethod
    def of(cls, spec: RunSpec, *, rank: int = 0, world_size: int | None = None) -> "Identity":
        """The identity of one rank; ``world_size`` overrides that of the specification."""
        return cls(
            run_dir=spec.run_dir,
            rank=rank,
            world_size=spec.world_size if world_size is None else world_size,
            job_id=spec.job_id,
            attempt=spec.attempt,
            framework=spec.framework,
            training_type=spec.training_type,
            threads_per_rank=spec.threads_per_rank,
        )


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The metadata of a checkpoint."""

    step: int
    epoch: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    data_position: Mapping[str, Any] = field(default_factory=dict)


class Session(Protocol):
    """The interface through which hooks and built-in trainers report. Only rank 0's reports are sent,
    and metrics of the first rank of each role.
    """

    identity: Identity
    commands: ReceivedCommands

    def declare(self, *, can_checkpoint: bool) -> None: ...
    def phase(self, name: str) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def metrics(self, step: int, values: Mapping[str, float]) -> None: ...
    def note(self, reason: str, message: str, data: Mapping[str, Any]) -> None: ...
    def section(self, name: str | None, *, max_seconds: float | None = None) -> None: ...
    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> str: ...
    def wait_stored(self) -> None: ...
    def fetch_adapter(self, request: FetchAdapter) -> str: ...
    def ask_model(self, path: str, body: str) -> ModelAnswered | None: ...
    def pause_failed(self, number: int, message: str) -> None: ...
    def finish(self, result: Result) -> None: ...
    def fail(self, error_type: str, message: str, stack: str) -> None: ...


class SupervisedSession:
    """Reports over the channel of a supervisor."""

    def __init__(
        self,
        channel_path: str,
        identity: Identity,
        *,
        can_checkpoint: bool,
        leads_role: bool = False,
        on_orphaned: Callable[[], None] | None = None,
    ) -> None:
        """``leads_role``: metrics of this rank are shown as those of its role, where it is not rank 0."""
        self.identity = identity
        self.commands = ReceivedCommands()
        self._leads = identity.rank == 0
        self._has_metrics = self._leads or leads_role
        self._sections: list[tuple[str, float | None]] = []
        self._committed = 0
        self._in_flight: str | None = None
        self._numbers = itertools.count()
        self._channel = Channel(
            channel_path,
            rank=identity.rank,
            can_checkpoint=can_checkpoint,
            dumps=_stacks.register(identity.run_dir, identity.rank),
            on_command=self._receive,
            on_closed=on_orphaned or self.commands.orphan,
        )

    def _receive(self, message: Message) -> None:
        command = parse(message)
        if isinstance(command, WriteStacks):
            _stacks.write()
        else:
            self.commands.apply(command)

    def _send(self, report: Report) -> None:
        self._channel.send(report.type, **fields_of(report))

    def declare(self, *, can_checkpoint: bool) -> None:
        """Correct the `can_checkpoint` of the hello."""
        self._channel.hello(can_checkpoint=can_checkpoint)

    def phase(self, name: str) -> None:
        if self._leads:
            self._channel.release()
            self._send(messages.Phase(name))

    def progress(self, progress: Progress) -> None:
        """Report at most every half second; the last one goes out in any case."""
        if self._leads:
            self._channel.send_newest(progress.type, fields_of(progress))

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if self._has_metrics and values:
            point = messages.MetricPoint(
                step=step, at=datetime.now(UTC), values={str(name): values[name] for name in values}
            )
            self._channel.send_later(point.type, fields_of(point), size_bytes=_METRIC_BYTES * (1 + len(values)))

    def commit_checkpoint(self, tmp_dir: Path, saved: Saved) -> str:
        """Make `tmp_dir` a complete checkpoint and offer it to the supervisor; returns its path.

        Waits for the previous one to be stored: a slow storage slows the run rather than fill the disk.
        """
        self._settle_previous()
        self._committed += 1
        name = f"{self._committed:04d}-step-{saved.step}"
        final_dir = self.identity.run_dir / "checkpoints" / name
        final_dir.parent.mkdir(exist_ok=True)
        checkpoint_manifest.commit(tmp_dir, final_dir, manifest_for(self.identity, saved))
        self._in_flight = str(final_dir)
        self._channel.release()
        metrics = dict(saved.metrics)
        self._send(messages.CheckpointReady(step=saved.step, epoch=saved.epoch, path=self._in_flight, metrics=metrics))
        return self._in_flight

    def note(self, reason: str, message: str, data: Mapping[str, Any]) -> None:
        """Add a line to the job's history."""
        if self._leads:
            self._send(messages.Remark(reason=reason, message=message, data=dict(data)))

    def section(self, name: str | None, *, max_seconds: float | None = None) -> None:
        """Announce work without steps, None for its end: it is not to be taken for a hang.

        Sections may be nested: at the end of the inner one the outer one continues.
        """
        if not self._leads:
            return
        if name is not None:
            self._sections.append((name, max_seconds))
        elif self._sections:
            self._sections.pop()
        around: tuple[str | None, float | None] = self._sections[-1] if self._sections else (None, None)
        self._channel.release()
        self._send(messages.SectionMessage(name=around[0], max_seconds=around[1]))

    def wait_stored(self) -> None:
        """Wait for the answer about the last checkpoint. Raises CheckpointNotSaved; returns when a cancel comes."""
        path, self._in_flight = self._in_flight, None
        if path is not None:
            self.commands.wait_saved(path)

    def fetch_adapter(self, request: FetchAdapter) -> str:
        """The local directory of an adapter, once it is there; rank 0 only. Raises AdapterNotLoaded."""
        self.commands.forget_adapter(request.name)
        self._send(request)
        return self.commands.wait_adapter(request.name)

    def ask_model(self, path: str, body: str) -> ModelAnswered | None:
        """What the gateway answers to this JSON; None when the run is cancelled. On any rank and thread."""
        number = next(self._numbers)
        self.commands.expect_model(number)
        self._send(AskModel(number=number, path=path, body=body))
        return self.commands.wait_model(number)

    def pause_failed(self, number: int, message: str) -> None:
        """Report that the run continues in spite of the pause of this number, and why."""
        if self._leads:
            self._send(messages.PauseFailed(message, number=number))

    def finish(self, result: Result) -> None:
        """Report that this rank is done, and close the channel; rank 0 waits for its checkpoints first.

        Raises CheckpointNotSaved when the run stops for a pause or halt whose checkpoint is lost, unless it must stop.
        """
        if self._leads:
            stop = self.commands.stop
            if result.stopped in ("pause", messages.HALT) and not (stop is not None and stop.force):
                self.wait_stored()
            self._settle_previous()
            self._channel.release()
            self._send(result)
        else:
            self._send(messages.Done())
        self._channel.close()

    def fail(self, error_type: str, message: str, stack: str) -> None:
        """Report why this rank fails; the process must exit non-zero afterwards."""
        self._channel.release()
        self._send(messages.Failure(error_type=error_type, message=message, stack=stack))
        self._channel.flush()

    def _settle_previous(self) -> None:
        if self._in_flight is None:
            return
        try:
            self.commands.wait_saved(self._in_flight)
        except CheckpointNotSaved as error:
            # The run continues: the next checkpoint may succeed, and an older one still exists.
            print(f"trainyard: checkpoint not stored: {error}", file=sys.stderr)  # noqa: T201
        self._in_flight = None


def manifest_for(identity: Identity, saved: Saved) -> checkpoint_manifest.Manifest:
    """The manifest of a checkpoint of this run, still without its files."""
    return checkpoint_manifest.Manifest(
        job_id=identity.job_id,
        attempt=identity.attempt,
        step=saved.step,
        epoch=saved.epoch,
        world_size=identity.world_size,
        threads_per_rank=identity.threads_per_rank,
        framework=identity.framework,
        training_type=identity.training_type,
        metrics=dict(saved.metrics),
        data_position=dict(saved.data_position),
    )
