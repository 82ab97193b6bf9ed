"""Server-sent events: frames with ids, heartbeat comments, and an explicit end."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import Response, request, stream_with_context

from app.domain.errors import InvalidRequest
from app.http.context import backend, dialect, holder, plane
from app.http.envelope import request_id, to_json
from app.http.errors import stream_problem
from app.http.slots import Slots
from config.logging import log_context

# Streams are often opened for what is about to start, and its first event should not wait: see StreamPace for later.
OPENING_SECONDS, OPENING_POLL_SECONDS = 1.0, 0.05


@dataclass(frozen=True)
class EventFrame:
    """One event; a client that sends ``id`` as Last-Event-ID resumes after it."""

    id: str
    data: Any


@dataclass(frozen=True, kw_only=True)
class StreamFormat:
    """The encoding of a stream; ``idle`` is the heartbeat, empty for a format without one."""

    mimetype: str
    opening: str
    idle: str
    closing: str
    frame: Callable[[EventFrame], str]
    failure: Callable[[dict[str, Any]], str]


EVENTS = StreamFormat(
    mimetype="text/event-stream",
    opening=": open\n\n",
    idle=": heartbeat\n\n",
    closing="data: [DONE]\n\n",
    frame=lambda frame: f"id: {frame.id}\ndata: {to_json(frame.data)}\n\n",
    failure=lambda problem: f"event: error\ndata: {to_json(problem)}\n\n",
)
# Text: frames that are already in the stream's format. None: no new frame yet; the end of the feed ends the stream.
Feed = Iterator[EventFrame | str | None]


def wants_events(*, by_default: bool) -> bool:
    """Whether the client accepts an event stream in preference to JSON."""
    offers = ["text/event-stream", "application/json"]
    best = request.accept_mimetypes.best_match(offers if by_default else offers[::-1])
    return (best == offers[0]) if best is not None else by_default


def last_event_id(pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The match of the Last-Event-ID to resume after, None to start at the beginning. Raises InvalidRequest."""
    given = request.headers.get("Last-Event-ID", "").strip()
    if not given:
        return None
    match = pattern.fullmatch(given)
    if match is None:
        raise InvalidRequest("the Last-Event-ID is not an id of this stream; omit it to start from the beginning")
    return match


def stream(feed: Feed, form: StreamFormat = EVENTS, *, slots: Slots | None = None) -> Response:
    """Stream a feed until it ends. Raises LimitExceeded when too many streams are open, as ``slots`` count them."""
    slots, taker = slots or backend().streams, holder()
    slots.take(taker)
    response = Response(stream_with_context(_frames(feed, form)), mimetype=form.mimetype)
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(partial(slots.give_back, taker))
    return response


def _frames(feed: Feed, form: StreamFormat) -> Iterator[str]:
    pace = backend().pace
    opened_at = sent_at = checked_at = time.monotonic()
    try:
        if form.opening:
            yield form.opening
        for frame in feed:
            now = time.monotonic()
            if frame is not None:
                yield frame if isinstance(frame, str) else form.frame(frame)
                sent_at = now
            elif form.idle and now - sent_at >= pace.heartbeat_seconds:
                yield form.idle
                sent_at = now
            elif client_is_gone():
                return
            else:
                is_opening = now - opened_at < OPENING_SECONDS
                time.sleep(min(OPENING_POLL_SECONDS, pace.poll_seconds) if is_opening else pace.poll_seconds)
            if now - checked_at >= pace.recheck_seconds:
                dialect().caller(plane().db, None)
                checked_at = now
    except Exception as error:  # noqa: BLE001 - the status was already sent: report the error as an event
        with log_context(request=request_id()):
            problem = stream_problem(error)
        yield form.failure(problem)
        return
    if form.closing:
        yield form.closing


def client_is_gone() -> bool:
    """Whether the client has disconnected, without waiting for a failing write."""
    connection = request.environ.get("gunicorn.socket")
    if connection is None:
        return False
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"")
    except BlockingIOError:
        return False
    except OSError:
        return True
