"""The process of a session server, started by the agent: ``python -m workers.rank.sessions LISTENER``.

It gets the environments of the ranks as JSON on stdin, so that no list of processes shows them, and its listening
socket as a descriptor, by its number. Standard library and ``trainyard`` only.
"""

import json
import os
import resource
import socket
import sys

from app.host.processes import adopt_orphans
from workers.rank.sessions.loop import EpollLoop
from workers.rank.sessions.notebook import Notebook, NotebookPlan
from workers.rank.sessions.server import (
    MOST_COMMANDS,
    MOST_CONNECTIONS,
    CommandEnvironment,
    SessionServer,
    wake_on_children,
)

_FILES = 2 * MOST_CONNECTIONS + 4 * MOST_COMMANDS + 64


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(listener.fileno(), False)
    configuration = json.load(sys.stdin)
    _forget_input()
    adopt_orphans()
    _allow_files()
    loop = EpollLoop()
    place = CommandEnvironment(
        environments={int(rank): each for rank, each in configuration["environments"].items()},
        directory=configuration["directory"],
        # An agent that was started before an upgrade sends none.
        directories={int(rank): each for rank, each in configuration.get("directories", {}).items()},
    )
    plan = configuration.get("notebook")
    notebook = None if plan is None else Notebook(loop, NotebookPlan(environment=place.first_environment, **plan))
    server = SessionServer(loop, listener, place, notebook)
    waker = wake_on_children(loop, server)
    if notebook is not None:
        notebook.start()
    with waker:
        loop.run()


def _forget_input() -> None:
    """Ranks may open what this process has open, and the token of a notebook is in it."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)


def _allow_files() -> None:
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), most))


if __name__ == "__main__":
    main()
