"""Probes 32 to 35, 40 to 45, 55, 77 and 78: other processes, what they keep secret, and a job's own permissions."""

import ctypes
import fcntl
import os
import re
import resource
import signal
import socket
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.sandbox.probes.probing import REFUSALS, Blocked, Targets, probe, tried
from tests.sandbox.probes.system_calls import call, checked, libc, seize

# By the process that runs all probes, whose parent is the agent.
AGENT = os.getppid()
CREDENTIALS = re.compile(
    rb"rediss?://[^@\s]*:[^@\s]+@|postgres\w*://[^@\s]*:[^@\s]+@|canary-secret|TRAINYARD_SECURITY_\w+="
)
_NAMES = re.compile(r"PASSWORD|SECRET|CREDENTIAL|_TOKEN$|(ACCESS|PRIVATE|API|SECRET)_KEY")
_TIMEX_BYTES, _ADJ_TICK = 256, 0x4000
_NO_COMMAND = 0x12345678  # of reboot(2)


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def of_process(pid: int, name: str) -> bytes:
    """A file of a process in /proc; empty if it can't be read."""
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""


def the_canary(targets: Targets) -> int:
    """Its number, which may be that of another process in a PID namespace."""
    line = Path("/proc", str(targets.pid), "cmdline").read_bytes()
    if targets.marker.encode() not in line:
        raise Blocked("it is another process")
    return targets.pid


@probe(32, "see processes of the machine")
def other_processes(targets: Targets) -> str:
    found = [pid for pid in pids() if targets.marker.encode() in of_process(pid, "cmdline")]
    if not found:
        raise Blocked(f"own processes alone, {len(list(pids()))}")
    return f"process {found[0]}"


@probe(33, "read the environment of a process of the machine")
def other_environment(targets: Targets) -> str:
    if targets.marker.encode() not in Path("/proc", str(the_canary(targets)), "environ").read_bytes():
        raise Blocked("the secret is not in it")
    return "the secret"


@probe(34, "signal and trace a process of the machine")
def signals(targets: Targets) -> str:
    return tried(
        {
            "signal": lambda: os.kill(the_canary(targets), 0),
            "trace": lambda: seize(the_canary(targets)),
            "memory": lambda: os.close(os.open(f"/proc/{the_canary(targets)}/mem", os.O_RDWR)),
        }
    )


@probe(35, "take over the agent")
def agent(targets: Targets) -> str:
    return tried(
        {
            "its sockets": lambda: _taken_sockets(AGENT),
            "trace": lambda: seize(AGENT),
            "memory": lambda: os.close(os.open(f"/proc/{AGENT}/mem", os.O_RDWR)),
        }
    )


def _taken_sockets(pid: int) -> str:
    pidfd = call("pidfd_open", pid, 0)
    taken, refusal = 0, Blocked("it has no sockets")
    for number in range(64):
        try:
            descriptor = call("pidfd_getfd", pidfd, number, 0)
        except OSError as error:
            refusal = refusal if error.errno not in REFUSALS else Blocked(os.strerror(error.errno or 0))
            continue
        taken += Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith(("socket:", "pipe:"))
        os.close(descriptor)
    if not taken:
        raise refusal
    return f"{taken} sockets and pipes"


@probe(40, "find credentials in environments")
def environments(targets: Targets) -> str:
    named = [name for name in os.environ if _NAMES.search(name)]
    found = [pid for pid in pids() if CREDENTIALS.search(of_process(pid, "environ"))]
    if not named and not found:
        raise Blocked("none")
    return f"names {named}, processes {found[:3]}"


@probe(41, "find credentials in command lines and open files")
def open_files(targets: Targets) -> str:
    lines = [pid for pid in pids() if CREDENTIALS.search(of_process(pid, "cmdline"))]
    harmless = ("pipe:", "socket:", "/dev/", "anon_inode:", str(Path.cwd()))
    files = [name for pid in pids() for name in _files_of(pid) if not name.startswith(harmless)]
    outside = [name for name in files if targets.data_dir in name and os.environ["TRAINYARD_RUN_DIR"] not in name]
    if not lines and not outside:
        raise Blocked(f"none; files {files[:3]}")
    return f"command lines of {lines[:3]}, files {outside[:3]}"


def _files_of(pid: int) -> list[str]:
    try:
        return [str(path.readlink()) for path in Path("/proc", str(pid), "fd").iterdir()]
    except OSError:
        return []


@probe(42, "lower oom_score_adj to be spared when memory runs out")
def out_of_memory_score(targets: Targets) -> str:
    path = Path("/proc/self/oom_score_adj")
    now = int(path.read_text())
    path.write_text("0")  # the platform's
    return f"{path.read_text().strip()} instead of {now}"


@probe(43, "take a higher priority")
def priority(targets: Targets) -> str:
    return tried(
        {
            "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
            "realtime": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        }
    )


@probe(44, "change the clock")
def clock(targets: Targets) -> str:
    # Sets the length of a tick that it has.
    state = ctypes.create_string_buffer(_TIMEX_BYTES)
    checked(libc.adjtimex(state))
    ctypes.memmove(state, ctypes.byref(ctypes.c_uint(_ADJ_TICK)), 4)
    checked(libc.adjtimex(state))
    return "set"


@probe(45, "set the host name, reboot, load modules and kernels")
def the_machine(targets: Targets) -> str:
    name = socket.gethostname().encode()
    # Arguments that are wrong: where they may do it, the kernel says so.
    return tried(
        {
            "host name": lambda: checked(libc.sethostname(name, len(name))),
            "reboot": lambda: _considered(lambda: checked(libc.reboot(_NO_COMMAND))),
            "module": lambda: _considered(lambda: call("init_module", ctypes.c_void_p(), 0, ctypes.c_void_p())),
            "kernel": lambda: _considered(lambda: call("kexec_load", 0, 0, ctypes.c_void_p(), -1)),
        }
    )


def _considered(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        if error.errno in REFUSALS:
            raise
        return os.strerror(error.errno or 0)
    return "done"


@probe(55, "type into the terminal")
def terminal(targets: Targets) -> str:
    descriptor = os.open("/dev/tty", os.O_RDWR)
    fcntl.ioctl(descriptor, termios.TIOCSTI, b"\n")
    return "typed"


@probe(77, "find the job's own permissions")
def own_permissions(targets: Targets) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    capabilities = {name: found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    users = Path("/proc/self/uid_map").read_text().split()
    saw = f"Seccomp {found['Seccomp']}, NoNewPrivs {found['NoNewPrivs']}, {capabilities}, users {users}"
    is_confined = found["Seccomp"] == "2" and found["NoNewPrivs"] == "1" and users[0] != "0" and users[2] == "1"
    if is_confined and not any(int(value, 16) for value in capabilities.values()):
        raise Blocked(saw)
    return saw


@probe(78, "leave a core file")
def core_file(targets: Targets) -> str:
    pid = os.fork()
    if not pid:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
        os.kill(os.getpid(), signal.SIGSEGV)
        sys.exit(1)
    status = os.waitpid(pid, 0)[1]
    assert os.WTERMSIG(status) == signal.SIGSEGV, status
    if not os.WCOREDUMP(status):
        raise Blocked(f"none; limit {resource.getrlimit(resource.RLIMIT_CORE)}")
    return "left"
