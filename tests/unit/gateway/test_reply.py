"""The answer to a client that takes nothing."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app.gateway.reply import ClientGone, ClientReply


class StuckHandler:
    """As tornado's, before a client that reads nothing."""

    def __init__(self) -> None:
        self.closed = 0
        self.request = SimpleNamespace(connection=SimpleNamespace(stream=SimpleNamespace(close=self._close)))

    def set_status(self, status: int) -> None: ...

    def set_header(self, name: str, value: str) -> None: ...

    def write(self, data: bytes) -> None: ...

    def flush(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_future()

    def _close(self) -> None:
        self.closed += 1


def test_the_connection_of_a_client_that_takes_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gateway.reply.STUCK_SECONDS", 0.01)
    handler: Any = StuckHandler()

    async def send() -> None:
        written = ClientReply(handler).events(b"data: x\n\n")
        assert written is not None
        await written

    with pytest.raises(ClientGone):
        asyncio.run(send())
    assert handler.closed == 1
