"""What a probe is: one attack that a program tries on the machine around it, and how it says what came of it.

Probes run as the script of a job. Standard library only.
"""

import contextlib
import errno
import json
import os
import select
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

BLOCKED, REACHED, BROKEN = "blocked", "reached", "broken"
SECONDS = 40.0  # that a probe may take
# What the kernel answers where it does not even consider what a call asks for.
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)


class Blocked(Exception):
    """The attack failed; the message says what it met."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What is outside of the sandbox, and the limits of the job: what the probes try to get at."""

    marker: str  # in everything that is secret
    pid: int  # of a process whose environment and command line have the marker
    data_dir: str
    database: str
    other_run_dir: str
    other_artifact: str
    claim: str  # a file of another project's volume
    files: Mapping[str, str]  # path of a file of the node's user with mode 0600, by the directory it lies in
    checkouts: tuple[str, ...]
    covered: tuple[str, ...]  # directories over which something is mounted
    shared_memory_file: str
    api_port: int
    redis_port: int
    service_port: int
    resolver_port: int  # UDP
    abstract_socket: str
    path_socket: str
    key_name: str
    shared_memory_key: int
    queue: str
    ram_mb: int
    cpu_cores: float
    processes: int
    storage_mb: int
    shm_mb: int
    open_files: int  # the hard limit of the node worker
    inodes: int  # more files than any job has
    patience_seconds: float  # within which the platform ends a job that keeps too much

    @classmethod
    def read(cls, path: Path) -> "Targets":
        said = json.loads(path.read_text())
        for name in ("checkouts", "covered"):
            said[name] = tuple(said[name])
        return cls(**said)


Attack = Callable[[Targets], str]
A = TypeVar("A", bound=Attack)


@dataclass(frozen=True)
class Probe:
    """``attack`` returns what it got, and raises OSError or Blocked if it got nothing."""

    number: int
    title: str
    attack: Attack


PROBES: dict[int, Probe] = {}


def probe(number: int, title: str) -> Callable[[A], A]:
    """Registers an attack under its number in the list of the security audit."""

    def register(attack: A) -> A:
        assert number not in PROBES
        PROBES[number] = Probe(number, title, attack)
        return attack

    return register


def tried(attempts: Mapping[str, Callable[[], object]]) -> str:
    """What each of several ways to the same target got; raises Blocked if all fail."""
    said, got = [], 0
    for name, attempt in attempts.items():
        try:
            said.append(f"{name}: GOT {attempt()}")
            got += 1
        except (OSError, Blocked) as error:
            said.append(f"{name}: {reason(error)}")
    if not got:
        raise Blocked("; ".join(said))
    return "; ".join(said)


def reason(error: Exception) -> str:
    """ENOENT and the like, or what a probe says."""
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno))
    return str(error) or type(error).__name__


def report(number: int, targets: Targets) -> dict[str, object]:
    """The outcome of a probe, which runs in a process of its own: it may change what the others need."""
    found = PROBES[number]
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os.write(writer, json.dumps(_outcome(found, targets)).encode() + b"\n")
        os._exit(0)
    os.close(writer)
    said = _line(reader)
    os.close(reader)
    with contextlib.suppress(OSError):  # it has ended, and so has all that it started
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    outcome, saw = json.loads(said) if said else (BROKEN, "it said nothing")
    return {"probe": number, "title": found.title, "outcome": outcome, "saw": str(saw)[:500]}


def _outcome(found: Probe, targets: Targets) -> tuple[str, str]:
    try:
        return REACHED, found.attack(targets)
    except (OSError, Blocked) as error:
        return BLOCKED, reason(error)
    except Exception as error:  # noqa: BLE001 – what a probe did not expect is no proof of anything
        return BROKEN, f"{type(error).__name__}: {error}"


def _line(reader: int) -> bytes:
    """Up to the end of the line, as processes that the probe started may keep the pipe open."""
    said = b""
    while not said.endswith(b"\n"):
        ready, _, _ = select.select([reader], [], [], SECONDS)
        more = os.read(reader, 65536) if ready else b""
        if not more:
            return b""
        said += more
    return said
