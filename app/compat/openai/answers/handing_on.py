"""Hands a request on to a gateway, and its answer back as it comes, so that clients need one address."""

import http.client
import logging
import select
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from flask import Response, request

from app.compat.openai.answers.problems import error_body
from app.compat.openai.dialect import PROJECT_HEADER
from app.domain.errors import TooLarge
from app.http.auth import PROJECT_HEADER as NATIVE_PROJECT_HEADER
from app.http.context import backend, holder
from app.http.envelope import json_response
from app.http.request_body import JsonBody, read_body
from app.http.sse import client_is_gone

NO_GATEWAY = "NO_GATEWAY"
RETRY_AFTER_SECONDS = 5
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 900.0  # after which a gateway is taken for dead; it sends comments while requests wait
_HANGUP_SECONDS = 1.0  # between two tests whether the client still waits
_CHUNK_BYTES = 64 << 10
_SENT = ("Authorization", PROJECT_HEADER, NATIVE_PROJECT_HEADER)
_RETURNED = ("Content-Type", "Retry-After", "X-Should-Retry", "WWW-Authenticate", "X-Accel-Buffering")
_RATES = "x-ratelimit-"
logger = logging.getLogger(__name__)


class AnswerBody(JsonBody):
    """A JSON object of a size that gateways take; it is checked here, and sent on as the client has sent it."""

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:
        limit = backend().settings.gateway.max_body_bytes
        if (request.content_length or 0) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes, the most that is taken here")
        request.max_content_length = limit
        return read_body(optional=optional, max_nesting=max_nesting)


def answered(path: str) -> Response:
    """A gateway's answer to this request, at that path. Raises LimitExceeded when too many streams are open."""
    url = backend().settings.gateway.url
    if not url:
        return _unavailable("no gateway answers requests to models here: start one, and set TRAINYARD_GATEWAY_URL")
    with ExitStack() as opened:
        taker = holder()
        backend().streams.take(taker)
        opened.callback(backend().streams.give_back, taker)
        connection = _connection(url)
        opened.callback(connection.close)
        try:
            answer = _asked(connection, f"{urlsplit(url).path.rstrip('/')}{path}")
        except (OSError, http.client.HTTPException) as error:
            logger.warning("the gateway at %s does not answer: %s", url, error)
            return _unavailable("the gateway does not answer; retry later")
        opened.callback(answer.close)
        response = Response(_chunks(answer), status=answer.status, headers=_headers(answer))
        response.call_on_close(opened.pop_all().close)
    return response


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS)


def _asked(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    """The head of the answer. Raises OSError and HTTPException."""
    connection.connect()
    connection.sock.settimeout(SILENCE_SECONDS)
    headers = {name: request.headers[name] for name in _SENT if name in request.headers}
    connection.request("POST", path, request.get_data(), {**headers, "Content-Type": "application/json"})
    while not select.select([connection.sock], [], [], _HANGUP_SECONDS)[0]:
        if client_is_gone():
            raise ConnectionAbortedError("the client has hung up")
    return connection.getresponse()


def _headers(answer: http.client.HTTPResponse) -> dict[str, str]:
    returned = [name for name in answer.headers if name in _RETURNED or name.lower().startswith(_RATES)]
    return {name: answer.headers[name] for name in returned}


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The answer's parts. An answer that breaks off ends without its last chunk: clients must not take it for whole."""
    yield from iter(partial(answer.read1, _CHUNK_BYTES), b"")


def _unavailable(message: str) -> Response:
    response = json_response(error_body(503, message, NO_GATEWAY, None), 503)
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    response.headers["X-Should-Retry"] = "true"
    return response
