"""Runs TensorBoard and ends with the parent process: `python -m app.tensorboard.child ARGUMENTS`.

The secret path prefix is read from a line of standard input: command lines are visible to every user of the machine.
"""

import os
import runpy
import sys

from app.host.privacy import hide_from_same_user
from app.host.process_options import die_with_parent

if __name__ == "__main__":
    hide_from_same_user()
    die_with_parent(os.getppid())
    sys.argv.append(f"--path_prefix={sys.stdin.readline().strip()}")
    runpy.run_module("tensorboard.main", run_name="__main__", alter_sys=True)
