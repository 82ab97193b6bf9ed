"""Forks supervisors and preflights, whose imports take most of a second: `python -m workers.supervisor.fork_server`.

Started by the node worker with the descriptors of ``workers.fork_server.server``, and without settings: those of a
forked process come with its request.
"""

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.orm import configure_mappers

from app.host.command_line import show_command_line
from app.host.forks import run_as_program
from app.host.privacy import hide_from_same_user
from app.host.processes import die_with_pipe
from app.host.system_calls import NoFilter, filter_program
from workers.fork_server.requests import ForkRequest
from workers.fork_server.server import serve
from workers.prepare import preflight
from workers.prepare.preflight_process import PREFLIGHT
from workers.process_environment import shown_environment
from workers.supervisor import main as supervisor


def main() -> int:
    """Serve; a child returns what its program returns."""
    hide_from_same_user()  # a child that waits will hold the settings' credentials
    configure_mappers()
    with suppress(NoFilter):  # then there is no sandbox either
        filter_program()  # which children have from here
    request = serve(*map(int, sys.argv[1:4]))
    if request is None:
        return 0
    gc.enable()  # which lean_imports has paused
    program = _become(request)
    return program() if request.is_confirmed() else 0


def _become(request: ForkRequest) -> Callable[[], int]:
    """Be what the command of the request, run as a program in its own session, would be; returns its body."""
    command = request.fields["command"]
    module, *arguments = command[command.index("-m") + 1 :]
    os.setsid()
    if module == PREFLIGHT:
        *streams, lifeline = request.files
        die_with_pipe(lifeline)
    else:
        (output,) = request.files
        streams = [0, output, output]
    for number, file in enumerate(streams):
        os.dup2(file, number)
    for file in {*streams} - {0, 1, 2}:
        os.close(file)
    os.environ.clear()
    os.environ.update(request.fields["environment"])
    sys.argv = [module, *arguments]
    show_command_line(command, shown_environment())
    return preflight.main if module == PREFLIGHT else lambda: run_as_program(supervisor.main)


if __name__ == "__main__":
    sys.exit(main())
