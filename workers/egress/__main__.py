"""The process of a gate: ``python -m workers.egress``, started by a supervisor with a listener of the sandbox.

It gets its configuration as JSON on stdin, and writes a line of JSON to stdout for each note about connections.
"""

import argparse
import asyncio
import json
import signal
import socket
import sys

from app.host.processes import die_with_parent, hide_from_same_user
from workers.egress.connection_notes import ConnectionNotes
from workers.egress.gate import Connection, Gate

WRITE_SECONDS = 0.5


async def _serve(listener: socket.socket, services: list[str], private: list[str]) -> None:
    notes, live = ConnectionNotes(), dict[int, Connection]()

    def changed(connection: Connection, *, has_ended: bool) -> None:
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
    serving = asyncio.create_task(Gate(services, private, changed).serve(listener))
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
    die_with_parent(arguments.die_with)
    hide_from_same_user()
    configuration = json.load(sys.stdin)
    with socket.socket(fileno=arguments.listener) as listener:
        listener.setblocking(False)
        asyncio.run(_serve(listener, configuration["services"], configuration["private"]))


if __name__ == "__main__":
    main()
