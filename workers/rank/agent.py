"""The first process inside the sandbox: starts the ranks of this node, watches them, and ends when they have ended.

It speaks JSON lines with the supervisor's launcher over an inherited socket (``--control-fd``), which user code never
gets: ``start {environment}``, ``stop {grace_seconds}``, ``open_sessions {notebook}`` and ``release`` downward,
``rank_exit {rank, exit_code, signal}``, ``sessions {message}`` and ``kept`` upward. When that socket closes the
supervisor is dead, and so is everything here. Standard library and ``trainyard`` only.
"""

import argparse
import contextlib
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from app.host.landlock import stay_below
from app.host.privacy import hide_from_same_user
from app.host.processes import adopt_orphans, block_signal, descendants, die_with_parent, kill
from trainyard.protocol.channel import (
    KEPT,
    OPEN_SESSIONS,
    PROXY_LISTENER,
    RELEASE,
    SESSIONS,
    LineDecoder,
    Message,
    encode,
)
from trainyard.protocol.messages import RankExit, fields_of
from trainyard.protocol.role_messages import to_message
from trainyard.protocol.run_spec import RunSpec
from workers.rank import mpi
from workers.rank.environment import own_python, rank_command, rank_environment
from workers.rank.keeping import Keeping
from workers.rank.rank_process import ForkRank, as_rank, starter
from workers.rank.resource_limits import limit_resources
from workers.rank.role_processes import RoleProcesses
from workers.rank.role_ranks import RoleRanks
from workers.rank.session_host import SessionHost

# After a rank failed the others get this long to end; with the SIGKILL after it all have ended within 5 s.
TEARDOWN_SECONDS = 3.0
EXIT_STOPPED, NOT_EXECUTABLE, NOT_FOUND = 143, 126, 127  # as of shells
# Below the kernel's range for outgoing connections, so that none of those occupies the port when rank 0 binds it.
PORTS = (20000, 32000)
LOOPBACK = "127.0.0.1"
PROXY_BACKLOG = 128


def main() -> int:
    """Run the ranks that the spec describes; 0 only if each of them exited with 0."""
    arguments = _arguments()
    logs = [int(fd) for fd in arguments.log_fds.split(",")]
    if arguments.die_with:
        die_with_parent(arguments.die_with)
    else:  # what gets out of the mounts opens no file
        stay_below(Path("/"), outputs=logs, required=RunSpec.read(arguments.spec).locked)
    return run(Path(arguments.spec), logs, arguments.control_fd)


def run(spec_path: Path, log_fds: list[int], control_fd: int, *, fork_rank: ForkRank | None = None) -> int:
    """As ``main``; ranks of built-in trainers are forked if ``fork_rank`` can do it."""
    control = socket.socket(fileno=control_fd)
    adopt_orphans()
    spec = RunSpec.read(spec_path)
    limit_resources(spec.resource_limits)
    if spec.launcher != mpi.MPI:  # whose ranks open their logs through the descriptors of this process
        hide_from_same_user()  # a rank could take the supervisor's socket
    agent = RankAgent(spec, spec_path, log_fds, control, fork_rank)
    try:
        return agent.run()
    finally:
        kill(descendants(os.getpid()))


