"""The running ranks of an attempt: what they say is passed on, and what is wished is told them."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from app.domain.lifecycle.states import JobState
from app.host import processes
from trainyard.protocol import messages
from trainyard.protocol.channel import LineDecoder, Message
from trainyard.protocol.commands import (
    Answer,
    Command,
    ForgetStop,
    SaveCheckpoint,
    Stop,
    WriteStacks,
    to_message,
)
from trainyard.protocol.run_spec import RunSpec
from workers.prepare.prepare import Prepared
from workers.rank.agent import TEARDOWN_SECONDS
from workers.run_dir.layout import RunDirectory
from workers.sandbox.launcher import Launched, LaunchPlan, launch
from workers.supervisor.ranks.channel_server import ChannelServer, Connection
from workers.supervisor.ranks.event_loop import MainLoop
from workers.supervisor.ranks.observations import Sightings
from workers.supervisor.ranks.oom_kills import LOOK_SECONDS, RecentKills
from workers.supervisor.ranks.rank_logs import READ_BYTES, Heed, RankLogs
from workers.supervisor.ranks.rank_reports import RankReports
from workers.supervisor.ranks.script_metrics import ScriptMetrics
from workers.supervisor.recording.checkpoint_store import CheckpointStore

log = logging.getLogger(__name__)

# The agent kills after the grace; beyond this nothing of it can be waited for.
KILL_MARGIN_SECONDS = 1.0
DRAIN_SECONDS = 2.0
# To ranks a preemption is the same as a drain: save, and go on another time.
TOLD_AS = {"preempt": "requeue"}


class Ranks:
    """Launched ranks; all methods belong to the loop's thread."""

    def __init__(
        self,
        loop: MainLoop,
        run: RunDirectory,
        seen: Sightings,
        *,
        reports: RankReports,
        checkpoints: CheckpointStore,
        logs: RankLogs,
        on_pause_failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._run = run
        self._seen = seen
        self._checkpoints = checkpoints
        self._logs = logs
        self._on_pause_failed = on_pause_failed
        self._launched: Launched | None = None
        self._server: ChannelServer | None = None
        self._decoder = LineDecoder()
        self._pending: list[Command] = []  # for ranks that have not said hello yet
        self._memory_kills: RecentKills | None = None  # until the first rank has broken
        self._world_size = self._local_ranks = 0
        self._first_rank = 0
        self._can_be_asked = True
        self._pids: dict[int, int] = {}
        self._heard_out = False
        self._told_saving: bool | None = None
        self._pauses_failed = 0
        self.reports = reports
        self.write_stacks: set[int] = set()  # ranks that do so when they are asked
        self.ended = False
        self.left_behind = False  # a process is there that nothing can end

    def launch(
        self, prepared: Prepared, *, metric_names: Sequence[str] = (),
        start: Callable[[LaunchPlan], Launched] = launch, memory_kills: RecentKills | None = None,
    ) -> None:  # fmt: skip
        """Start the ranks. Main thread only. ``metric_names`` are those of earlier attempts."""
        plan = prepared.plan
        self._world_size, self._local_ranks = plan.spec.world_size, plan.spec.local_ranks
        self._first_rank = plan.spec.first_rank
        # A script's ranks agree on the step for a stop by files, which several nodes do not share.
        self._can_be_asked = not self._seen.custom or plan.spec.nodes == 1
        self.reports.start_from(prepared.start.step, metric_names, prepared.redaction)
        self._server = ChannelServer(
            self._run.channel, self._loop, self._hear, max_connections=connections_for(self._local_ranks)
        )
        self._memory_kills = RecentKills() if memory_kills is None else memory_kills
        self._launched = launched = start(plan)
        self._loop.call_after(LOOK_SECONDS, self._look_for_memory_kills)
        self._loop.watch(launched.control, self._hear_agent)
        self._logs.read_from(
            launched.log_fds, prepared.redaction, node_rank=plan.spec.node_rank, nodes=plan.spec.nodes,
            heed=self._overhearing(plan.spec, prepared.start.step),
        )  # fmt: skip
        if self._seen.custom and self._first_rank == 0:
            self.reports.enter(JobState.TRAINING)

    def _overhearing(self, spec: RunSpec, start_step: int) -> Heed | None:
        """What takes the metrics of the first rank's lines; None when the job has no patterns for them."""
        if not self._seen.custom or self._first_rank > 0:
            return None
        config = spec.training_config["framework"].get("config") or {}
        printed = ScriptMetrics(config, start_step)
        if not printed.wants_lines:
            return None

        def heed(lines: list[str]) -> None:
            for report in printed.read(lines):
                self.reports.overhear(report)

        return heed

    @property
    def root_pid(self) -> int:
        """Everything of the attempt is this process or below it; 0 before the launch."""
        return self._launched.process.pid if self._launched is not None else 0

    @property
    def pids(self) -> dict[int, int]:
        """Rank → pid, of those that live."""
        if not all(map(processes.state_of, self._pids.values())) or len(self._pids) < self._local_ranks:
            self._pids = processes.ranks_below(self.root_pid) if self.root_pid and not self.ended else {}
        return self._pids

    def take_usage(self, values: Mapping[str, float]) -> None:
        """Report what was sampled as metrics of the current step."""
        if not self.ended:
            self.reports.usage(values)

    def ask_to_stop(self, kind: str, *, save: bool, force: bool) -> bool:
        """Have the ranks stop together at a step boundary; False when this script can't be asked, only ended.

        Asking again with ``force`` makes a stop that was asked for before one that needs no checkpoint.
        """
        told = TOLD_AS.get(kind, kind)
        command = Stop(told, save, force=force, number=self._pauses_failed)
        if self._waits_for_hello():
            self._pending.append(command)
            return True
        if not self._can_checkpoint():
            return False
        self._pending.append(command)  # for ranks that connect later: all must stop at the same boundary
        self._tell(command)
        return True

    def forget_stop(self) -> None:
        """The pause is given up: ranks that have not stopped for it yet go on, also those that connect later."""
        command = ForgetStop(self._pauses_failed)
        self._pauses_failed += 1
        self._pending = [command, *(each for each in self._pending if isinstance(each, SaveCheckpoint))]
        self._tell(command)

    def ask_for_checkpoint(self) -> None:
        """Have them save now and go on, or as soon as the first one listens."""
        if not self._can_be_asked:
            return
        if self._leader() is None:
            self._pending.append(SaveCheckpoint())
        else:
            self._tell(SaveCheckpoint())

    def ask_for_stacks(self) -> None:
        """Have them write down where they are."""
        self._tell(WriteStacks())

    def answer(self, outcome: Answer) -> None:
        """Pass on what became of a checkpoint."""
        self.reports.steps.answered(time.monotonic())
        self._tell(outcome)

    def terminate(self, grace_seconds: float) -> None:
        """SIGTERM, after the grace SIGKILL."""
        if self.ended:
            return  # how they ended is known, and was not our doing
        self._seen.terminated = True
        self._seen.ends(time.monotonic())
        if self._launched is not None:
            self._launched.stop(grace_seconds)
            self._loop.call_after(grace_seconds + KILL_MARGIN_SECONDS, self._kill_what_is_left)

    def kill(self, patience: Callable[[], float]) -> None:
        """Make sure that no process is left, but for one that hangs in the kernel: that is left behind after a while.

        ``patience``: how many seconds that is, asked again and again. Until then the lease stays ours.
        """
        began = time.monotonic()
        while self._launched is not None and not self.left_behind and not self._launched.kill(root_pid=os.getpid()):
            log.error("a process of the attempt can't be killed")
            self.left_behind = time.monotonic() - began >= patience()

    def end(self, patience: Callable[[], float]) -> None:
        """Kill what is left, as ``kill`` does, then hear what they still said."""
        self.kill(patience)
        if self._launched is None or self._heard_out:
            return
        self._heard_out = True
        self._count_memory_kills()
        self._drain()
        self._logs.close()
        self._loop.forget(self._launched.control)
        self._launched.control.close()
        if self._server is not None:
            self._server.close()
        self._seen.last_lines = self._logs.last_lines

    # ---- what ranks say

    def _hear(self, connection: Connection, message: Message) -> None:
        try:
            report = messages.parse(message)
        except messages.BadMessage as error:
            if self._server is not None:
                self._server.complain(f"skipped a {message['type']!r:.40} of rank {connection.rank}: {error}")
            return
        if isinstance(report, messages.CheckpointReady) and report.kept:
            # Of its metrics all that is known was overheard. That the script speaks, or is at work, it does not say.
            self._checkpoints.offer(replace(report, metrics=dict(self.reports.final_metrics)))
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
            self._seen.ends(time.monotonic())

    def _greet(self, connection: Connection, hello: messages.Hello) -> None:
        connection.rank = hello.rank
        connection.can_checkpoint = hello.can_checkpoint and self._can_be_asked
        if hello.dumps and hello.rank < self._world_size:
            self.write_stacks.add(hello.rank)
        for command in self._pending if not connection.greeted else []:
            connection.send(to_message(command))
        connection.greeted = True
        self._tell_whether_it_saves()

    def _tell_whether_it_saves(self) -> None:
        """At most twice an attempt, first no and then yes: a rank may say hello a thousand times a second."""
        leader = self._leader()
        if self._first_rank > 0:
            return  # the first node says it
        if leader is not None and self._told_saving is not True and leader.can_checkpoint is not self._told_saving:
            self._told_saving = leader.can_checkpoint
            self.reports.saves_on_request(can=leader.can_checkpoint)

    def _take_from_leader(self, report: messages.Report) -> None:
        if isinstance(report, messages.CheckpointReady):
            self.reports.steps.offered(time.monotonic())
            self._checkpoints.offer(replace(report, metrics=self.reports.masked(report.metrics)))
        elif isinstance(report, messages.Result):
            self.reports.steps.ended(time.monotonic())
            self._seen.result = replace(report, final_metrics=self.reports.masked(report.final_metrics))
        elif isinstance(report, messages.PauseFailed):
            # One that was given up meanwhile says nothing of the pause after it.
            if report.number is None or report.number >= self._pauses_failed:
                self._on_pause_failed(report.message)
        else:
            self.reports.take(report)

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
            self._count_memory_kills()
            self._seen.exit_code = self._launched.wait()
            if self._seen.detect_seconds is None:
                self._seen.detect_seconds = 0.0  # the kernel closed it as the last of them ended
            self.ended = True

    def _take_exits(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            report = messages.parse(message)
            if isinstance(report, messages.RankExit):
                self._seen.exits.append(report)
                if report.exit_code != 0:
                    self._count_memory_kills()
                    self._seen.ends(time.monotonic() if report.at is None else report.at)
                if report.exit_code != 0 and not self._seen.terminated:
                    # The agent ends the others, and waits for ever for one that nothing ends.
                    self._loop.call_after(TEARDOWN_SECONDS + KILL_MARGIN_SECONDS, self._kill_after_teardown)
                if report.exit_code != 0 and self._seen.detect_seconds is None and report.at is not None:
                    self._seen.detect_seconds = max(0.0, time.monotonic() - report.at)

    def _look_for_memory_kills(self) -> None:
        if self._memory_kills is not None:
            self._memory_kills.look()
            self._loop.call_after(LOOK_SECONDS, self._look_for_memory_kills)

    def _count_memory_kills(self) -> None:
        """Once, when the first rank has broken: what comes later is not its cause."""
        if self._memory_kills is not None:
            self._seen.out_of_memory_kills = self._memory_kills.number
            self._memory_kills = None

    # ---- what ranks are told

    def _tell(self, command: Command) -> None:
        if self._server is not None:
            self._server.broadcast(to_message(command))

    def _leader(self) -> Connection | None:
        connections = self._server.connections if self._server is not None else []
        return next((c for c in connections if c.greeted and c.rank == self._first_rank), None)

    def _waits_for_hello(self) -> bool:
        """A built-in trainer says hello as soon as its imports are done; a script that never did may never do it."""
        may_save = not self._seen.custom or (self._seen.said_to_save and self._can_be_asked)
        return may_save and self._leader() is None

    def _can_checkpoint(self) -> bool:
        leader = self._leader()
        return leader is not None and leader.can_checkpoint

    def _kill_after_teardown(self) -> None:
        if not self._seen.terminated:  # else they have the grace that was given to them
            self._kill_what_is_left()

    def _kill_what_is_left(self) -> None:
        if self._launched is not None and not self.ended:
            self._launched.process.kill()

    def _drain(self) -> None:
        """Read to the end what dead ranks left in sockets and pipes."""
        late: list[bool] = []
        self._loop.call_after(DRAIN_SECONDS, lambda: late.append(True))
        self._loop.run_until(lambda: bool(late) or (self.ended and self._logs.are_closed and not self._connections()))

    def _connections(self) -> list[Connection]:
        return self._server.connections if self._server is not None else []


def connections_for(world_size: int) -> int:
    """How many clients a channel serves: one of each rank, with room for data loaders that call the hooks too."""
    return 4 * world_size + 16
