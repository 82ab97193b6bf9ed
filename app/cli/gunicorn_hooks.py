"""What gunicorn reads as its configuration file: hooks that can't be given as arguments."""

import ctypes
import os
import signal
from typing import Any

PR_SET_PDEATHSIG = 1


def post_fork(arbiter: Any, _worker: Any) -> None:
    """A request process must not outlive its master: it would hold the port against the next start."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != arbiter.pid:
        os._exit(1)
