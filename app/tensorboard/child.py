"""Becomes TensorBoard, which dies with whoever started it: `python -m app.tensorboard.child ARGUMENTS`.

The path below which it answers is a secret, which comes as a line of the standard input: command lines are visible to
everybody on the machine.
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
