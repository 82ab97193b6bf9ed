"""What mpirun starts in place of ssh: asks another node of the job for Open MPI's daemon, and ends with it.

Executed by mpirun as ``python -m workers.rank.mpi_remote part-N orted ARGUMENTS``; `workers.rank.mpi_part` answers.
Standard library only.
"""

import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.host.processes import die_with_parent
from trainyard.protocol.channel import LineDecoder, Message, ProtocolError
from workers.rank.mpi import PART, PLAN, MpiNodes
from workers.rank.mpi_part import ORTED, proof, send

# The sandboxes of the nodes start at about the same time; one may have an image to mount.
CONNECT_SECONDS = 120.0
PAUSE_SECONDS = 0.2
TIMEOUT_SECONDS = 10.0
FAILED = 1


def main() -> int:
    """The daemon's exit code, or 1 and the reason on standard error, which mpirun passes on."""
    die_with_parent(os.getppid())
    name, *words = sys.argv[1:]
    part = int(name.removeprefix(PART))
    nodes = MpiNodes.from_message(json.loads(Path(os.environ[PLAN]).read_text())["nodes"])
    if nodes is None:
        raise SystemExit("this job is on one node")
    where = "{}:{}".format(*nodes.places[part])
    try:
        with connected(nodes.places[part]) as server:
            return ask(server, nodes.secret, part, daemon_arguments(words))
    except (OSError, ProtocolError) as error:
        sys.stderr.write(f"mpi: node {part} of the job, at {where}, can't be asked for Open MPI's daemon: {error}\n")
        return FAILED


def daemon_arguments(words: Sequence[str]) -> list[str]:
    """Those of orted in a command line for a remote shell, which may be in a subshell that reads a profile first."""
    split = shlex.split(" ".join(words))
    at = next(number for number, word in enumerate(split) if Path(word).name == ORTED)
    return [word for word in split[at + 1 :] if word != ")"]


def connected(place: tuple[str, int]) -> socket.socket:
    """A connection, as soon as the other sandbox has been started. Raises OSError."""
    until = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(place, timeout=TIMEOUT_SECONDS)
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(PAUSE_SECONDS)


def ask(server: socket.socket, secret: str, part: int, arguments: Sequence[str]) -> int:
    """The daemon's exit code. Raises OSError."""
    received = _messages(server)
    nonce = str(next(received)["nonce"])
    send(server, {"type": "start", "arguments": list(arguments), "proof": proof(secret, nonce, part, arguments)})
    server.settimeout(None)
    answer = next(received)
    if answer["type"] == "refused":
        raise ConnectionRefusedError(str(answer["reason"]))
    return int(answer["code"])


def _messages(server: socket.socket) -> Iterator[Message]:
    decoder = LineDecoder()
    while data := server.recv(65536):
        yield from decoder.feed(data)
    raise ConnectionResetError("it has hung up")


if __name__ == "__main__":
    sys.exit(main())
