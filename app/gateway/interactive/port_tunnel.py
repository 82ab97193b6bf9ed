"""The bytes of a WebSocket between a browser and a job, both ways, until both have ended or one of them broke."""

import asyncio
import socket
from collections.abc import Callable

from app.gateway.interactive import port_splice
from app.gateway.interactive.port_splice import DetachedConnection
from app.host.pipes import Pipes

FLUSH_SECONDS = 5.0  # in which the other side may end after the first, and what was read is passed on
# A browser whose machine vanished is noticed without traffic.
_LIVENESS = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}


async def join(browser: DetachedConnection, job: DetachedConnection, pipes: Pipes, moved: Callable[[], None]) -> None:
    """Returns when it is over; closing both is left to the caller."""
    browser.connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _LIVENESS.items():
        browser.connection.setsockopt(socket.IPPROTO_TCP, option, value)
    ways = [asyncio.create_task(_one_way(*each, pipes, moved)) for each in ((browser, job), (job, browser))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(ways, timeout=FLUSH_SECONDS)
    finally:
        for each in ways:
            each.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _one_way(
    source: DetachedConnection, target: DetachedConnection, pipes: Pipes, moved: Callable[[], None]
) -> None:
    """Raises OSError."""
    await port_splice.pass_on(source, target, None, pipes, moved)
    target.connection.shutdown(socket.SHUT_WR)
