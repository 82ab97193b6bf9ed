"""The process of a gate: ``python -m workers.egress``, started by a supervisor with a listener of the sandbox.

It gets its configuration as JSON on stdin, and writes a line of JSON to stdout for each note about connections.
"""

import argparse
import asyncio

# Else imported when a name is looked up, after the change of the user, who may be unable to read them.
import concurrent.futures.thread  # noqa: F401
import encodings.idna  # noqa: F401
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from app.domain.spec.locations.outbound_proxy import OutboundProxy
from app.host.process_options import die_with_parent, prctl
from app.host.processes import hide_from_same_user
from workers.egress.connection_notes import ConnectionNotes
from workers.egress.gate import EgressConnection, Gate

WRITE_SECONDS = 0.5
UNPRIVILEGED_ID = 65534  # a user and a group that own nothing
_PR_SET_NO_NEW_PRIVS = 38
_KILL_SETGID_SETUID = 0b111 << 5  # bits of capabilities: with them the supervisor can end a process of another user


async def _serve(listener: socket.socket, configuration: dict[str, Any]) -> None:
    notes, live = ConnectionNotes(), dict[int, EgressConnection]()

    def changed(connection: EgressConnection, *, has_ended: bool) -> None:
        notes.add(connection, has_ended=has_ended)
        if has_ended:
            live.pop(id(connection), None)
        else:
            live[id(connection)] = connection

    def write(*, everything: bool = False) -> None:
        for connection in live.values():
            notes.add(connection, has_ended=False)
        for note in notes.take(everything=everything):
            sys.stdout.write(json.dumps(note.to_json()) + "\n")
        sys.stdout.flush()

    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    through = configuration["proxy"]
    proxy = OutboundProxy(**{**through, "direct": tuple(through["direct"])}) if through else None
    gate = Gate(configuration["services"], configuration["private"], changed, proxy=proxy)
    serving = asyncio.create_task(gate.serve(listener))
    while not ended.is_set():
        write()
        try:
            await asyncio.wait_for(ended.wait(), WRITE_SECONDS)
        except TimeoutError:
            continue
    serving.cancel()
    write(everything=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--die-with", required=True, type=int)
    parser.add_argument("--listener", required=True, type=int)
    arguments = parser.parse_args()
    _drop_permissions()
    die_with_parent(arguments.die_with)  # after the change of the user, which would undo it
    hide_from_same_user()
    configuration = json.load(sys.stdin)
    with socket.socket(fileno=arguments.listener) as listener:
        listener.setblocking(False)
        asyncio.run(_serve(listener, configuration))


def _drop_permissions() -> None:
    """Change to an unprivileged user where the worker is root: what jobs and services send is parsed here."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if held is not None and int(held[1], 16) & _KILL_SETGID_SETUID == _KILL_SETGID_SETUID:
        os.setgroups([])
        os.setresgid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        os.setresuid(UNPRIVILEGED_ID, UNPRIVILEGED_ID, UNPRIVILEGED_ID)


if __name__ == "__main__":
    main()
