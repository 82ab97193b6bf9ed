"""Floods, clients that read nothing, and a hundred shells: a gateway's memory stays bounded, and others continue."""

import asyncio
import time
from collections.abc import Callable

import pytest

from app.models.base import utc_now
from tests.systems.gateways import memory_mb
from tests.systems.session_sites import Person, SessionSite

SHELLS = 100
FLOOD = "yes 0123456789012345678901234567890123456789"
MOST_GROWTH_MB = 24


@pytest.fixture
def site(make_session_site: Callable[..., SessionSite]) -> SessionSite:
    return make_session_site()


@pytest.mark.long
def test_a_flood_that_is_not_read_grows_no_memory_and_delays_no_other(site: SessionSite) -> None:
    gateway = site.serve_as_process().pid
    sandbox = site.sandbox()
    flood = [sandbox.session("sh", "-c", FLOOD, recorded=True) for _ in range(4)]
    other = sandbox.session("cat")

    async def scenario() -> None:
        connections = [await site.connect(*each) for each in flood]
        async with site.opened(*other) as person:
            await person.type("x")
            await person.until(b"x")
            before = memory_mb(gateway), memory_mb(sandbox.pid)
            slowest = 0.0
            for _ in range(50):
                began = time.monotonic()
                await person.type("echo")
                await person.until(b"echo")
                slowest = max(slowest, time.monotonic() - began)
                await asyncio.sleep(0.02)
            assert memory_mb(gateway) - before[0] < MOST_GROWTH_MB
            assert memory_mb(sandbox.pid) - before[1] < MOST_GROWTH_MB
            assert slowest < 1.0
        for each in connections:
            await Person(each).leave()

    asyncio.run(scenario())
    for session_id, _ in flood:
        assert site.ended(session_id).end_reason == "the client has closed the connection"


@pytest.mark.long
def test_a_flood_that_is_read_grows_no_memory(site: SessionSite) -> None:
    gateway = site.serve_as_process().pid
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session("sh", "-c", f"{FLOOD} | head -c 100000000")

    async def scenario() -> None:
        before = 0.0
        async with site.opened(session_id, ticket) as person:
            total = 0
            while (message := await person.hear()) is not None:
                total += len(message) - 1 if message[0] == 1 else 0
                before = before or memory_mb(gateway)
        assert total == 100_000_000
        assert memory_mb(gateway) - before < MOST_GROWTH_MB

    asyncio.run(scenario())
    assert site.ended(session_id).bytes_out == 100_000_000


@pytest.mark.long
def test_input_that_a_command_does_not_read_is_held_back(site: SessionSite) -> None:
    gateway = site.serve_as_process().pid
    sandbox = site.sandbox()
    session_id, ticket = sandbox.session("sh", "-c", "echo ready; exec sleep 1000")

    async def scenario() -> None:
        async with site.opened(session_id, ticket) as person:
            await person.until(b"ready")
            before = memory_mb(gateway), memory_mb(sandbox.pid)
            sent = 0
            try:
                async with asyncio.timeout(2):
                    while sent < 200 << 20:
                        await person.say(0, b"x" * 60_000)
                        sent += 60_000
            except TimeoutError:
                pass
            assert sent < 50 << 20
            assert memory_mb(gateway) - before[0] < MOST_GROWTH_MB
            assert memory_mb(sandbox.pid) - before[1] < MOST_GROWTH_MB
            site.set_session(session_id, end_requested_at=utc_now())
            assert (await asyncio.to_thread(site.ended, session_id)).end_reason == "ended on request"

    asyncio.run(scenario())


@pytest.mark.long
def test_a_hundred_shells_answer_at_a_time(site: SessionSite) -> None:
    gateway = site.serve_as_process().pid
    sandbox = site.sandbox()
    shells = [sandbox.session(kind="shell") for _ in range(SHELLS)]
    before = memory_mb(gateway)

    async def shell(number: int, everyone: asyncio.Barrier) -> int:
        async with site.opened(*shells[number]) as person:
            await person.type(f"echo nu''mber {number}\n")
            await person.until(f"number {number}\r\n".encode())
            await everyone.wait()
            await person.type(f"exit {number}\n")
            exit_code: int = (await person.all()).status["exit_code"]
            return exit_code

    async def scenario() -> list[int]:
        everyone = asyncio.Barrier(SHELLS)
        return await asyncio.gather(*(shell(number, everyone) for number in range(SHELLS)))

    assert asyncio.run(scenario()) == list(range(SHELLS))
    assert memory_mb(gateway) - before < 2 * MOST_GROWTH_MB
    for session_id, _ in shells:
        site.ended(session_id)
