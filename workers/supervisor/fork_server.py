"""Forks supervisors, whose imports would take most of a second each: `python -m workers.supervisor.fork_server`.

Started by the node worker with the descriptors of ``workers.fork_server.server``, and without settings: those of a
supervisor come with its request.
"""

import os
import sys

from sqlalchemy.orm import configure_mappers

from app.host.command_line import show_command_line
from app.host.privacy import hide_from_same_user
from workers.fork_server.requests import Request
from workers.fork_server.server import serve
from workers.supervisor import main as supervisor

SHOWN = ("TRAINYARD_DATA_DIR", "TRAINYARD_NODE_NAME")  # of its environment, which holds credentials


def main() -> int:
    """Serve; a child returns what its supervisor returns."""
    hide_from_same_user()  # a child that waits will hold the settings' credentials
    configure_mappers()
    request = serve(*map(int, sys.argv[1:4]))
    if request is None:
        return 0
    _become(request)
    return supervisor.main() if request.is_confirmed() else 0


def _become(request: Request) -> None:
    """Be what the command of the request, run as a program in its own session, would be."""
    command, (output,) = request.fields["command"], request.files
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request.fields["environment"])
    sys.argv = command[command.index("-m") + 1 :]
    show_command_line(command, {name: os.environ[name] for name in SHOWN})


if __name__ == "__main__":
    sys.exit(main())
