"""Requests to models: reads and checks them, lets them in, and has them answered."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from marshmallow import Schema
from tornado.web import RequestHandler, stream_request_body

from app.compat.openai.answers.schemas import ChatSchema, CompletionSchema, EmbeddingSchema, RerankSchema
from app.compat.openai.problems import error_body
from app.domain.errors import InvalidRequest, TooLarge
from app.domain.spec.inference import EMBED, GENERATE, SCORE
from app.gateway.backend import Credentials, GatewayBackend
from app.gateway.cancelled import CancelledAnswers
from app.gateway.client_address import address_of
from app.gateway.dispatch import AdmittedRequest, AnswerOutcome, Dispatch
from app.gateway.event_stream import Tokens
from app.gateway.failures import NoReplica, failure_of
from app.gateway.figures import GatewayFigures
from app.gateway.limits import KeyLimits
from app.gateway.open_requests import OpenRequests
from app.gateway.reply import ClientGone, ClientReply
from app.gateway.samples import SampleBook
from app.gateway.usage_book import UsageBook
from app.http.auth import PROJECT_HEADER
from app.http.envelope import new_request_id
from app.http.errors import UnsupportedMediaType
from app.http.request_body import check_content, parse, validated
from app.security.permissions import Caller
from app.services.serving.routing import Route
from app.services.serving.usage import UsageKey
from config.logging import log_context
from config.settings import Settings

OPENAI_PROJECT_HEADER = "OpenAI-Project"
SMALL_BYTES = 64 << 10  # larger bodies are parsed on a thread
MOST_OVER = 4  # times the limit that a body is read, so that its client reads the refusal
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnswerKind:
    """One of OpenAI's paths: where engines answer it, by which schema it is checked, which services answer it."""

    path: str
    schema: Schema
    task: str


KINDS = {
    "chat/completions": AnswerKind("/v1/chat/completions", ChatSchema(), GENERATE),
    "completions": AnswerKind("/v1/completions", CompletionSchema(), GENERATE),
    "embeddings": AnswerKind("/v1/embeddings", EmbeddingSchema(), EMBED),
    "rerank": AnswerKind("/v1/rerank", RerankSchema(), SCORE),
}


@dataclass(frozen=True, kw_only=True)
class GatewayContext:
    """What requests share."""

    settings: Settings
    backend: GatewayBackend
    dispatch: Dispatch
    limits: KeyLimits
    usage: UsageBook
    samples: SampleBook
    cancelled: CancelledAnswers
    figures: GatewayFigures
    open_requests: OpenRequests


