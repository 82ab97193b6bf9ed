"""The engine's HTTP server: on a Unix socket in the run directory, on a thread of its own."""

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket
from tornado.web import Application, RequestHandler

from trainyard.protocol.channel import short_address
from workers.trainers.inference.serving.loop import GenerationLoop
from workers.trainers.inference.serving.openai.deliveries import Deliveries
from workers.trainers.inference.serving.openai.echoes import EchoReader
from workers.trainers.inference.serving.openai.handlers import HungUp, routes
from workers.trainers.inference.serving.openai.problems import ENDING, unavailable
from workers.trainers.inference.serving.openai.served_model import ServedModel

SOCKET = "engine.sock"
Result = TypeVar("Result")
_MAX_BODY = 9 << 20  # the gateway takes 8 MiB, and may add to them
_MOST_ENDED = 1024  # cancelled requests of which the usage is remembered
_CLOSE_SECONDS = 1.0  # for the last words of answers that are cut off


class EngineServer:
    """Answers requests by the loop. The socket exists once `start` has returned."""

    def __init__(self, model: ServedModel, loop: GenerationLoop, path: Path, *, on_batch: Callable[[], None]) -> None:
        """``on_batch`` is called on the loop's thread before each batch of texts that are embedded, and each
        piece of a prompt that is echoed.
        """
        self.model = model
        self.loop = loop
        self.echoes = EchoReader(loop, on_batch)
        self.on_batch = on_batch
        self._path = path
        self._open: set[Deliveries] = set()
        self._ended: OrderedDict[str, dict[str, int]] = OrderedDict()  # usage by request
        self._drains = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="server", daemon=True)
        self._listens: Future[None] = Future()
        self._apart = ThreadPoolExecutor(1, "tokens")  # tokenizers serve one thread at a time
        self._compiling = ThreadPoolExecutor(1, "formats")

    @property
    def open_requests(self) -> int:
        """Requests whose answers are not sent to the end."""
        return len(self._open)

    def start(self) -> None:
        """Raises OSError, or whatever else keeps it from listening."""
        self._apart.submit(self.model.tokenizer.encode, SOCKET).result()  # the first call of a tokenizer is slow
        self._compiling.submit(int).result()  # so that its thread is there
        self._thread.start()
        try:
            self._listens.result()
        except Exception:
            self._thread.join()
            self._end_pools()
            raise

    def drain(self) -> None:
        """Take no more requests."""
        self._drains = True

    def close(self) -> None:
        """Cut off what is unanswered, with an error that says so, and end."""
        self._drains = True
        self._events.call_soon_threadsafe(self._ends.set)
        self._thread.join()
        self._end_pools()

    # ------------------------------------------------------------------------ for handlers

    def enter(self, deliveries: Deliveries) -> None:
        if self._drains:
            raise unavailable("this replica is ending and takes no more requests", ENDING)
        self._open.add(deliveries)
        self._left.clear()

    def leave(self, deliveries: Deliveries) -> None:
        self._open.discard(deliveries)
        if deliveries.is_aborted and deliveries.request_id:
            self._ended[deliveries.request_id] = deliveries.usage
            if len(self._ended) > _MOST_ENDED:
                self._ended.popitem(last=False)
        if not self._open:
            self._left.set()

    def usage_of_cancelled(self, request_id: str) -> Mapping[str, int]:
        for deliveries in self._open:
            if deliveries.request_id == request_id:
                deliveries.abort(HungUp())
                return deliveries.usage
        return self._ended.pop(request_id, {})

    async def apart(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._apart, work)

    async def compiling(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._compiling, work)

    def state(self) -> Mapping[str, Any]:
        counts = self.loop.counts
        status = "draining" if self._drains else "serving"
        return {"status": status, "in_flight": counts.in_flight, "waiting": counts.waiting}

    def _end_pools(self) -> None:
        for pool in (self._apart, self._compiling):
            pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------------ on its thread

    async def _serve(self) -> None:
        self._events, self._ends, self._left = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        try:
            server = HTTPServer(Application(routes(self), log_function=_log_nothing), max_body_size=_MAX_BODY)
            server.add_socket(self._bound())
        except Exception as error:  # noqa: BLE001  (the starter waits for it)
            self._listens.set_exception(error)
            return
        self._listens.set_result(None)
        await self._ends.wait()
        server.stop()
        await self._cut_off()
        await server.close_all_connections()

    def _bound(self) -> socket.socket:
        self._path.unlink(missing_ok=True)
        with short_address(self._path) as address:
            return bind_unix_socket(address, mode=0o600)

    async def _cut_off(self) -> None:
        for deliveries in tuple(self._open):
            deliveries.abort(unavailable("this replica ended before the answer was finished", ENDING))
        if self._open:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), _CLOSE_SECONDS)


def _log_nothing(_handler: RequestHandler) -> None:
    """The gateway counts requests; addresses of a Unix socket say nothing."""
