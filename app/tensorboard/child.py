"""Runs TensorBoard and ends with the parent process: `python -m app.tensorboard.child ARGUMENTS`.

The secret path prefix is read from a line of standard input: command lines are visible to every user of the machine.
"""

import ctypes
import runpy
import signal
import sys

from app.host.privacy import hide_from_same_user

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    hide_from_same_user()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.argv.append(f"--path_prefix={sys.stdin.readline().strip()}")
    runpy.run_module("tensorboard.main", run_name="__main__", alter_sys=True)