@stream_request_body
class AnswerHandler(RequestHandler):
    """One request to a model."""

    SUPPORTED_METHODS = ("POST",)

    def initialize(self, gateway: GatewayContext) -> None:
        self._gateway = gateway
        self._reply = ClientReply(self)
        self._body = bytearray()
        self._received = 0
        self._work: asyncio.Task[None] | None = None
        self._is_counted = False
        self._is_ended = False
        self._refusal: Exception | None = None  # sent once the body has come: then clients read it
        self._caller: Caller | None = None
        self._held = 0  # bytes of its body
        self._request_id = new_request_id()

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Cache-Control", "private, no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    async def prepare(self) -> None:  # the body is read when it is done
        self.set_header("X-Request-ID", self._request_id)
        self._is_counted = self._gateway.open_requests.enter()
        if not self._is_counted:
            self._fail(NoReplica("this gateway has as many requests open as it may", retry_after_seconds=2))
            return
        length = self.request.headers.get("Content-Length", "0")
        if length.isdigit() and int(length) > MOST_OVER * self._limit:
            self._fail(self._too_large())
            return
        if self._gateway.dispatch.is_closing:
            self.set_header("Connection", "close")
            self._refusal = _stopping()
            return
        try:
            self._caller = await self._gateway.backend.caller(self._credentials())
        except Exception as error:  # noqa: BLE001 – every failure is answered
            self._refusal = error

    def data_received(self, chunk: bytes) -> None:
        self._received += len(chunk)
        if self._refusal is not None and self._received <= MOST_OVER * self._limit:
            return
        if self._received <= self._limit:
            self._keep(chunk)
        elif self._received > MOST_OVER * self._limit and not self._finished:
            self._fail(self._too_large())

    def _keep(self, chunk: bytes) -> None:
        if self._gateway.open_requests.hold(len(chunk)):
            self._held += len(chunk)
            self._body += chunk
        else:
            self._refusal = NoReplica("this gateway holds as many bytes of requests as it may", retry_after_seconds=2)

    async def post(self, name: str) -> None:
        self._work = asyncio.create_task(self._answer(KINDS[name]))
        self._gateway.open_requests.enders.add(self.end)
        await asyncio.wait([self._work])
        if not self._work.cancelled() and (error := self._work.exception()) is not None:
            raise error

    def end(self) -> None:
        """The gateway stops: say so, also within a stream, and end the request."""
        if self._work is not None:
            self._is_ended = True
            self._work.cancel()

    def on_connection_close(self) -> None:
        """The client has hung up: end the request, also at the engine."""
        if self._work is not None:
            self._work.cancel()
        else:
            self._uncount()  # its body has not come whole

    def on_finish(self) -> None:
        self._uncount()

    def write_error(self, status_code: int, **_: Any) -> None:
        """For what the server itself refuses, such as another method."""
        is_method = status_code == 405
        code, message = ("method_not_allowed", "use POST") if is_method else ("internal", "internal error")
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(error_body(status_code, message, code, None)))

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        del typ, tb
        logger.error("a request failed", exc_info=value)

    @property
    def _limit(self) -> int:
        return self._gateway.settings.gateway.max_body_bytes

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body is larger than {self._limit} bytes, the limit of this gateway")

    def _fail(self, error: Exception) -> None:
        failure = failure_of(error)
        if failure.status == 401 and not self._reply.has_begun:
            self.set_header("WWW-Authenticate", 'Bearer realm="trainyard"')
        with contextlib.suppress(ClientGone):
            self._reply.failed(failure)

    async def _answer(self, kind: AnswerKind) -> None:
        with log_context(request=self._request_id):
            try:
                await self._let_in(kind)
            except Exception as error:  # noqa: BLE001 – every failure is answered
                self._fail(error)
            except asyncio.CancelledError:
                if self._is_ended:
                    self._fail(_stopping())
                raise
            finally:
                self._uncount()

    async def _let_in(self, kind: AnswerKind) -> None:
        if self._refusal is not None or self._caller is None:
            raise self._refusal or _stopping()
        caller = self._caller
        if self._received > self._limit:
            raise self._too_large()
        body = await self._checked(kind)
        model = str(body["model"])
        route = await self._gateway.backend.route(caller, model, kind.task)
        limits = self._gateway.limits
        try:
            limits.admit(caller)
        finally:
            self._reply.headers = limits.headers(caller)
        key = _usage_key(caller, route, model)
        await self._dispatched(_asked(kind, route, body, self._request_id), key, caller)

    async def _dispatched(self, asked: AdmittedRequest, key: UsageKey, caller: Caller) -> None:
        """Have it answered, and count what that took, however it ends."""
        began = time.monotonic()
        view = await self._gateway.backend.service(asked.service_id)
        # What another project asks is none of this one's.
        sample = self._reply.sample = None if asked.alias else self._gateway.samples.begin(view)
        outcome = AnswerOutcome(499, Tokens())  # the client hung up
        try:
            outcome = await self._gateway.dispatch.answer(asked, self._reply)
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if not asked.streams and self._reply.endpoint is not None:
                self._gateway.cancelled.count(self._reply.endpoint, self._request_id, key, caller)
            raise
        except Exception as error:
            outcome = AnswerOutcome(failure_of(error).status, Tokens())
            raise
        finally:
            if self._reply.stream is not None and not outcome.tokens.total:
                outcome = AnswerOutcome(outcome.status, self._reply.stream.tokens)  # what has come of it counts
            self._gateway.limits.charge(caller, outcome.tokens.total)
            self._gateway.usage.add(key, outcome.tokens, failed=outcome.status != 200)
            if sample is not None:
                self._gateway.samples.end(sample, asked, view, status=outcome.status, model=key.model)
            self._gateway.figures.count(asked.path, outcome.status, time.monotonic() - began)
            if self._reply.first_token_at is not None:
                self._gateway.figures.first_token(asked.path, self._reply.first_token_at - began)
                self._gateway.dispatch.note_first_token(asked, self._reply.first_token_at - began)

    async def _checked(self, kind: AnswerKind) -> dict[str, Any]:
        """The document that the client sent, as its schema has it."""
        media = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media != "application/json":
            raise UnsupportedMediaType("send JSON in UTF-8 with the header Content-Type: application/json")
        raw, most = bytes(self._body), self._gateway.settings.api.max_nesting
        if len(raw) <= SMALL_BYTES:
            return _validated(kind.schema, raw, most)
        return await self._gateway.backend.on_thread(_validated, kind.schema, raw, most)

    def _credentials(self) -> Credentials:
        headers = self.request.headers
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        return Credentials(
            key=key.strip() if scheme.lower() == "bearer" else "",
            project=(headers.get(OPENAI_PROJECT_HEADER) or headers.get(PROJECT_HEADER) or "").strip(),
            address=address_of(self.request, self._gateway.settings.api.proxies),
        )

    def _uncount(self) -> None:
        if self._is_counted:
            self._gateway.open_requests.leave()
            self._is_counted = False
        self._gateway.open_requests.enders.discard(self.end)
        self._gateway.open_requests.free(self._held)
        self._held = 0


def _stopping() -> NoReplica:
    return NoReplica("this gateway is stopping; ask again", retry_after_seconds=1)


def _validated(schema: Schema, raw: bytes, max_nesting: int) -> dict[str, Any]:
    document = parse(raw)
    if not isinstance(document, dict):
        raise InvalidRequest("the body must be a JSON object")
    check_content(document, max_nesting=max_nesting)
    loaded: dict[str, Any] = validated(schema, document)
    return loaded


def _asked(kind: AnswerKind, route: Route, body: Mapping[str, Any], request_id: str) -> AdmittedRequest:
    """What the engine gets: the body, with the usage of streams, and the adapter."""
    streams = bool(body.get("stream"))
    options = body.get("stream_options") or {}
    keeps_usage = bool(options.get("include_usage"))
    if streams:
        body = {**body, "stream_options": {**options, "include_usage": True}}
    headers = {"Content-Type": "application/json", "X-Request-ID": request_id}
    if route.adapter:
        headers["X-Trainyard-Adapter"] = route.adapter
    return AdmittedRequest(
        service_id=route.service_id,
        path=kind.path,
        body=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        headers=headers,
        streams=streams,
        adapter=route.adapter or "",
        keeps_usage=keeps_usage,
        alias=route.model if route.shared else "",
    )


def _usage_key(caller: Caller, route: Route, model: str) -> UsageKey:
    today = datetime.now(UTC).date()
    return UsageKey(
        day=today, key_id=caller.key_id, model=model[:255], project=route.project, service_id=route.service_id
    )
