"""What every process of a job does right after it was forked: ranks, and the commands of people in the sandbox."""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from app.host.oom_score import OF_RANKS, raise_oom_score
from app.host.privacy import show_to_same_user
from app.host.processes import die_with_parent
from trainyard.protocol.run_spec import RunSpec

# The pid of a rank: of its spec, command, directory, log and environment. Raises OSError.
StartRank = Callable[[RunSpec, Sequence[str], Path, int, Mapping[str, str]], int]
# The same of one that was forked; None: it starts as a program.
ForkRank = Callable[[RunSpec, Sequence[str], Path, int, Mapping[str, str]], int | None]
# Variables that the platform itself gives to the ranks of all roles, beside those of the job.
OF_ATTEMPT = frozenset({"TRAINYARD_JOB_SECRET"})


def as_rank(parent: int) -> None:
    """In a new rank: die with the agent, and be killed before all else when memory runs out."""
    show_to_same_user()  # else the files of its own in /proc are root's
    die_with_parent(parent)
    raise_oom_score(OF_RANKS)


def spawn_rank(command: Sequence[str], directory: Path, log: int, environment: Mapping[str, str]) -> int:
    """Start a rank; its pid. Raises OSError."""
    parent = os.getpid()
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        # This process has one thread: nothing can deadlock between fork and exec.
        preexec_fn=lambda: as_rank(parent),  # noqa: PLW1509
    )
    process.returncode = 0  # collected by waitpid(-1), together with orphans
    return process.pid


def starter(fork_rank: ForkRank | None, given: Iterable[Mapping[str, str]]) -> StartRank:
    """What forks ranks where it can, and starts others as programs; ``given``: variables of the job, or of its roles.

    With a variable of the job none is forked: libraries may read it when they are imported, and a fork has those of
    other roles in its memory.
    """
    fork = None if {*chain.from_iterable(given)} - OF_ATTEMPT else fork_rank

    def start(spec: RunSpec, command: Sequence[str], directory: Path, log: int, environment: Mapping[str, str]) -> int:
        pid = None if fork is None else fork(spec, command, directory, log, environment)
        return spawn_rank(command, directory, log, environment) if pid is None else pid

    return start
