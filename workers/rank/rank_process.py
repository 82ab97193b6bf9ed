"""What every process of a job does right after it was forked: ranks, and the commands of people in the sandbox."""

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from app.host.privacy import show_to_same_user
from app.host.processes import die_with_parent

OOM_SCORE = 500  # as if a rank used half of the machine's memory in addition


def as_rank(parent: int) -> None:
    """In a new rank: die with the agent, and be killed before the platform when memory runs out."""
    show_to_same_user()  # else the files of its own in /proc are root's
    die_with_parent(parent)
    with contextlib.suppress(OSError):  # /proc may be read-only, then the kernel decides by size
        adjustment = Path("/proc/self/oom_score_adj")
        adjustment.write_text(str(min(1000, int(adjustment.read_text()) + OOM_SCORE)))


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