class RankAgent:
    """The ranks of one attempt on this node."""

    def __init__(
        self,
        spec: RunSpec,
        spec_path: Path,
        log_fds: list[int],
        control: socket.socket,
        fork_rank: ForkRank | None = None,
    ) -> None:
        self._fork_rank = fork_rank
        self._spec = spec
        self._spec_path = spec_path
        self._log_fds = log_fds
        self._control = control
        self._decoder = LineDecoder()
        self._early: list[Message] = []  # commands that came with the start message
        self._ranks: dict[int, int] = {}  # pid → rank, of live ranks
        self._ended: set[int] = set()
        self._mpirun: mpi.Mpirun | None = None  # as long as it runs
        self._following: set[int] = set()  # ranks that mpirun ends because another has failed
        self._mpi_nodes: mpi.MpiNodes | None = None  # of a job that mpirun starts on several
        self._role_environments: Mapping[str, Mapping[str, str]] = {}
        self._roles: RoleRanks | None = None  # of a job whose ranks run different programs
        self._collector = 0  # pid of workers.rank.script_checkpoints, while it runs
        self._exit_code = 0
        self._kill_at: float | None = None
        self._environments: dict[int, dict[str, str]] = {}  # rank → variables, of ranks on this node
        self._sessions = SessionHost(spec)
        self._keeping = Keeping(spec.keep_seconds, lambda: self._send({"type": KEPT}))

    def run(self) -> int:
        """Wait for the start message, then for the end of all ranks or a stop message."""
        with _wakeup_on_signals() as wakeup, selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(wakeup, selectors.EVENT_READ)
            environment = self._environment_from_supervisor()
            if self._spec.proxy_port:
                self._offer_proxy_listener()
            self._start_ranks(environment)
            self._apply(self._early)
            if self._mpirun is not None:
                selector.register(self._mpirun.reports, selectors.EVENT_READ)
            while self._has_ranks or self._collector or self._keeping.stays(self._exit_code):
                for key, _ in selector.select(self._seconds_to_wait()):
                    if key.fileobj is wakeup:
                        self._take_signals(wakeup)
                    elif key.fileobj is self._control:
                        self._apply(self._received())
                self._take_mpi_messages()
                self._collect_exits()
                if self._roles is not None:
                    self._roles.work()
                if not self._has_ranks and self._collector:
                    kill([self._collector], signal.SIGTERM)
                if (self._has_ranks or self._collector) and self._seconds_until_kill() == 0:
                    kill(self._keeping.without_people(descendants(os.getpid()), self._sessions.pid))
        return self._exit_code

    def _offer_proxy_listener(self) -> None:
        """Listen where the ranks expect a proxy. A socket stays in the network in which it was made."""
        with socket.create_server((LOOPBACK, self._spec.proxy_port), backlog=PROXY_BACKLOG) as listener:
            message = encode({"type": PROXY_LISTENER})
            with contextlib.suppress(OSError):  # a closed socket is detected where commands are read
                socket.send_fds(self._control, [message], [listener.fileno()])

    def _environment_from_supervisor(self) -> dict[str, str]:
        """Receive the job's variables; this process itself must not run under them."""
        while not (messages := self._received()):
            pass
        start, *self._early = messages
        if start["type"] != "start":
            raise SystemExit(EXIT_STOPPED)
        self._role_environments = start.get("roles", {})
        self._mpi_nodes = mpi.MpiNodes.from_message(start.get("mpi"))
        return dict(start["environment"])

    def _start_ranks(self, job_environment: Mapping[str, str]) -> None:
        if self._spec.instances:
            self._start_roles(job_environment)
            return
        gang = self._spec.gang
        place = (gang.address, gang.port) if gang is not None else (LOOPBACK, free_port())
        environments = [
            rank_environment(self._spec, self._spec_path, local_rank, place, job_environment)
            for local_rank in range(self._spec.local_ranks)
        ]
        self._environments = dict(enumerate(environments, self._spec.first_rank))
        if self._spec.checkpoint_glob and self._spec.node_rank == 0:
            self._collector = self._spawn_collector()
        directory = Path(self._spec.directory)
        if self._spec.launcher == mpi.MPI:
            # One command for all: references to a rank's own number are those of the first.
            command, parent = rank_command(self._spec, self._spec_path, environments[0]), os.getpid()
            self._mpirun = mpi.Mpirun(
                self._spec, command, environments, self._log_fds, self._mpi_nodes, prepare=lambda: as_rank(parent)
            )
            return  # the ranks open their logs through this process's descriptors
        start = starter(self._fork_rank, [job_environment])
        for local_rank, environment in enumerate(environments):
            command, log = rank_command(self._spec, self._spec_path, environment), self._log_fds[local_rank]
            try:
                pid = start(self._spec, command, directory, log, environment)
            except OSError as error:
                self._not_started(self._spec.first_rank + local_rank, log, error)
                break
            self._ranks[pid] = self._spec.first_rank + local_rank
        for fd in self._log_fds:
            os.close(fd)

    def _start_roles(self, job_environment: Mapping[str, str]) -> None:
        """Start the instances of roles that wait for no other; the logs stay open for those that start later."""
        if self._spec.checkpoint_glob and self._spec.node_rank == 0:
            self._collector = self._spawn_collector()
        environments = {name: self._role_environments.get(name, job_environment) for name in self._spec.role_names}
        start = starter(self._fork_rank, environments.values())
        processes = RoleProcesses(
            self._spec, self._spec_path, self._log_fds, environments, self._ranks, start, self._not_started
        )
        self._environments = processes.environments()
        self._roles = RoleRanks(
            self._spec,
            processes.actions(lambda report: self._send(to_message(report))),
            teardown_seconds=TEARDOWN_SECONDS,
        )
        self._roles.begin()

    def _not_started(self, rank: int, log: int, error: OSError) -> None:
        """End all, with the exit code that a shell would have."""
        os.write(log, f"{error.filename}: {error.strerror}: the rank can't be started\n".encode())
        self._rank_ended(rank, NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE, time.monotonic())

    @property
    def _has_ranks(self) -> bool:
        is_busy = self._roles is not None and self._roles.is_busy
        return bool(self._ranks) or self._mpirun is not None or is_busy

    def _spawn_collector(self) -> int:
        parent = os.getpid()

        def prepare() -> None:
            as_rank(parent)
            block_signal(signal.SIGTERM)  # until its handler is set: a script may end before

        process = subprocess.Popen(
            [*own_python(self._spec), "-m", "workers.rank.script_checkpoints", "--spec", str(self._spec_path)],
            cwd=self._spec.run_dir,
            stdin=subprocess.DEVNULL,
            stdout=self._log_fds[0],
            stderr=self._log_fds[0],
            preexec_fn=prepare,  # noqa: PLW1509
        )
        process.returncode = 0  # collected with all others
        return process.pid

    def _received(self) -> list[Message]:
        data = self._control.recv(65536)
        if not data:
            kill(descendants(os.getpid()))
            raise SystemExit("the supervisor is gone")
        return self._decoder.feed(data)

    def _apply(self, commands: list[Message]) -> None:
        for message in commands:
            if message["type"] == "stop":
                self._keeping.is_over = True
                self._stop(float(message["grace_seconds"]), EXIT_STOPPED)
            elif message["type"] == OPEN_SESSIONS:
                self._open_sessions(message.get("notebook"))
            elif message["type"] == RELEASE:
                self._keeping.is_over = True
            elif self._roles is not None:
                self._roles.apply(message)

    def _open_sessions(self, notebook: Mapping[str, str] | None) -> None:
        refused = ""
        try:
            self._sessions.open(self._environments, notebook)
        except OSError as error:
            refused = f"the session server can't be started: {error.strerror or error}"
        self._send({"type": SESSIONS, "message": refused})

    def _take_signals(self, wakeup: socket.socket) -> None:
        if signal.SIGTERM in wakeup.recv(4096):
            self._keeping.is_over = True
            self._stop(TEARDOWN_SECONDS, EXIT_STOPPED)

    def _stop(self, grace_seconds: float, exit_code: int) -> None:
        self._exit_code = self._exit_code or exit_code
        due = time.monotonic() + grace_seconds
        self._kill_at = due if self._kill_at is None else min(due, self._kill_at)
        if self._roles is not None:
            self._roles.stop()
        kill(self._ranks, signal.SIGTERM)

    def _seconds_until_kill(self) -> float | None:
        return None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())

    def _seconds_to_wait(self) -> float | None:
        if not self._has_ranks and not self._collector:
            return self._keeping.seconds_left()
        of_roles = self._roles.seconds_left() if self._roles is not None else None
        return min((each for each in (self._seconds_until_kill(), of_roles) if each is not None), default=None)

    def _collect_exits(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # mpirun's ranks may be reaped by their own parent, which was killed
                self._ranks.clear()
                self._collector = 0
                return
            if pid == 0:
                return
            if pid == self._sessions.pid:
                self._sessions.ended()
                continue
            code = os.waitstatus_to_exitcode(status)
            rank = self._ranks.pop(pid, None)
            if rank is not None:
                self._rank_ended(rank, code, time.monotonic())
            elif pid == self._collector:
                self._collector = 0
            elif self._mpirun is not None and pid == self._mpirun.pid:
                self._take_mpi_messages()
                self._mpirun_ended(code)

    def _take_mpi_messages(self) -> None:
        for message in self._mpirun.messages() if self._mpirun is not None else ():
            if message["type"] == "rank_started":
                self._ranks[message["pid"]] = message["rank"]
                if self._kill_at is not None:  # it started while the others were being stopped
                    kill([message["pid"]], signal.SIGTERM)
            elif message["type"] == "rank_follows":
                self._following.add(message["rank"])
            else:
                self._ranks = {pid: rank for pid, rank in self._ranks.items() if rank != message["rank"]}
                self._rank_ended(message["rank"], message["code"], message["at"])

    def _mpirun_ended(self, code: int) -> None:
        """Report ranks that mpirun did not start or that ended with it; usually it ends last."""
        if self._mpirun is not None:
            self._mpirun.close()
        self._mpirun = None
        for rank in self._spec.ranks:
            if rank not in self._ended and code != 0:
                self._rank_ended(rank, code, time.monotonic())
        # For example of a rank that exited with 0, but without MPI_Finalize.
        self._exit_code = self._exit_code or (128 - code if code < 0 else code)

    def _rank_ended(self, rank: int, code: int, at: float) -> None:
        if rank in self._ended:  # mpirun's ranks may be reported twice
            return
        if self._roles is not None and self._roles.took(rank, code):
            return
        self._ended.add(rank)
        name, follows = signal_name(-code) if code < 0 else None, rank in self._following
        ended = RankExit(rank=rank, exit_code=128 - code if code < 0 else code, signal=name, at=at, follows=follows)
        self._send({"type": ended.type, "rank": rank, **fields_of(ended)})
        if code != 0 and self._kill_at is None:
            self._following |= set(self._spec.ranks) if follows else set()
            self._stop(TEARDOWN_SECONDS, code if code > 0 else 128 - code)

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # a closed socket is detected where commands are read
            self._control.sendall(encode(message))


def signal_name(number: int) -> str:
    """SIGKILL for 9; real-time signals have no names of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def free_port() -> int:
    """A TCP port that is free now."""
    while True:
        port = random.randrange(*PORTS)  # noqa: S311 – spreads jobs, hides nothing
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


@contextlib.contextmanager
def _wakeup_on_signals() -> Iterator[socket.socket]:
    """A socket that gets a byte for each SIGCHLD and SIGTERM."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer.fileno())
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(-1)
        reader.close()
        writer.close()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers.rank.agent", description=__doc__)
    parser.add_argument("--spec", required=True)
    parser.add_argument("--log-fds", required=True, help="write ends of the ranks' log pipes, in rank order")
    parser.add_argument("--control-fd", required=True, type=int)
    parser.add_argument("--die-with", type=int, default=0, help="pid of the supervisor; without a sandbox only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
