"""The running ranks of an attempt: what they say is passed on, and what is wished is told them."""

import logging
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from app.domain.events import EventType
from app.domain.job_state import JobState
from app.services.telemetry import MetricPoint as StoredPoint
from app.services.telemetry import Progress as StoredProgress
from trainyard._channel import LineDecoder, Message
from workers import messages
from workers.channel import ChannelServer, Connection
from workers.checkpoint_store import CheckpointStore
from workers.eta import Eta
from workers.event_store import EventStore
from workers.launcher import Launched, launch
from workers.log_lines import LogNumbering
from workers.log_store import LogStore
from workers.main_loop import MainLoop
from workers.metric_backlog import MAX_NAMES, MetricNames
from workers.outcomes import Sightings
from workers.preparing import Prepared
from workers.reports import Note, PhaseChange, Reporter, SavesOnRequest
from workers.run_directory import RunDirectory
from workers.usage import GPU_UTILIZATION

log = logging.getLogger(__name__)

READ_BYTES = 1 << 18
LAST_LINES = 50  # of a rank, shown as the stack of an error that it did not explain
# The agent kills after the grace; beyond this nothing of it can be waited for.
KILL_MARGIN_SECONDS = 1.0
DRAIN_SECONDS = 2.0


class Ranks:
    """Launched ranks; all methods belong to the loop's thread."""

    def __init__(
        self,
        loop: MainLoop,
        run: RunDirectory,
        seen: Sightings,
        *,
        reporter: Reporter,
        checkpoints: CheckpointStore,
        logs: LogStore,
        events: EventStore,
    ) -> None:
        self._loop = loop
        self._run = run
        self._seen = seen
        self._reporter = reporter
        self._checkpoints = checkpoints
        self._logs = logs
        self._events = events
        self._launched: Launched | None = None
        self._server: ChannelServer | None = None
        self._numbering = LogNumbering(0)
        self._last_lines: dict[int, deque[str]] = {}
        self._open_logs: set[int] = set()
        self._decoder = LineDecoder()
        self._phase: JobState | None = None
        self._start_step = 0
        self._pending: list[Message] = []  # for ranks that have not said hello yet
        self._oom_kills_before = 0
        self._eta = Eta()
        self._last_progress: messages.Progress | None = None
        self._metric_names = MetricNames()
        self._world_size = 0
        self._heard_out = False
        self._told_saving: bool | None = None
        self.last_step = 0
        self.final_metrics: dict[str, float] = {}
        self.ended = False

    def launch(self, prepared: Prepared, *, metric_names: Sequence[str] = ()) -> None:
        """Start the ranks. Main thread only. ``metric_names`` are those of earlier attempts."""
        plan = prepared.plan
        self._start_step = self.last_step = prepared.start.step
        self._world_size = plan.spec["world_size"]
        self._metric_names = MetricNames(metric_names, redaction=prepared.redaction)
        self._events.start_from(self._start_step)
        self._server = ChannelServer(
            self._run.channel, self._loop, self._hear, max_connections=connections_for(self._world_size)
        )
        self._numbering = LogNumbering(self._world_size, redaction=prepared.redaction)
        self._oom_kills_before = oom_kills()
        self._launched = launched = launch(plan)
        self._loop.watch(launched.control, self._hear_agent)
        for rank, fd in enumerate(launched.log_fds):
            self._last_lines[rank] = deque(maxlen=LAST_LINES)
            self._open_logs.add(fd)
            self._loop.watch(fd, partial(self._read_log, rank, fd))
        if self._seen.custom:
            self.enter(JobState.TRAINING)

    @property
    def root_pid(self) -> int:
        """Everything of the attempt is this process or below it; 0 before the launch."""
        return self._launched.process.pid if self._launched is not None else 0

    def take_usage(self, values: Mapping[str, float]) -> None:
        """Report what was sampled as metrics of the current step; a script's own metric of the same name counts."""
        if self.ended:
            return
        free = {name: value for name, value in values.items() if name not in self.final_metrics}
        self._pass_on(self.last_step, datetime.now(UTC), self._metric_names.admit(free))
        if GPU_UTILIZATION in values:
            self._reporter.gpu_sample(values[GPU_UTILIZATION])

    def ask_to_stop(self, kind: str, *, save: bool) -> bool:
        """Have the ranks stop together at a step boundary; False when this script can't be asked, only ended."""
        command: Message = {"type": kind, "save_checkpoint": save}
        if self._waits_for_hello():
            self._pending.append(command)
            return True
        if not self._can_checkpoint():
            return False
        self._pending.append(command)  # for ranks that connect later: all must stop at the same boundary
        self._tell({"type": kind, "save_checkpoint": save})
        return True

    def ask_for_checkpoint(self) -> None:
        """Have them save now and go on."""
        if self._waits_for_hello():
            self._pending.append({"type": "checkpoint"})
        else:
            self._tell({"type": "checkpoint"})

    def answer(self, message: Message) -> None:
        """Pass on what became of a checkpoint."""
        self._tell(message)

    def terminate(self, grace_seconds: float) -> None:
        """SIGTERM, after the grace SIGKILL."""
        if self.ended:
            return  # how they ended is known, and was not our doing
        self._seen.terminated = True
        if self._launched is not None:
            self._launched.stop(grace_seconds)
            self._loop.call_after(grace_seconds + KILL_MARGIN_SECONDS, self._kill_what_is_left)

    def kill(self) -> None:
        """Make sure that no process is left; returns only then."""
        while self._launched is not None and not self._launched.kill(root_pid=os.getpid()):
            # Its device is not free while it exists, so the lease stays ours.
            log.error("a process of the attempt can't be killed; the devices stay reserved")

    def end(self) -> None:
        """Kill what is left, then hear what they still said."""
        self.kill()
        if self._launched is None or self._heard_out:
            return
        self._heard_out = True
        self._seen.out_of_memory_kills = oom_kills() - self._oom_kills_before
        self._drain()
        for rank, fd in enumerate(self._launched.log_fds):
            self._keep_lines(rank, flush=True)
            self._loop.forget(fd)
            os.close(fd)
        self._loop.forget(self._launched.control)
        self._launched.control.close()
        if self._server is not None:
            self._server.close()
        self._seen.last_lines = {rank: list(lines) for rank, lines in self._last_lines.items()}

    def enter(self, phase: JobState) -> None:
        """Move the job to a phase, through TRAINING if it was not there yet."""
        if self._phase is None and phase is not JobState.TRAINING:
            self.enter(JobState.TRAINING)
        if phase is not self._phase:
            self._phase = phase
            self._reporter.add(PhaseChange(to=phase, start_step=self._start_step))

    def report_end(self, result: messages.Result) -> None:
        """Bring the progress to where the finished training said it ended."""
        last = self._last_progress
        step = self.last_step if result.step is None else result.step
        total = max(step, last.total_steps or 0) if last is not None else step
        self._reporter.progress(
            StoredProgress(
                step=step,
                total_steps=total or None,
                epoch=last.epoch if last is not None else 0.0,
                total_epochs=last.total_epochs if last is not None else None,
                tokens=result.tokens or (last.tokens if last is not None else 0),
            )
        )

    # ---- what ranks say

    def _hear(self, connection: Connection, message: Message) -> None:
        try:
            report = messages.parse(message)
        except messages.BadMessage as error:
            if self._server is not None:
                self._server.complain(f"skipped a {message['type']!r:.40} of rank {connection.rank}: {error}")
            return
        self._seen.spoke = True
        if isinstance(report, messages.Hello):
            self._greet(connection, report)
        elif isinstance(report, messages.Failure):
            self._remember(report)
        elif message.get("rank", 0) == 0:
            self._take_from_leader(report)

    def _remember(self, failure: messages.Failure) -> None:
        """The first word of each rank is the cause; what it says afterwards follows from that, or is a flood."""
        known = {said.rank for said in self._seen.said}
        if failure.rank < self._world_size and failure.rank not in known:
            self._seen.said.append(failure)

    def _greet(self, connection: Connection, hello: messages.Hello) -> None:
        connection.rank = hello.rank
        connection.can_checkpoint = hello.can_checkpoint
        for command in self._pending if not connection.greeted else []:
            connection.send(command)
        connection.greeted = True
        self._tell_whether_it_saves()

    def _tell_whether_it_saves(self) -> None:
        """At most twice an attempt, first no and then yes: a rank may say hello a thousand times a second."""
        leader = self._leader()
        if leader is not None and self._told_saving is not True and leader.can_checkpoint is not self._told_saving:
            self._told_saving = leader.can_checkpoint
            self._reporter.add(SavesOnRequest(leader.can_checkpoint))

    def _take_from_leader(self, report: messages.Report) -> None:
        if isinstance(report, messages.Phase):
            self._eta.phase(report.phase, time.monotonic())
            self.enter(JobState(report.phase))
        elif isinstance(report, messages.Progress):
            self.enter(self._phase or JobState.TRAINING)
            self._progress(report)
        elif isinstance(report, messages.MetricPoint):
            self.enter(self._phase or JobState.TRAINING)
            self._metrics(report)
        elif isinstance(report, messages.CheckpointReady):
            self._checkpoints.offer(replace(report, metrics=self._metric_names.masked(report.metrics)))
        elif isinstance(report, messages.Result):
            self._seen.result = replace(report, final_metrics=self._metric_names.masked(report.final_metrics))

    def _metrics(self, report: messages.MetricPoint) -> None:
        was_full = self._metric_names.overflowed
        values = self._metric_names.admit(report.values)
        self.final_metrics.update(values)
        self._pass_on(report.step, report.at, values)
        if self._metric_names.overflowed and not was_full:
            message = f"metrics beyond the first {MAX_NAMES} names are not kept"
            self._reporter.add(Note(kind=EventType.WARNING, reason="TOO_MANY_METRICS", message=message))

    def _progress(self, report: messages.Progress) -> None:
        self.last_step = report.step
        self._last_progress = report
        self._eta.progress(report.step, time.monotonic())
        self._reporter.progress(
            StoredProgress(
                step=report.step,
                total_steps=report.total_steps,
                epoch=report.epoch,
                total_epochs=report.total_epochs,
                tokens=report.tokens,
                eta_seconds=self._eta.seconds(report.total_steps),
            )
        )

    def _pass_on(self, step: int, at: datetime, values: Mapping[str, float]) -> None:
        self._reporter.points([StoredPoint(name=n, step=step, at=at, value=v) for n, v in values.items()])
        self._events.add(step, at, values)

    def _hear_agent(self) -> None:
        if self._launched is None or self.ended:
            return
        try:
            data = self._launched.control.recv(READ_BYTES)
            self._take_exits(data)
        except OSError:
            data = b""
        except (ValueError, RecursionError) as error:
            # ProtocolError or BadMessage: whoever speaks there is not our agent any more.
            log.warning("the agent's channel is broken: %s", error)
            data = b""
        if not data:
            self._loop.forget(self._launched.control)
            self._seen.exit_code = self._launched.wait()
            self.ended = True

    def _take_exits(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            report = messages.parse(message)
            if isinstance(report, messages.RankExit):
                self._seen.exits.append(report)

    def _read_log(self, rank: int, fd: int) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._keep_lines(rank, data)
        else:
            self._loop.forget(fd)
            self._open_logs.discard(fd)

    def _keep_lines(self, rank: int, data: bytes = b"", *, flush: bool = False) -> None:
        lines = self._numbering.flush(rank) if flush else self._numbering.feed(rank, data)
        self._last_lines[rank].extend(line.text for line in lines)
        self._logs.add(lines)

    # ---- what ranks are told

    def _tell(self, message: Message) -> None:
        if self._server is not None:
            self._server.broadcast(message)

    def _leader(self) -> Connection | None:
        connections = self._server.connections if self._server is not None else []
        return next((c for c in connections if c.greeted and c.rank == 0), None)

    def _waits_for_hello(self) -> bool:
        """A built-in trainer says hello as soon as its imports are done; a script may never do it."""
        return not self._seen.custom and self._leader() is None

    def _can_checkpoint(self) -> bool:
        leader = self._leader()
        return leader is not None and leader.can_checkpoint

    def _kill_what_is_left(self) -> None:
        if self._launched is not None and not self.ended:
            self._launched.process.kill()

    def _drain(self) -> None:
        """Read to the end what dead ranks left in sockets and pipes."""
        late: list[bool] = []
        self._loop.call_after(DRAIN_SECONDS, lambda: late.append(True))
        self._loop.run_until(lambda: bool(late) or (self.ended and not self._open_logs and not self._connections()))

    def _connections(self) -> list[Connection]:
        return self._server.connections if self._server is not None else []


def connections_for(world_size: int) -> int:
    """How many clients a channel serves: one of each rank, with room for data loaders that call the hooks too."""
    return 4 * world_size + 16


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since boot."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0
