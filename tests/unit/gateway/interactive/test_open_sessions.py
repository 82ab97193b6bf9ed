"""Sessions of a gateway whose end fails: nothing stays open that is not counted, and nothing is left out."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from app.gateway.interactive.open_session import OpenSession
from app.gateway.interactive.open_sessions import OpenSessions
from app.gateway.interactive.session_backend import SessionBackend
from app.gateway.open_requests import OpenRequests
from app.services.attempts.interactive_endpoints import SandboxEndpoint
from app.services.interactive.attending import RedeemedSession

NOWHERE = SandboxEndpoint(
    job_id="job", attempt=1, fence=1, part=0, first_rank=0, ranks=1, address="", port=0, message="it is not there"
)
REDEEMED = RedeemedSession(
    session_id="session",
    job_id="job",
    project="default",
    key_id="key",
    attempt=1,
    kind="shell",
    rank=0,
    request={"type": "exec", "tty": True},
    endpoint=NOWHERE,
    recorded=False,
)


class Client:
    """A WebSocket that cannot be closed in order."""

    def __init__(self) -> None:
        self.is_dropped = False

    async def send(self, message: bytes) -> None:
        del message

    def is_gone(self) -> bool:
        return self.is_dropped

    def send_ping(self) -> None:
        pass

    def close_with(self, last: bytes, code: int, reason: str) -> None:
        raise UnicodeError(f"{last!r}, {code}, {reason}")

    def drop(self) -> None:
        self.is_dropped = True


class Backend:
    """What is asked of a database that may be away."""

    secret_key = "secret"

    def __init__(self, *, works: bool) -> None:
        self.works = works
        self.ended: list[str] = []
        self.pieces: list[bytes] = []

    async def finish(self, redeemed: RedeemedSession, end: Any, counts: Any) -> None:
        del redeemed, counts
        if not self.works:
            raise OSError("the database is away")
        self.ended.append(end.reason)

    async def store(self, redeemed: RedeemedSession, number: int, data: bytes) -> None:
        del redeemed, number
        self.pieces.append(data)


@pytest.mark.parametrize("works", [True, False], ids=["recorded", "database away"])
def test_a_session_that_cannot_be_closed_in_order_leaves_nothing_open(works: bool) -> None:  # noqa: FBT001
    client, backend = Client(), Backend(works=works)
    slots = OpenRequests(1, most_bytes=0)

    async def scenario() -> None:
        of_type = cast("SessionBackend", backend)
        sessions = OpenSessions(of_type, slots, url="")
        sessions.enter()
        redeemed = replace(REDEEMED, recorded=True)
        sessions.begin(OpenSession(redeemed, client, of_type, idle_seconds=60))
        await sessions.close(seconds=10)
        assert sessions.count == 0

    asyncio.run(scenario())
    assert client.is_dropped
    assert slots.enter()
    assert backend.ended == (["it is not there"] if works else [])
    assert b"".join(backend.pieces).startswith(b'{"version":2')
