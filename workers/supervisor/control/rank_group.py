"""The running ranks of an attempt: passes their messages on, and sends them commands."""

import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from app.domain.lifecycle.states import JobState
from app.host import processes
from trainyard.protocol import commands, message_parser, messages
from trainyard.protocol.channel import KEPT, PROXY_LISTENER, SESSIONS, LineDecoder, Message
from workers.prepare.prepare import PreparedAttempt
from workers.rank.agent import TEARDOWN_SECONDS
from workers.run_dir.layout import RunDirectory
from workers.sandbox.launcher import LaunchedRanks, LaunchPlan, launch
from workers.supervisor.interactive.sandbox_access import SandboxAccess
from workers.supervisor.model_requests.rank_requests import RankRequests
from workers.supervisor.ranks.channel_server import ChannelConnection, ChannelServer, connections_for
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.ranks.oom_kills import KillWatch, RecentKills
from workers.supervisor.ranks.rank_logs import READ_BYTES, RankLogs
from workers.supervisor.ranks.rank_reports import RankReports
from workers.supervisor.ranks.role_progress import NoRoles
from workers.supervisor.ranks.script_metrics import metrics_listener
from workers.supervisor.recording.checkpoint_store import CheckpointStore
from workers.supervisor.serving.replica import ServedReplica

log = logging.getLogger(__name__)

# The agent kills after the grace; after this margin it is not waited for.
KILL_MARGIN_SECONDS = 1.0
DRAIN_SECONDS = 2.0
# What the agent says of its sandbox, not of a rank; what comes with the first is served already.
OF_SANDBOX = (PROXY_LISTENER, SESSIONS, KEPT)
# To ranks a preemption is the same as a drain: save, and resume later.
SENT_AS = {"preempt": "requeue"}
OF_THE_TRAINING = (commands.Stop, commands.ForgetStop, commands.SaveCheckpoint)  # not of scripts beside it


