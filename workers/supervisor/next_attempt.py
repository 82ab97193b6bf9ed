"""How a supervisor becomes that of the job's next attempt: the same process, with nothing of the attempt before in it.

The program continues, with its imports behind it, unless something is left that only a new start can do away with.
"""

import argparse
import gc
import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import NoReturn

from app.host.command_line import show_command_line
from workers.fork_server.requests import is_upgraded
from workers.node.spawn_supervisor import supervisor_command
from workers.process_environment import shown_environment

log = logging.getLogger(__name__)

# For threads that are about to end; another program takes about as long to start.
THREADS_SECONDS, LOOK_SECONDS = 0.5, 0.005
LASTING_THREADS = frozenset({"fsspecIO"})  # of libraries, which know no attempt


@dataclass(frozen=True)
class ToRun:
    """What a supervisor is started for. ``checkpoints_asked``: requests that its earlier attempts passed on.

    A checkpoint that was requested before the supervisor reads control requests was accepted with 202, so it must be
    made.
    """

    job_id: str
    attempt: int
    checkpoints_asked: int | None = None


def given_arguments() -> ToRun:
    """What this program was started with."""
    parser = argparse.ArgumentParser(prog="workers.supervisor.main", description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument(
        "--checkpoints-asked",
        type=int,
        help="requests for a checkpoint that earlier attempts of this process passed on",
    )
    given = parser.parse_args()
    return ToRun(given.job, given.attempt, given.checkpoints_asked)


def keeps_program(following: ToRun) -> bool:
    """Whether this program is now the supervisor of the attempt that follows; False: it has to start anew.

    Main thread only, while signals are held. The fence is gone either way, which is safe because no rank runs.
    """
    gc.collect()  # parts of a supervisor refer to each other
    obstacle = _obstacle(_command(following))
    if obstacle:
        log.info("the supervisor starts anew: %s", obstacle)
    return not obstacle


def start_anew(following: ToRun) -> NoReturn:
    """Be its supervisor by exec: in the same process and session, with all other state new. Raises OSError."""
    command = _command(following)
    os.execv(command[0], command)  # noqa: S606


def _command(following: ToRun) -> list[str]:
    command = supervisor_command(following.job_id, following.attempt)
    if following.checkpoints_asked is not None:
        command += ["--checkpoints-asked", str(following.checkpoints_asked)]
    return command


def _obstacle(command: list[str]) -> str:
    """Why this program can't continue; if there is no reason, "", and /proc shows the command from now on."""
    if is_upgraded():
        return "its code has been replaced"
    if threads := _threads_left():
        return f"threads of the attempt before have not ended: {', '.join(threads)}"
    try:
        show_command_line(command, shown_environment())  # by which the attempt's supervisor is found
    except OSError as error:
        return str(error)
    return ""


def _threads_left() -> list[str]:
    """Names of threads that do not end: one may wait for a storage that hangs, and then write for its attempt."""
    until = time.monotonic() + THREADS_SECONDS
    while left := _other_threads():
        if time.monotonic() > until:
            break
        time.sleep(LOOK_SECONDS)
    return left


def _other_threads() -> list[str]:
    names = (each.name for each in threading.enumerate() if each is not threading.main_thread())
    return sorted(name for name in names if name not in LASTING_THREADS)
