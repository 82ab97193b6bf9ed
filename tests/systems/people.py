"""What a gateway does for people in the sandbox of an attempt, through the relay that its supervisor has recorded."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.security.relay_tokens import interactive_token
from app.services.attempts import interactive_endpoints
from app.services.attempts.interactive_endpoints import SandboxEndpoint
from tests.systems.supervising import World
from trainyard.protocol.interactive import STATUS, STDOUT, FrameDecoder

SECONDS = 20.0


def endpoint_of(world: World, job_id: str, *, rank: int = 0) -> SandboxEndpoint:
    """Where the sandbox of this rank is reached, once it is."""
    found: list[SandboxEndpoint] = []

    def look() -> bool:
        with world.db.read() as session:
            found.extend(filter(None, [interactive_endpoints.of(session, job_id, rank=rank)]))
        return bool(found)

    world.wait(look, SECONDS, job_id)
    return found[-1]


def open_sandbox(world: World, job_id: str) -> SandboxEndpoint:
    """Ask for it, as the API does."""
    world.request(job_id, interactive_attempt=world.job(job_id).attempt)
    return endpoint_of(world, job_id)


@contextmanager
def connected(
    world: World, endpoint: SandboxEndpoint, **request: Any
) -> Iterator[tuple[socket.socket, dict[str, Any]]]:
    """The connection after the answer to this request, and that answer."""
    token = interactive_token(
        world.settings.security.secret_key,
        job_id=endpoint.job_id,
        attempt=endpoint.attempt,
        fence=endpoint.fence,
        part=endpoint.part,
    )
    with socket.create_connection((endpoint.address, endpoint.port), timeout=SECONDS) as connection:
        connection.sendall(f"TRAINYARD/1 {token}\n{json.dumps(request)}\n".encode())
        greeting = _line(connection)
        assert greeting == b"OK\n", greeting
        yield connection, json.loads(_line(connection))


def run(world: World, endpoint: SandboxEndpoint, *command: str, rank: int = 0) -> tuple[str, int]:
    """What a command printed, and its exit code."""
    decoder, said = FrameDecoder(), {STDOUT: b"", STATUS: b""}
    with connected(world, endpoint, type="exec", rank=rank, command=list(command)) as (connection, answer):
        assert answer == {"type": "started"}, answer
        while data := connection.recv(65536):
            for frame in decoder.feed(data):
                said[frame.channel] = said.get(frame.channel, b"") + frame.payload
    return said[STDOUT].decode(), json.loads(said[STATUS])["exit_code"]


def _line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        assert byte, line
        line += byte
    return line
