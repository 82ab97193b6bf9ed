"""The process of a relay: ``python -m workers.relay``, started by a supervisor.

It gets its configuration as JSON on stdin, so that no process list shows the token, and writes a line of JSON with its
port to stdout once it listens.
"""

import argparse
import asyncio
import errno
import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from app.host.processes import die_with_parent, hide_from_same_user, prctl
from workers.relay.relay import MOST_CONNECTIONS, MOST_STRANGERS, Relay

_PR_SET_NO_NEW_PRIVS = 38
BACKLOG = 512
FINISH_SECONDS = 2.0  # the engine has ended then, or is not waited for
_FILES = 2 * MOST_CONNECTIONS + MOST_STRANGERS + 64


async def _serve(relay: Relay, listener: socket.socket) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    serving = asyncio.create_task(relay.serve(listener))
    await ended.wait()
    await relay.finish(FINISH_SECONDS)
    serving.cancel()


def listening(address: str) -> socket.socket:
    """A listener at a free port of this address; of all addresses where the machine itself does not have it, as behind
    address translation. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return _bound(address, family)
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            raise
        return _bound("", family)


def _bound(address: str, family: socket.AddressFamily) -> socket.socket:
    return socket.create_server((address, 0), family=family, backlog=BACKLOG)


def _allow_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES if most == resource.RLIM_INFINITY else min(_FILES, most), most))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--die-with", required=True, type=int)
    arguments = parser.parse_args()
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    die_with_parent(arguments.die_with)
    hide_from_same_user()
    _allow_files()
    configuration = json.load(sys.stdin)
    inside = Path(configuration["socket"])
    directory = os.open(inside.parent, os.O_PATH | os.O_DIRECTORY)
    with listening(configuration["address"]) as listener:
        listener.setblocking(False)
        sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        asyncio.run(_serve(Relay(configuration["token"], directory, inside.name), listener))


if __name__ == "__main__":
    main()
