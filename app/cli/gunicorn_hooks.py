"""What gunicorn reads as its configuration file: hooks that can't be given as arguments."""

import ctypes
import os
import signal
from typing import Any

from config.privacy import hide_from_same_user

PR_SET_PDEATHSIG = 1


def on_starting(_arbiter: Any) -> None:
    """Request processes are forks, and inherit it."""
    hide_from_same_user()


def post_fork(arbiter: Any, _worker: Any) -> None:
    """A request process must not outlive its master: it would hold the port against the next start."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != arbiter.pid:
        os._exit(1)
