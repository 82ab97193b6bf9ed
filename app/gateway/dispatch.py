"""Brings a request to a replica and its answer to the client; holds it while there is no replica.

What has not begun to be answered goes to another replica when its own dies. What has begun ends with an error event.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace

from tornado.escape import json_decode
from tornado.iostream import StreamClosedError

from app.domain.errors import Conflict, LimitExceeded, NotFound
from app.domain.serving.states import ServiceState
from app.gateway import choosing
from app.gateway.backend import VIEW_SECONDS, GatewayBackend, ServiceView
from app.gateway.event_stream import EventStream, Tokens, tokens_of
from app.gateway.exchange import BrokenExchange, exchange
from app.gateway.failures import ErrorAnswer, NoReplica, ReplicaLost, failure_of
from app.gateway.loads import Loads
from app.gateway.pool import NotConnected, Pool
from app.gateway.reply import ClientGone, ClientReply
from app.services.serving.endpoints import Endpoint

HELD_VIEW_SECONDS = 0.1  # how old what is known of a service may be while requests wait for a replica
HELD_POLL_SECONDS = 0.1
FIRST_COMMENT_SECONDS, COMMENT_SECONDS = 2.0, 5.0
REST_SECONDS = 0.5  # an endpoint that failed gets no request for so long
MAX_LOST = 3  # replicas that may die of one request
_PASSED_HEADERS = ("Content-Type", "Retry-After", "X-Should-Retry")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AdmittedRequest:
    """A request that was let in; ``body`` is what the engine gets."""

    service_id: str
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: bool = False
    adapter: str = ""  # which is to answer; empty: the service's own model
    keeps_usage: bool = False  # the client wants the event with the usage of a stream
    alias: str = ""  # what the client sees of a service of another project


@dataclass(frozen=True)
class AnswerOutcome:
    status: int
    tokens: Tokens


@dataclass
class _Answer:
    """The receiver of one attempt; it passes a stream on and collects anything else."""

    asked: AdmittedRequest
    reply: ClientReply
    http_status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    has_events: bool = False
    client_gone: bool = False

    def __post_init__(self) -> None:
        self.stream = self.reply.stream = EventStream(keeps_usage=self.asked.keeps_usage)

    @property
    def passes_on(self) -> bool:
        return self.asked.streams and self.http_status == 200

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.http_status = status
        self.headers = {name: headers[name] for name in _PASSED_HEADERS if name in headers}

    def data(self, chunk: bytes) -> Awaitable[None] | None:
        if not self.passes_on:
            self.body += chunk
            return None
        events = self.stream.feed(chunk)
        if self.stream.is_broken:
            return _refuse()
        if not events or self.client_gone:
            return None
        self.has_events = True
        if self.reply.first_token_at is None:
            self.reply.first_token_at = time.monotonic()
        written = self.reply.events(events)
        return None if written is None else self._sent(written)

    async def _sent(self, written: Awaitable[None]) -> None:
        try:
            await written
        except (ClientGone, StreamClosedError):
            self.client_gone = True


class Dispatch:
    """For one event loop."""

    def __init__(self, backend: GatewayBackend, pool: Pool, loads: Loads) -> None:
        self._backend = backend
        self._pool = pool
        self._loads = loads
        self._resting: dict[Endpoint, float] = {}
        self.is_closing = False  # requests are no longer held

    async def answer(self, asked: AdmittedRequest, reply: ClientReply) -> AnswerOutcome:
        """Answer the request. Raises NoReplica, LimitExceeded, NotFound and Conflict, while nothing was answered."""
        self._loads.came_in(asked.service_id)
        began, lost = time.monotonic(), 0
        while True:
            endpoint = await self._endpoint(asked, reply, began)
            answer, reply.endpoint = _Answer(asked, reply), endpoint
            try:
                with self._loads.answering(asked.service_id, endpoint):
                    await self._exchange(endpoint, asked, answer)
            except NotConnected as error:
                self._rest(endpoint, error)
                continue
            except BrokenExchange as error:
                self._rest(endpoint, error)
                lost += 1
                if answer.has_events:
                    return self._cut(answer)
                if lost >= MAX_LOST:
                    raise ReplicaLost(f"{lost} replicas ended while they answered this request") from error
                continue
            if answer.http_status == 503:
                self._rest(endpoint, _message(answer))
                continue
            if asked.alias and answer.http_status in (404, 409):  # it may name a job and a place of the other project
                raise Conflict(f"{asked.alias} can't be loaded where it is served")
            return self._completed(answer)

    def note_first_token(self, asked: AdmittedRequest, seconds: float) -> None:
        """How long a client has waited for the first token of a stream."""
        self._loads.first_tokens.note(asked.service_id, seconds)

    async def _exchange(self, endpoint: Endpoint, asked: AdmittedRequest, answer: _Answer) -> None:
        """Raises NotConnected, and BrokenExchange."""
        connection = await self._pool.take(endpoint)
        try:
            is_reusable = await exchange(connection, asked.path, asked.headers, asked.body, answer)
        except BrokenExchange:
            if not connection.is_reused or answer.http_status:
                raise
            # The engine closed it while it was idle: that says nothing of the replica.
            connection = await self._pool.take(endpoint, fresh=True)
            is_reusable = await exchange(connection, asked.path, asked.headers, asked.body, answer)
        if is_reusable:
            self._pool.give_back(connection)

    def _completed(self, answer: _Answer) -> AnswerOutcome:
        if not answer.passes_on:
            body = bytes(answer.body)
            if answer.reply.has_begun:  # a comment was sent: the status is 200, whatever the engine says
                answer.reply.failed(failure_of_answer(answer.http_status, body))
            else:
                answer.reply.whole(answer.http_status, answer.headers, body)
            return AnswerOutcome(answer.http_status, _tokens_of(body) if answer.http_status == 200 else Tokens())
        if not (answer.stream.is_complete or answer.stream.has_failed):
            return self._cut(answer)
        answer.reply.end()
        return AnswerOutcome(500 if answer.stream.has_failed else 200, answer.stream.tokens)

    def _cut(self, answer: _Answer) -> AnswerOutcome:
        """End a stream that has begun and can't be completed."""
        answer.reply.failed(failure_of(ReplicaLost("the replica ended before the answer was complete; ask again")))
        return AnswerOutcome(503, answer.stream.tokens)

    async def _endpoint(self, asked: AdmittedRequest, reply: ClientReply, began: float) -> Endpoint:
        """The replica with the least to do, or with the adapter; waits for one, as long as the service says."""
        view = await self._view(asked, VIEW_SECONDS)
        is_first = reply.stream is None  # it has not waited for a replica: a short patience does not count
        found = self._chosen(view, asked.adapter)
        if found is not None and (is_first or not self._is_late(view, began)):
            return found
        if self._loads.waiting(asked.service_id) >= view.limits.max_waiting:
            raise LimitExceeded(
                f"{view.limits.max_waiting} requests already wait for a replica of {view.name}{_because(view)}",
                retry_after_seconds=5,
            )
        with self._loads.held(asked.service_id):
            return await self._awaited(asked, reply, began)

    async def _awaited(self, asked: AdmittedRequest, reply: ClientReply, began: float) -> Endpoint:
        comment_at = time.monotonic() + FIRST_COMMENT_SECONDS
        while True:
            view = await self._view(asked, HELD_VIEW_SECONDS)
            if self.is_closing:
                raise NoReplica("this gateway is stopping; ask again", retry_after_seconds=1)
            if self._is_late(view, began):
                waited = f"no replica of {view.name} has answered within {view.limits.cold_start_seconds} s"
                raise NoReplica(f"{waited}{_because(view)}", retry_after_seconds=10)
            if (found := self._chosen(view, asked.adapter)) is not None:
                return found
            if asked.streams and time.monotonic() >= comment_at:
                await reply.comment(view.why or "waiting for a replica")
                comment_at = time.monotonic() + COMMENT_SECONDS
            await asyncio.sleep(HELD_POLL_SECONDS)

    async def _view(self, asked: AdmittedRequest, max_age: float) -> ServiceView:
        """The service, if it is open; one of another project shows neither its name nor why it has no replica."""
        view = await self._backend.service(asked.service_id, max_age=max_age)
        if not asked.alias:
            _refuse_if_closed(view)
            return view
        if view.status != ServiceState.ACTIVE:
            raise Conflict(f"the project of {asked.alias} does not serve it now")
        return replace(view, name=asked.alias, why="")

    def _chosen(self, view: ServiceView, adapter: str) -> Endpoint | None:
        now = time.monotonic()
        ready = [each for each in view.endpoints if self._resting.get(each, 0.0) <= now]
        return choosing.chosen(ready, self._loads.at, adapter)

    def _is_late(self, view: ServiceView, began: float) -> bool:
        return time.monotonic() - began > view.limits.cold_start_seconds

    def _rest(self, endpoint: Endpoint, why: object) -> None:
        now = time.monotonic()
        self._resting = {each: until for each, until in self._resting.items() if until > now}
        self._resting[endpoint] = now + REST_SECONDS
        logger.warning("the replica %s has not answered a request: %s", endpoint.job_id, why)


async def _refuse() -> None:
    raise BrokenExchange("what it sent is no stream of events")


def failure_of_answer(status: int, body: bytes) -> ErrorAnswer:
    """What the engine refused, for a stream whose status is already sent."""
    return ErrorAnswer(status, body if body.startswith(b"{") else failure_of(ReplicaLost("the engine failed")).body)


def _because(view: ServiceView) -> str:
    return f": {view.why}" if view.why else ""


def _refuse_if_closed(view: ServiceView) -> None:
    if view.status == ServiceState.PAUSED:
        raise Conflict(f"the service {view.name} is paused; POST /v1/services/{view.name}/resume continues it")
    if view.status != ServiceState.ACTIVE:
        raise NotFound(f"the service {view.name} was deleted")


def _tokens_of(body: bytes) -> Tokens:
    try:
        return tokens_of(json_decode(body).get("usage"))
    except (ValueError, AttributeError, RecursionError):
        return Tokens()


def _message(answer: _Answer) -> str:
    try:
        return str(json_decode(bytes(answer.body))["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "status 503"
