"""The supervisor's side of the ranks: starts the sandbox with its pipes, stops it, and kills what is left."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import termios
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.host import processes
from trainyard.protocol.channel import Message, encode
from trainyard.protocol.run_spec import RunSpec
from workers.rank.environment import own_python
from workers.rank.mpi import MpiNodes
from workers.rank.spec_sections import training_config
from workers.sandbox.control_groups import ControlGroup, GroupLimits, Hierarchies, joining
from workers.sandbox.cores import OwnCores
from workers.sandbox.forked_launch import AGENT, Forked, launch_forked
from workers.sandbox.node_python import CODE
from workers.sandbox.own_user import OwnUser
from workers.sandbox.sandbox import BUBBLEWRAP, PROCESS, Sandbox
from workers.sandbox.spec import Account, FilesystemView, SandboxSpec

PIPE_BYTES = 1 << 20  # a rank with much output must not block on every line
TERMINAL_SIZE = (24, 80)  # rows and columns
_OUTPUT_MODES, _LOCAL_MODES = 1, 3  # in what tcgetattr returns
EXIT_SECONDS = 5.0
# AF_UNIX addresses of multiprocessing lie below TMPDIR and must fit into 108 bytes.
LONGEST_TMPDIR = 60

# Environment variables that ranks may inherit from the node worker: no TRAINYARD_* (credentials), no proxies
# (passwords).
PASSED_ON = frozenset({"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "SSL_CERT_FILE"})
OF_THE_USER = ("USER", "LOGNAME")
# of these, the ones whose paths ranks must read
LIBRARIES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "SSL_CERT_FILE")
PASSED_ON_PREFIXES = ("LC_", "NCCL_", "CUDA_DEVICE_", "NVIDIA_")


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Everything needed to start the ranks of one attempt on this node."""

    spec: RunSpec
    spec_path: Path
    confinement: SandboxSpec
    sandbox: Sandbox
    job_environment: Mapping[str, str]
    limits: GroupLimits
    groups: Hierarchies  # where the limits are set
    cores: OwnCores = field(default_factory=OwnCores)  # released by who holds the plan, after the ranks' end
    role_environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # in place of the job's, by role
    mpi: MpiNodes | None = None  # of a job that mpirun starts on several nodes

    @property
    def view(self) -> FilesystemView:
        return self.confinement.view

    def release(self) -> None:
        """Cores and the user of its own are for others. Idempotent."""
        self.cores.release()
        if self.confinement.user is not None:
            self.confinement.user.release()


class LaunchedRanks:
    """Running ranks: the agent's process, its control socket, and the read end of one log pipe per rank."""

    def __init__(
        self,
        plan: LaunchPlan,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        logs: list[int],
        group: ControlGroup,
    ) -> None:
        self.process = process
        self.control = control
        self.log_fds = logs
        self._job_id = plan.spec.job_id
        self._attempt = plan.spec.attempt
        self._node = plan.spec.node
        self._group = group
        self._limits = plan.limits

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM to every rank, and SIGKILL to those left after the grace period; returns at once."""
        self.send({"type": "stop", "grace_seconds": grace_seconds})

    def kill(self, *, root_pid: int = 0) -> bool:
        """SIGKILL everything and wait; False when a process of the attempt survives.

        ``root_pid``: all descendants of that process belong to the attempt.
        """
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(EXIT_SECONDS)
        is_dead = processes.kill_attempt(
            self._job_id, self._attempt, root_pid=root_pid, node=self._node, seconds=EXIT_SECONDS
        )
        return self._group.remove() and is_dead

    @property
    def exceeded_memory_mb(self) -> int:
        """The memory limit at which the kernel has killed a process of the attempt; 0 if it has not."""
        return self._limits.memory_mb if self._group.memory_kills else 0

    def wait(self) -> int:
        """The agent's exit code; call after its control socket closed. -SIGKILL when it cannot be killed."""
        try:
            return self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        try:
            return self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL

    def send(self, message: Message) -> None:
        """Send one message to the agent."""
        with contextlib.suppress(OSError):  # the agent ended just now
            self.control.sendall(encode(message))


