"""Hands a request on to a gateway, and its answer back as it comes, so that clients need one address."""

import http.client
import json
import logging
import math
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

from flask import Response, request

from app.compat.openai.dialect import PROJECT_HEADER
from app.compat.openai.problems import error_body
from app.domain.errors import TooLarge
from app.http.auth import PROJECT_HEADER as NATIVE_PROJECT_HEADER
from app.http.context import backend, holder
from app.http.envelope import json_response
from app.http.request_body import JsonBody, read_body
from app.http.sse import client_is_gone

NO_GATEWAY, GATEWAY_LOST = "NO_GATEWAY", "GATEWAY_LOST"
_NONE = "no gateway answers requests to models here: start one, and set TRAINYARD_GATEWAY_URL"
_END_OF_EVENT = b"\n\n"
RETRY_AFTER_SECONDS = 5
CONNECT_SECONDS = 5.0
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
    """A gateway's answer to this request, at that path. Raises LimitExceeded when too many requests are handed on."""
    url = backend().settings.gateway.url
    if not url:
        return _unavailable(_NONE)
    with ExitStack() as opened:
        taker = holder()
        backend().answers.take(taker)
        opened.callback(backend().answers.give_back, taker)
        connection = _connection(url)
        opened.callback(connection.close)
        try:
            connection.connect()
            answer = _asked(connection, _target(url, path), request.get_data(), math.inf)
        except (OSError, http.client.HTTPException) as error:
            logger.warning("the gateway at %s does not answer: %s", url, error)
            return _unavailable("the gateway does not answer; retry later")
        opened.callback(answer.close)
        response = Response(_parts(answer, url), status=answer.status, headers=_headers(answer))
        response.call_on_close(opened.pop_all().close)
    return response


def asked(path: str, document: Mapping[str, Any], seconds: float) -> tuple[int, bytes]:
    """Status and body of a gateway's answer to another request of this caller, whole within so many seconds.

    Raises OSError and HTTPException where none answers, and LimitExceeded when too many requests are handed on.
    """
    url = backend().settings.gateway.url
    if not url:
        raise ConnectionRefusedError(_NONE)
    until = time.monotonic() + seconds
    with backend().answers.held(holder()), closing(_connection(url, min(CONNECT_SECONDS, seconds))) as connection:
        connection.connect()
        socket = connection.sock
        answer = _asked(connection, _target(url, path), json.dumps(document).encode(), until)
        content = bytearray()
        for chunk in _chunks(answer):
            content += chunk
            socket.settimeout(_left(until))
        return answer.status, bytes(content)


def _target(url: str, path: str) -> str:
    return f"{urlsplit(url).path.rstrip('/')}{path}"


def _connection(url: str, seconds: float = CONNECT_SECONDS) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=seconds)


def _left(until: float) -> float:
    """Seconds. Raises TimeoutError."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError("it takes longer than it may")
    return left


def _asked(connection: http.client.HTTPConnection, path: str, content: bytes, until: float) -> http.client.HTTPResponse:
    """The head of the answer, over a connection that is open. Raises OSError and HTTPException."""
    silence = min(backend().settings.gateway.silence_seconds, _left(until))
    connection.sock.settimeout(silence)
    headers = {name: request.headers[name] for name in _SENT if name in request.headers}
    connection.request("POST", path, content, {**headers, "Content-Type": "application/json"})
    _await_answer(connection.sock.fileno(), silence)
    return connection.getresponse()


def _await_answer(descriptor: int, silence: float) -> None:
    """Until there is something to read. Raises OSError when the client hangs up, and after so many seconds."""
    poll = select.poll()  # select() takes descriptors up to 1023 only
    poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + silence
    while not poll.poll(min(_HANGUP_SECONDS, silence) * 1000):
        if client_is_gone():
            raise ConnectionAbortedError("the client has hung up")
        if time.monotonic() >= deadline:
            raise TimeoutError(f"it has sent nothing for {silence:g} s")


def _headers(answer: http.client.HTTPResponse) -> dict[str, str]:
    returned = [name for name in answer.headers if name in _RETURNED or name.lower().startswith(_RATES)]
    return {name: answer.headers[name] for name in returned}


def _parts(answer: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    """The answer's parts. A stream that breaks off ends with an error; of any other answer the connection is cut."""
    is_stream = answer.headers.get_content_type() == "text/event-stream"
    try:
        yield from _events(answer) if is_stream else _chunks(answer)
    except (OSError, http.client.HTTPException) as error:
        logger.warning("the gateway at %s has broken off within an answer: %r", url, error)
        if not is_stream:
            raise
        problem = error_body(502, "the gateway was lost within the answer; ask again", GATEWAY_LOST, None)
        yield b"data: " + json.dumps(problem).encode() + _END_OF_EVENT


def _events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Whole events only, so that what follows a stream that breaks off is an event of its own."""
    begun = b""
    for chunk in _chunks(answer):
        whole, end, begun = (begun + chunk).rpartition(_END_OF_EVENT)
        if end:
            yield whole + end
    if begun:
        yield begun


def _chunks(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The answer's parts. Raises IncompleteRead when it breaks off, so that clients do not take it for a whole one."""
    left = answer.length  # None: it comes in chunks, the last of which `read1` waits for
    while left != 0 and (chunk := answer.read1(_CHUNK_BYTES)):
        left = left - len(chunk) if left is not None else None
        yield chunk
    if left:  # `read1` does not say that something is missing
        raise http.client.IncompleteRead(b"", left)


def _unavailable(message: str) -> Response:
    response = json_response(error_body(503, message, NO_GATEWAY, None), 503)
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    response.headers["X-Should-Retry"] = "true"
    return response
