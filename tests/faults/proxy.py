"""A TCP proxy that injects network faults, between each process and each server that it connects to."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

READ_BYTES = 1 << 16
T = TypeVar("T")


class ProxyThread:
    """The one thread on which all proxies of a system run; ``close`` after the last of them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxies", daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def close(self) -> None:
        self.do(_cancel_the_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class FaultProxy:
    """Forwards ``port`` to ``upstream`` until a fault is injected; every method may be called from any thread.

    ``freeze`` makes the existing connections half-open for good: whatever is sent vanishes, and neither side gets an
    error. ``partition`` does that to new ones, too.
    """

    def __init__(self, thread: ProxyThread, upstream: tuple[str, int], *, host: str = "127.0.0.1") -> None:
        self._thread = thread
        self._upstream = upstream
        self._links: set[_Link] = set()
        self._refuses = self._swallows = False
        self._latency_seconds = 0.0
        self._cut_after: int | None = None
        self._on_reply: Callable[[bytes], None] | None = None
        self._server = thread.do(asyncio.start_server(self._serve, host, 0))
        self.port = int(self._server.sockets[0].getsockname()[1])

    # ---- faults

    def heal(self) -> None:
        """Forward again. What was frozen stays so: its peers may believe in it until they time out."""
        self._call(self._heal)

    def reset(self) -> None:
        """RST to both sides of every connection there is."""
        self._call(self._reset)

    def down(self) -> None:
        """The same, and refuse new ones."""
        self._call(self._down)

    def freeze(self) -> None:
        self._call(self._freeze)

    def partition(self) -> None:
        self._call(self._partition)

    def delay(self, seconds: float) -> None:
        """Each chunk takes that long in each direction."""
        self._call(lambda: setattr(self, "_latency_seconds", seconds))

    def cut_after(self, reply_bytes: int) -> None:
        """RST every connection once the server has said so much on it from now on."""

        def cut() -> None:
            self._cut_after = reply_bytes
            for link in self._links:
                link.replied = 0

        self._call(cut)

    def on_reply(self, look: Callable[[bytes], None] | None) -> None:
        """Show each chunk of the server's to ``look`` before it is forwarded; None stops that."""
        self._call(lambda: setattr(self, "_on_reply", look))

    def close(self) -> None:
        """Listen no more, and break off what there is."""
        self._call(self._close)

    # ---- on the loop's thread

    def _heal(self) -> None:
        self._refuses = self._swallows = False
        self._latency_seconds, self._cut_after, self._on_reply = 0.0, None, None

    def _reset(self) -> None:
        for link in list(self._links):
            link.reset()

    def _down(self) -> None:
        self._refuses = True
        self._reset()

    def _freeze(self) -> None:
        for link in self._links:
            link.frozen = True

    def _partition(self) -> None:
        self._swallows = True
        self._freeze()

    def _close(self) -> None:
        self._server.close()
        self._reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        self._links.add(link)
        link.task = asyncio.current_task()  # the loop itself would forget one that waits for nothing
        try:
            if self._refuses:
                link.reset()
            elif self._swallows:
                link.frozen = True
                await self._pump(reader, None, link)
            else:
                await self._connect(reader, link)
        finally:
            self._links.discard(link)
            link.reset()

    async def _connect(self, reader: asyncio.StreamReader, link: "_Link") -> None:
        try:
            answers, link.upstream = await asyncio.open_connection(*self._upstream)
        except OSError:
            return
        pumps = [
            asyncio.ensure_future(self._pump(reader, link.upstream, link)),
            asyncio.ensure_future(self._pump(answers, link.client, link, replies=True)),
        ]
        try:
            # A side that says good-bye is passed on, unless nothing is.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if link.frozen:
                await link.over.wait()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, link: "_Link", *, replies: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if replies and self._on_reply is not None:
                    self._on_reply(data)
                if self._latency_seconds:
                    await asyncio.sleep(self._latency_seconds)
                link.replied += len(data) if replies else 0
                if self._cut_after is not None and link.replied > self._cut_after:
                    return
                if writer is not None and not link.frozen:
                    writer.write(data)
                    await writer.drain()

    # ---- between the threads

    def _call(self, change: Callable[[], None]) -> None:
        async def on_loop() -> None:
            change()

        self._thread.do(on_loop())


class _Link:
    """One connection, in two halves."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.upstream: asyncio.StreamWriter | None = None
        self.task: asyncio.Task[None] | None = None
        self.frozen = False
        self.over = asyncio.Event()
        self.replied = 0

    def reset(self) -> None:
        self.over.set()
        for writer in (self.client, self.upstream):
            if writer is not None and not writer.transport.is_closing():
                connection: socket.socket = writer.get_extra_info("socket")
                # A close with this option is an RST, and not the polite FIN of a process that ends.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()


async def _cancel_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
