"""Server-sent events: frames with ids, a comment when nothing happens, and a clear end."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flask import Response, request, stream_with_context

from app.domain.errors import InvalidRequest
from app.http.context import backend, dialect, plane
from app.http.envelope import request_id, to_json
from app.http.errors import stream_problem
from config.logging import log_context


@dataclass(frozen=True)
class Frame:
    """One event; a client that says ``id`` again gets what comes after it."""

    id: str
    data: Any


@dataclass(frozen=True, kw_only=True)
class Form:
    """How frames travel; ``idle`` says that there is nothing new, empty for a form that has no word for it."""

    mimetype: str
    opening: str
    idle: str
    closing: str
    frame: Callable[[Frame], str]
    failure: Callable[[dict[str, Any]], str]


EVENTS = Form(
    mimetype="text/event-stream",
    opening=": open\n\n",
    idle=": nothing new\n\n",
    closing="data: [DONE]\n\n",
    frame=lambda frame: f"id: {frame.id}\ndata: {to_json(frame.data)}\n\n",
    failure=lambda problem: f"event: error\ndata: {to_json(problem)}\n\n",
)
# None says that there is nothing new now; the end of the feed is the end of the stream.
Feed = Iterator[Frame | None]


def wants_events(*, by_default: bool) -> bool:
    """Whether the client asked for a stream rather than for JSON."""
    offers = ["text/event-stream", "application/json"]
    best = request.accept_mimetypes.best_match(offers if by_default else offers[::-1])
    return (best == offers[0]) if best is not None else by_default


def last_event_id(pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The id after which to go on; None from the beginning. Raises InvalidRequest for one that we never gave."""
    given = request.headers.get("Last-Event-ID", "").strip()
    if not given:
        return None
    match = pattern.fullmatch(given)
    if match is None:
        raise InvalidRequest("the Last-Event-ID is not an id of this stream; leave it out to begin anew")
    return match


def stream(feed: Feed, form: Form = EVENTS) -> Response:
    """Send a feed until it ends. Raises LimitExceeded when too many streams are open."""
    slots = backend().streams
    slots.take()
    response = Response(stream_with_context(_frames(feed, form)), mimetype=form.mimetype)
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(slots.give_back)
    return response


def _frames(feed: Feed, form: Form) -> Iterator[str]:
    pace = backend().pace
    sent_at = checked_at = time.monotonic()
    try:
        if form.opening:
            yield form.opening
        for frame in feed:
            now = time.monotonic()
            if frame is not None:
                yield form.frame(frame)
                sent_at = now
            elif form.idle and now - sent_at >= pace.heartbeat_seconds:
                yield form.idle
                sent_at = now
            elif _client_is_gone():
                return
            else:
                time.sleep(pace.poll_seconds)
            if now - checked_at >= pace.recheck_seconds:
                dialect().caller(plane().db, None)
                checked_at = now
    except Exception as error:  # noqa: BLE001 - the status was sent long ago: an event must tell
        with log_context(request=request_id()):
            problem = stream_problem(error)
        yield form.failure(problem)
        return
    if form.closing:
        yield form.closing


def _client_is_gone() -> bool:
    """Whether the other end has hung up; only writing would show it otherwise, and there may be nothing to write."""
    connection = request.environ.get("gunicorn.socket")
    if connection is None:
        return False
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"")
    except BlockingIOError:
        return False
    except OSError:
        return True
