"""What every process of a job does right after it was forked: ranks, and the commands of people in the sandbox."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from app.host.oom_score import OF_RANKS, raise_oom_score
from app.host.privacy import show_to_same_user
from app.host.processes import die_with_parent


def as_rank(parent: int) -> None:
    """In a new rank: die with the agent, and be killed before all else when memory runs out."""
    show_to_same_user()  # else the files of its own in /proc are root's
    die_with_parent(parent)
    raise_oom_score(OF_RANKS)


def spawn_rank(command: list[str], directory: Path, log: int, environment: Mapping[str, str]) -> int:
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
