"""What gunicorn reads as its configuration file: hooks that can't be given as arguments."""

import ctypes
import os
import signal
from collections.abc import Mapping
from typing import Any

from app.host.privacy import hide_from_same_user
from config.measuring import inherited_multiprocess_directory

PR_SET_PDEATHSIG = 1


def on_starting(arbiter: Any) -> None:
    """Request processes are forks, and inherit it."""
    hide_from_same_user()
    _count_from_zero(arbiter.cfg.env)


def post_fork(arbiter: Any, _worker: Any) -> None:
    """A request process must not outlive its master: it would hold the port against the next start."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != arbiter.pid:
        os._exit(1)


def _count_from_zero(environment: Mapping[str, str]) -> None:
    """What processes of an earlier start have counted must not be added to what ours count."""
    directory = inherited_multiprocess_directory(environment)
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in directory.glob("*.db"):
        file.unlink()
