"""Runs a Python grader once: `python -m workers.prepare.grading.program`, in a sandbox.

Started by `workers.prepare.grading.run`. Input and output are a line of `workers.trainers.graders.python_program`, as
for the graders of a training.
"""

import os
import resource
from pathlib import Path
from typing import NoReturn

from app.host.landlock import stay_below
from workers.prepare.grading.one_process import keep_to_one_process
from workers.trainers.graders import python_program

_MOST_WRITTEN_BYTES = 1 << 20  # of a file
_MOST_THREADS = 256


def main() -> NoReturn:
    """Its argument is the time limit in seconds."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN_BYTES, _MOST_WRITTEN_BYTES))
    resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_THREADS, _MOST_THREADS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stay_below(Path("/"))
    keep_to_one_process()
    python_program.main()
    os._exit(0)  # whatever threads the grader has left


if __name__ == "__main__":
    main()
