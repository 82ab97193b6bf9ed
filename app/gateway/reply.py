"""The answer to a client: whole, as a stream of events, or a failure in the form that is still possible."""

import asyncio
import time
from collections.abc import Awaitable, Mapping

from tornado.web import RequestHandler

from app.gateway.event_stream import EventStream
from app.gateway.failures import ErrorAnswer
from app.gateway.sample import AnswerSample
from app.services.serving.endpoints import Endpoint

STUCK_SECONDS = 60.0
_EVENTS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class ClientGone(Exception):
    """The client has hung up, or takes nothing any more."""


class ClientReply:
    """Of one request."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._began_at = time.monotonic()
        self.headers: dict[str, str] = {}  # about limits, once they are known
        self.has_begun = False  # the status is sent: what follows are events
        self.is_finished = False
        self.stream: EventStream | None = None  # what passes on, or is to
        self.sample: AnswerSample | None = None
        self.first_token_at: float | None = None  # when the engine sent the first event, which has the first token
        self.endpoint: Endpoint | None = None  # the replica that answers now

    def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        if not self.has_begun:
            self._begin(status, {"Content-Type": "application/json", **self.headers, **headers})
        if self.sample is not None:
            self.sample.add(body)
        self._handler.finish(body)
        self.is_finished = True

    async def comment(self, text: str) -> None:
        """A line that clients ignore: it keeps the connection open, and people may read it."""
        written = self.events(f": {' '.join(text.split())}\n\n".encode())
        if written is not None:
            await written

    def events(self, events: bytes) -> Awaitable[None] | None:
        """Send events at once; None, or done when the client can take more. The result raises ClientGone."""
        if not self.has_begun:
            self._begin(200, {**_EVENTS, **self.headers})
        if self.sample is not None:
            self.sample.add(events)
        self._handler.write(events)
        written = self._handler.flush()
        if written.done():
            written.exception()  # a client that has gone cancels the request by itself
            return None
        return self._flushed(written)

    def end(self) -> None:
        """The end of a stream."""
        self._handler.finish()
        self.is_finished = True

    def failed(self, failure: ErrorAnswer) -> None:
        """A failure by status, or by an event where the stream has begun: never a silent end."""
        if self.is_finished:
            return
        if self.has_begun:
            if self.sample is not None:
                self.sample.add(failure.event)
            self._handler.write(failure.event)
            self.end()
        else:
            self.whole(failure.status, failure.headers, failure.body)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._handler.set_status(status)
        took = time.monotonic() - self._began_at  # until there is something to send, as at OpenAI
        self._handler.set_header("OpenAI-Processing-Ms", str(int(took * 1000)))
        for name, value in headers.items():
            self._handler.set_header(name, value)
        self.has_begun = True

    def _hang_up(self) -> None:
        """End the connection, and by that the request, also at the engine."""
        stream = getattr(self._handler.request.connection, "stream", None)
        if stream is not None:
            stream.close()

    async def _flushed(self, written: "asyncio.Future[None]") -> None:
        try:
            await asyncio.wait_for(asyncio.shield(written), STUCK_SECONDS)
        except TimeoutError as error:
            self._hang_up()
            raise ClientGone("the client has taken nothing for a minute") from error
        except OSError as error:
            raise ClientGone("the client has hung up") from error
