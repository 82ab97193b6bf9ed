"""Runs a Python grader once: `python -m workers.prepare.grading.program`, in a sandbox.

Started by `workers.prepare.grading.run`. Input and output are a line of `workers.trainers.graders.python_program`, as
for the graders of a training.
"""

import argparse
import os
import resource
import sys
from typing import NoReturn

from app.host.processes import die_with_parent
from workers.trainers.graders import python_program

_MOST_WRITTEN_BYTES = 1 << 20
_MOST_PROCESSES = 256  # and threads


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="workers.prepare.grading.program", description=__doc__)
    parser.add_argument("--seconds", required=True)
    parser.add_argument("--die-with", type=int)
    arguments = parser.parse_args()
    if arguments.die_with is not None:
        die_with_parent(arguments.die_with)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN_BYTES, _MOST_WRITTEN_BYTES))
    resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_PROCESSES, _MOST_PROCESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.argv = [sys.argv[0], arguments.seconds]
    python_program.main()
    os._exit(0)  # whatever threads the grader has left


if __name__ == "__main__":
    main()
