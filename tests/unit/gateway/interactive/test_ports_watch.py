"""The watch over open ports: what fails for one keeps no other open, and looking writes no line of the audit trail."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.port_addresses import PortAddress
from app.domain.spec.interactive import Port
from app.gateway.backend import GatewayBackend
from app.gateway.interactive import ports_side
from app.gateway.interactive.port_access import PortAccess
from app.gateway.interactive.port_request import PortRequest
from app.gateway.interactive.ports_side import PortsSide
from app.services.interactive import ports
from app.services.interactive.ports import OpenPort
from app.services.requests.control_plane import ControlPlane

ADDRESS = PortAddress(job_id="job-1", name="web", origin="http://jobs.localhost", prefix="/jobs/job-1/ports/web")
REQUEST = PortRequest(
    address=ADDRESS,
    method="GET",
    path="/",
    query="",
    url_tokens=("token",),
    cookie_tokens=(),
    key="",
    length=0,
    is_websocket=False,
)


def test_open_ports_are_looked_at_while_no_use_can_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = OpenPort(
        job_id="job-1",
        project="default",
        port=Port(name="web", port=80),
        key_id="key",
        actor="key-1",
        user="",
        attempt=1,
        endpoint=cast("Any", object()),
    )
    access = PortAccess(
        cast("GatewayBackend", SimpleNamespace(on_thread=asyncio.to_thread)), cast("ControlPlane", None), ""
    )
    recorded: list[OpenPort] = []

    def fail(_plane: ControlPlane, _opened: OpenPort, _client: str) -> None:
        raise OSError("no audit trail")

    async def use() -> None:
        monkeypatch.setattr(ports, "record_use", lambda _plane, each, _client: recorded.append(each))
        credential = (await access.of(REQUEST, "")).credential
        await access.of(REQUEST, "")
        assert recorded == [opened]
        monkeypatch.setattr(ports, "record_use", fail)
        access._recorded.clear()  # as after an hour
        access._known.clear()
        assert await access.again(ADDRESS, credential, "") == opened
        for _ in range(2):
            with pytest.raises(OSError, match="no audit trail"):
                await access.of(REQUEST, "")

    monkeypatch.setattr(ports, "by_token", lambda *_: opened)
    asyncio.run(use())


def test_one_that_can_not_be_looked_at_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look() -> None:
        ended = asyncio.Event()
        troubled, forbidden = object(), SimpleNamespace(end=ended.set)

        async def is_permitted(exchange: object) -> bool:
            if exchange is troubled:
                raise OSError("of one")
            return False

        side = SimpleNamespace(_open=[troubled, forbidden], _is_permitted=is_permitted)
        watch = asyncio.create_task(PortsSide.watch(cast("PortsSide", side)))
        await asyncio.wait_for(ended.wait(), 30)
        watch.cancel()

    monkeypatch.setattr(ports_side, "LOOK_SECONDS", 0.01)
    asyncio.run(look())
