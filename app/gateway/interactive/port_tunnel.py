"""The bytes of a WebSocket between a browser and a job, both ways, until one of them ends it."""

import asyncio
import contextlib
import socket

from tornado.iostream import IOStream, StreamClosedError

READ_BYTES = 64 << 10
FLUSH_SECONDS = 5.0  # in which what was read before the end is passed on
# A browser whose machine vanished is noticed without traffic.
_LIVENESS = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}


async def join(browser: IOStream, job: IOStream) -> None:
    """Returns when both are closed."""
    if not browser.closed():
        browser.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _LIVENESS.items():
            browser.socket.setsockopt(socket.IPPROTO_TCP, option, value)
    directions = [asyncio.create_task(_copy(*each)) for each in ((browser, job), (job, browser))]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(directions, timeout=FLUSH_SECONDS)
    finally:
        browser.close()
        job.close()
        for each in directions:
            each.cancel()
        await asyncio.gather(*directions, return_exceptions=True)


async def _copy(source: IOStream, target: IOStream) -> None:
    with contextlib.suppress(StreamClosedError):
        while True:
            await target.write(await source.read_bytes(READ_BYTES, partial=True))