class RankGroup:
    """Launched ranks; all methods run on the loop's thread."""

    def __init__(
        self,
        loop: EventLoop,
        run: RunDirectory,
        observed: Observations,
        *,
        reports: RankReports,
        checkpoints: CheckpointStore,
        logs: RankLogs,
        on_pause_failed: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._run = run
        self._observed = observed
        self._checkpoints = checkpoints
        self._logs = logs
        self._on_pause_failed = on_pause_failed
        self.replica: ServedReplica | None = None  # of a service, set before the launch; None: another kind of job
        self.model_requests: RankRequests | None = None  # of models, set before the launch
        self.access: SandboxAccess | None = None  # of people, set before the launch
        self.roles = NoRoles()  # a RoleProgress of a job that has some, set before the launch
        self._on_listener: Callable[[int], None] = os.close
        self._launched: LaunchedRanks | None = None
        self._server: ChannelServer | None = None
        self._decoder = LineDecoder()
        self._pending: list[commands.Command] = []  # for ranks that have not sent their hello yet
        self._memory_kills: KillWatch | None = None
        self._world_size = self._local_ranks = self._first_rank = 0
        self._leading_rank: int | None = 0
        self._can_be_asked = True
        self._pids: dict[int, int] = {}
        self._drained = False
        self._announced: bool | None = None
        self._pauses_failed = 0
        self.reports = reports
        self.write_stacks: set[int] = set()  # ranks that do so on request
        self.ended = False
        self.left_behind = False  # a process remains that can't be killed

    def launch(
        self,
        prepared: PreparedAttempt,
        *,
        metric_names: Sequence[str] = (),
        start: Callable[[LaunchPlan], LaunchedRanks] = launch,
        memory_kills: RecentKills | None = None,
        on_listener: Callable[[int], None] = os.close,
    ) -> None:
        """Start the ranks. Main thread only. ``metric_names`` are those of earlier attempts; ``on_listener`` takes over
        the descriptor of a socket that is to be served outside of the sandbox.
        """
        plan, self._on_listener = prepared.plan, on_listener
        self._world_size, self._local_ranks = plan.spec.world_size, plan.spec.local_ranks
        self._first_rank, self._leading_rank = plan.spec.first_rank, plan.spec.leading_rank
        self._observed.instances, self._observed.scripts = plan.spec.names, plan.spec.ranks_of_scripts
        self._can_be_asked = not (custom := self._observed.custom) or plan.spec.agree_on_stops
        self.reports.start_from(prepared.start.step, metric_names, prepared.redaction, custom=custom)
        self._server = ChannelServer(
            self._run.channel, self._loop, self._receive, max_connections=connections_for(self._local_ranks)
        )
        kills = RecentKills() if memory_kills is None else memory_kills  # before anything starts
        self._launched = launched = start(plan)
        self.roles.begin(launched.process.pid)
        self._memory_kills = KillWatch(kills, self._loop.call_after)
        self._loop.watch(launched.control, self._receive_from_agent)
        listener = metrics_listener(plan.spec, prepared.start.step, self.reports.overhear)
        self._logs.read_from(
            launched.log_fds,
            prepared.redaction,
            node_rank=plan.spec.node_rank,
            nodes=plan.spec.nodes,
            numbers=plan.spec.ranks,
            on_lines=listener if custom and self._first_rank == 0 else None,
        )
        if custom and self._first_rank == 0:
            self.reports.enter(JobState.TRAINING)

    @property
    def root_pid(self) -> int:
        """The process that all others of the attempt descend from; 0 before the launch."""
        return self._launched.process.pid if self._launched is not None else 0

    @property
    def pids(self) -> dict[int, int]:
        """Rank → pid of live ranks."""
        if not all(map(processes.state_of, self._pids.values())) or len(self._pids) < self._local_ranks:
            self._pids = processes.ranks_below(self.root_pid) if self.root_pid and not self.ended else {}
        return self._pids

    def restarted(self, ranks: Collection[int]) -> None:
        """These ranks were started again: what their former processes have said, or still say, does not count."""
        self._observed.forget_failures(ranks)
        if self._server is not None:
            self._server.disregard(ranks)

    def take_usage(self, values: Mapping[str, float]) -> None:
        """Report samples as metrics of the current step."""
        if not self.ended:
            self.reports.usage(values)

    def ask_to_stop(self, kind: str, *, save: bool, force: bool) -> bool:
        """Ask the ranks to stop together at a step boundary; False when this script can only be terminated.

        Asking again with ``force`` replaces an earlier stop by one that needs no checkpoint.
        """
        sent = SENT_AS.get(kind, kind)
        command = commands.Stop(sent, save, force=force, number=self._pauses_failed)
        if self._observed.kept:
            return False
        if self._waits_for_hello():
            self._pending.append(command)
            return True
        if not self._can_checkpoint():
            return False
        self._pending.append(command)  # for ranks that connect later: all must stop at the same boundary
        self._send(command)
        return True

    def forget_stop(self) -> None:
        """Give up the pause: ranks that have not stopped yet continue, including those that connect later."""
        command = commands.ForgetStop(self._pauses_failed)
        self._pauses_failed += 1
        self._pending = [command, *(each for each in self._pending if isinstance(each, commands.SaveCheckpoint))]
        self._send(command)

    def ask_for_checkpoint(self) -> None:
        """Ask the ranks to save now and continue, or as soon as the leader connects."""
        if not self._can_be_asked:
            return
        if self._leader() is None:
            self._pending.append(commands.SaveCheckpoint())
        else:
            self._send(commands.SaveCheckpoint())

    def ask_for_stacks(self) -> None:
        """Ask the ranks to write their stacks."""
        self._send(commands.WriteStacks())

    def answer(self, outcome: commands.Answer) -> None:
        """Send the answer to a checkpoint."""
        self.reports.steps.answered(time.monotonic())
        self._send(outcome)

    def answer_adapter(self, answer: commands.AdapterAnswer) -> None:
        """Send the answer to a request for an adapter."""
        self.reports.steps.answered(time.monotonic())
        self._send(answer)

    def tell_agent(self, message: Message) -> None:
        """On the loop's thread; unless it has ended or was not started."""
        if self._launched is not None and not self.ended:
            self._launched.send(message)

    def terminate(self, grace_seconds: float) -> None:
        """SIGTERM, after the grace SIGKILL."""
        if self.ended:
            return  # they ended by themselves
        self._observed.terminated = True
        self._observed.ends(time.monotonic())
        if self._launched is not None:
            self._launched.stop(grace_seconds)
            self._loop.call_after(grace_seconds + KILL_MARGIN_SECONDS, self._kill_what_is_left)

    def kill(self, patience: Callable[[], float]) -> None:
        """Kill all processes; one that hangs in the kernel is left behind after ``patience()`` seconds.

        ``patience`` is evaluated again after each try. The lease is held until then.
        """
        if self.replica is not None:
            self.replica.close(hurries=patience() == 0)
        if self.model_requests is not None:
            self.model_requests.close()
        self.roles.close()
        began = time.monotonic()
        while self._launched is not None and not self.left_behind and not self._launched.kill(root_pid=os.getpid()):
            log.error("a process of the attempt can't be killed")
            self.left_behind = time.monotonic() - began >= patience()
        if self.access is not None:
            self.access.close(hurries=self.left_behind)

    def end(self, patience: Callable[[], float]) -> None:
        """Kill remaining processes, as ``kill`` does, then handle the messages that they left."""
        self.kill(patience)
        if self._launched is None or self._drained:
            return
        self._drained = True
        self._count_memory_kills()
        self._drain()
        self._logs.close()
        self._loop.forget(self._launched.control)
        self._launched.control.close()
        if self._server is not None:
            self._server.close()
        self._observed.last_lines = self._logs.last_lines

    def _receive(self, connection: ChannelConnection, message: Message) -> None:
        try:
            report = message_parser.parse(message)
        except message_parser.BadMessage as error:
            if self._server is not None:
                self._server.complain(f"skipped a {message['type']!r:.40} of rank {connection.rank}: {error}")
            return
        if isinstance(report, messages.CheckpointReady) and report.kept:
            # Its metrics come from the output. It does not show that the script uses the hooks or makes progress.
            self._checkpoints.offer(replace(report, metrics=dict(self.reports.final_metrics)))
            self.reports.reached(report.step)
            return
        self._observed.has_connected |= self.roles.speaks(message.get("rank", 0))
        if isinstance(report, messages.Hello):
            self._greet(connection, report)
        elif isinstance(report, messages.Failure):
            self._record_failure(report)
        elif isinstance(report, messages.AskModel):
            if self.model_requests is not None:
                self.model_requests.ask(connection, report)
        elif message.get("rank", 0) == 0:
            self._take_from_leader(report)
        elif isinstance(report, messages.MetricPoint) and (role := self.roles.led_by(message.get("rank"))) is not None:
            self.reports.metrics_of_role(role, report)

    def _record_failure(self, failure: messages.Failure) -> None:
        """Keep the first failure of each rank: later ones follow from it, or are a flood."""
        known = {each.rank for each in self._observed.reported}
        if failure.rank < self._world_size and failure.rank not in known:
            self._observed.reported.append(failure)
            self._observed.ends(time.monotonic())

    def _greet(self, connection: ChannelConnection, hello: messages.Hello) -> None:
        connection.rank = hello.rank
        connection.can_checkpoint = hello.can_checkpoint and self._can_be_asked
        if hello.dumps and hello.rank < self._world_size:
            self.write_stacks.add(hello.rank)
        for command in self._pending if not connection.greeted and hello.rank not in self._observed.scripts else []:
            connection.send(commands.to_message(command))
        connection.greeted = True
        self._announce_saving()

    def _announce_saving(self) -> None:
        """At most twice an attempt, first no and then yes: a rank may send any number of hellos."""
        leader = self._leader()
        if self._first_rank > 0:
            return  # the first node reports it
        if leader is not None and self._announced is not True and leader.can_checkpoint is not self._announced:
            self._announced = leader.can_checkpoint
            self.reports.saves_on_request(can=leader.can_checkpoint)

    def _take_from_leader(self, report: messages.Report) -> None:
        if isinstance(report, messages.CheckpointReady):
            self._logs.catch_up()
            self.reports.steps.offered(time.monotonic())
            self._checkpoints.offer(replace(report, metrics=self.reports.masked(report.metrics)))
            self.reports.reached(report.step)
        elif isinstance(report, messages.Result):
            self.reports.steps.ended(time.monotonic())
            self._observed.result = replace(report, final_metrics=self.reports.masked(report.final_metrics))
        elif isinstance(report, messages.FetchAdapter):
            self.reports.steps.offered(time.monotonic())
            self._fetch_adapter(report)
        elif isinstance(report, messages.PauseFailed):
            # The failure of a pause that was given up meanwhile does not concern the next one.
            if report.number is None or report.number >= self._pauses_failed:
                self._on_pause_failed(report.message)
        else:
            self.reports.take(report)

    def _fetch_adapter(self, request: messages.FetchAdapter) -> None:
        if self.replica is None:
            self.answer_adapter(commands.AdapterRefused(request.name, "only replicas of services load adapters"))
        else:
            self.replica.fetch(request)

    def _receive_from_agent(self) -> None:
        if self._launched is None or self.ended:
            return
        try:
            data, files, _, _ = socket.recv_fds(self._launched.control, READ_BYTES, 1)
            for listener in files:
                self._on_listener(listener)
            self._take_exits(data)
        except OSError:
            data = b""
        except (ValueError, RecursionError) as error:
            # ProtocolError or BadMessage: the sender is not our agent any more.
            log.warning("the agent's channel is broken: %s", error)
            data = b""
        if not data:
            self._loop.forget(self._launched.control)
            self._count_memory_kills()
            self._observed.exit_code = self._launched.wait()
            if self._observed.detect_seconds is None:
                self._observed.detect_seconds = 0.0  # the kernel closed the socket when the last rank ended
            self.ended = True

    def _take_exits(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            if message.get("type") in OF_SANDBOX:
                if self.access is not None:
                    self.access.take(message)
                continue
            if self.roles.take(message):
                continue
            report = message_parser.parse(message)
            if isinstance(report, messages.RankExit):
                self._observed.exits.append(report)
                self.roles.exited(report.rank)
                if report.exit_code != 0:
                    self._count_memory_kills()
                    self._observed.ends(time.monotonic() if report.at is None else report.at)
                if report.exit_code != 0 and not self._observed.terminated:
                    # The agent ends the others, and waits forever for one that can't be killed.
                    self._loop.call_after(TEARDOWN_SECONDS + KILL_MARGIN_SECONDS, self._kill_after_teardown)
                if report.exit_code != 0 and self._observed.detect_seconds is None and report.at is not None:
                    self._observed.detect_seconds = max(0.0, time.monotonic() - report.at)

    def _count_memory_kills(self) -> None:
        number = self._memory_kills.take() if self._memory_kills is not None else None
        if number is not None:
            self._observed.out_of_memory_kills = number
            if self._launched is not None:
                self._observed.exceeded_memory_mb = self._launched.exceeded_memory_mb

    def _send(self, command: commands.Command) -> None:
        if self._server is not None:
            beside = self._observed.scripts if isinstance(command, OF_THE_TRAINING) else ()
            self._server.broadcast(commands.to_message(command), but_for=beside)

    def _leader(self) -> ChannelConnection | None:
        connections = self._server.connections if self._server is not None else []
        return next((c for c in connections if c.greeted and c.rank == self._leading_rank), None)

    def _waits_for_hello(self) -> bool:
        """A built-in trainer sends its hello after its imports; a script that never did so may never do it."""
        may_save = not self._observed.custom or (self._observed.saved_before and self._can_be_asked)
        return may_save and self._leader() is None

    def _can_checkpoint(self) -> bool:
        return (leader := self._leader()) is not None and leader.can_checkpoint

    def _kill_after_teardown(self) -> None:
        if not self._observed.terminated and not self._observed.kept:  # else their grace is running
            self._kill_what_is_left()

    def _kill_what_is_left(self) -> None:
        if self._launched is not None and not self.ended:
            self._launched.process.kill()

    def _drain(self) -> None:
        """Read what ended ranks left in sockets and pipes."""
        late: list[bool] = []
        self._logs.hurry()
        self._loop.call_after(DRAIN_SECONDS, lambda: late.append(True))
        self._loop.run_until(lambda: bool(late) or (self.ended and self._logs.are_closed and not self._connections()))

    def _connections(self) -> list[ChannelConnection]:
        return self._server.connections if self._server is not None else []