def launch(plan: LaunchPlan) -> LaunchedRanks:
    """Start the sandbox with the ranks. Must run on the main thread: the ranks die with the thread that forks.

    Raises OSError.
    """
    group = _group(plan)
    ours, theirs = socket.socketpair()
    pipes = [_log_ends(plan) for _ in range(plan.spec.local_ranks)]
    writers = [writer for _, writer in pipes]
    view = replace(plan.view, libraries=inherited_libraries())
    confinement = replace(plan.confinement, view=view, joined=group.joined)
    command, environment = _agent_command(plan, writers, theirs.fileno()), _agent_environment(plan)
    try:
        process = None
        if training_config(plan.spec).warm and plan.spec.image is None:  # a fork would miss its modules' files
            agent = Forked(AGENT, plan.spec_path, command, environment)
            process = launch_forked(plan.sandbox, confinement, agent, writers[0], [theirs.fileno(), *writers])
        if process is None:
            with plan.sandbox.enclosed(command, confinement) as enclosed:
                process = subprocess.Popen(
                    joining(confinement.joined, enclosed.command),
                    env=environment,
                    cwd=plan.view.run_dir,
                    stdin=subprocess.DEVNULL,
                    stdout=writers[0],
                    stderr=writers[0],
                    pass_fds=(*writers, theirs.fileno(), *enclosed.files),
                    start_new_session=True,
                )
    finally:
        theirs.close()
        for writer in writers:
            os.close(writer)
    launched = LaunchedRanks(plan, process, ours, [reader for reader, _ in pipes], group)
    roles = {name: dict(environment) for name, environment in plan.role_environments.items()}
    more = {"roles": roles} if roles else {}
    if plan.mpi is not None:
        more["mpi"] = plan.mpi.to_message()
    launched.send({"type": "start", "environment": dict(plan.job_environment), **more})
    return launched


def _group(plan: LaunchPlan) -> ControlGroup:
    spec = plan.spec
    return plan.groups.make(f"{spec.job_id}.{spec.attempt}.{spec.node or processes.NODELESS}", plan.limits)


def _agent_command(plan: LaunchPlan, log_fds: list[int], control_fd: int) -> list[str]:
    command = [*own_python(plan.spec), "-m", "workers.rank.agent", "--spec", str(plan.spec_path)]
    command += ["--log-fds", ",".join(map(str, log_fds)), "--control-fd", str(control_fd)]
    if plan.sandbox.kind == PROCESS:
        command += ["--die-with", str(os.getpid())]
    return command


def _agent_environment(plan: LaunchPlan) -> dict[str, str]:
    work = plan.view.run_dir / "work"
    environment = {
        **(inherited_environment() if plan.view.image is None else _image_independent()),
        **user_environment(plan.sandbox.kind, plan.confinement.account),
        "HOME": str(work),
        "HF_HOME": str(work / "huggingface"),
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": str(Path(__file__).parents[2] if plan.view.image is None else CODE),
        # By these the processes of an attempt are found in /proc.
        "TRAINYARD_JOB_ID": plan.spec.job_id,
        "TRAINYARD_ATTEMPT": str(plan.spec.attempt),
        **({"TRAINYARD_NODE": plan.spec.node} if plan.spec.node else {}),
    }
    temporary = str(plan.view.temporary_dir)
    if plan.sandbox.kind == PROCESS and len(temporary) <= LONGEST_TMPDIR:
        environment["TMPDIR"] = temporary
    return environment


def _image_independent() -> dict[str, str]:
    """The part of our environment that an image's programs may have: nothing that names files of this machine."""
    return {name: value for name, value in os.environ.items() if name.startswith(("NCCL_", "CUDA_DEVICE_"))}


def user_environment(sandbox: str, account: Account) -> dict[str, str]:
    """Variables that name the user as whom processes run in a sandbox of this kind."""
    if sandbox == BUBBLEWRAP:
        return dict.fromkeys(OF_THE_USER, account.name)
    return {name: os.environ[name] for name in OF_THE_USER if name in os.environ}


def inherited_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The part of our environment, or of another, that a process has in any sandbox; see ``user_environment``, too."""
    return {
        name: value for name, value in environment.items() if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }


def inherited_libraries() -> tuple[Path, ...]:
    """Paths in it that such a process has to read."""
    return tuple(Path(part) for name in LIBRARIES for part in os.environ.get(name, "").split(":") if part)


def _log_ends(plan: LaunchPlan) -> tuple[int, int]:
    """Where the supervisor reads what a rank writes, and the rank's end."""
    return (_log_terminal if plan.spec.terminal else _log_pipe)(plan.confinement.user)


def _log_pipe(user: OwnUser | None) -> tuple[int, int]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    if user is not None:  # programs open their output again by its name, /dev/stdout
        os.fchown(writer, user.uid, user.uid)
    os.set_blocking(reader, False)
    with contextlib.suppress(OSError):  # over the user's pipe quota: the default size suffices
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return reader, writer


def _log_terminal(user: OwnUser | None) -> tuple[int, int]:
    """As a pipe: the other end gets what ranks write as it is, nothing is typed into it, and no session has it."""
    reader, writer = os.openpty()
    try:
        if user is not None:
            os.fchown(writer, user.uid, user.uid)
        attributes = termios.tcgetattr(writer)
        attributes[_OUTPUT_MODES] &= ~termios.OPOST  # lines end with a line feed alone
        attributes[_LOCAL_MODES] &= ~termios.ECHO
        termios.tcsetattr(writer, termios.TCSANOW, attributes)
        termios.tcsetwinsize(writer, TERMINAL_SIZE)
    except BaseException:
        os.close(reader)
        os.close(writer)
        raise
    os.set_blocking(reader, False)
    return reader, writer
