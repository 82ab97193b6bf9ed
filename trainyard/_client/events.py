"""Server-sent events that resume after a broken connection, without loss or repeats."""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from trainyard._client.errors import ApiError, Unreachable

DONE = "[DONE]"
COMMENT = ":"  # stands for an event name that no server can send
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
# The server sends at least a comment every 15 s.
SILENCE_SECONDS = 40.0


@dataclass(frozen=True)
class StreamEvent:
    """One event of a stream; ``id`` is what a later stream may continue after."""

    id: str
    data: Any


Connect = Callable[[str], AbstractContextManager[Iterable[bytes]]]  # takes the last event id, "" at first


def follow(connect: Connect, *, last_id: str = "", patience_seconds: float = 60.0) -> Iterator[StreamEvent]:
    """Events until the server announces the end of the stream.

    A broken connection is reopened and continues after the last event. Raises Unreachable after ``patience_seconds``
    without a sign of life, and ApiError at once when the server refuses.
    """
    life = _StreamHealth(patience_seconds)
    while True:
        try:
            for event in _connection(connect, last_id, life):
                last_id = event.id
                yield event
                life.sign()  # the consumer may have taken its time
        except (ApiError, Unreachable, OSError, http.client.HTTPException) as error:
            time.sleep(life.pause(error))
        else:
            return


def _connection(connect: Connect, last_id: str, life: "_StreamHealth") -> Iterator[StreamEvent]:
    """The events of one connection; raises unless the stream is complete."""
    with connect(last_id) as response:
        for number, (name, event_id, text) in enumerate(parse(response)):
            if text == DONE:
                return
            if name == "error":
                raise Unreachable(_message(text))
            # The first comment only opens a stream; a later one shows that the server is streaming.
            if name != COMMENT or number > 0:
                life.sign()
            if name != COMMENT:
                last_id = event_id or last_id
                yield StreamEvent(last_id, json.loads(text))
    raise Unreachable("the stream ended without its end marker")


class _StreamHealth:
    """How long a stream has been silent, and how long to wait before reconnecting."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self.sign()

    def sign(self) -> None:
        self._last_event_at, self._pause = time.monotonic(), FIRST_PAUSE_SECONDS

    def pause(self, error: Exception) -> float:
        """Seconds to wait; raises the error, or Unreachable when the silence lasts too long."""
        seconds = self._pause
        if isinstance(error, ApiError):
            if error.status < 500 and (error.status != 429 or error.retry_after is None):
                raise error
            seconds = max(seconds, error.retry_after or 0.0)
        if time.monotonic() + seconds - self._last_event_at > self._patience_seconds:
            raise Unreachable(f"the stream broke and could not be continued: {error}") from error
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        return seconds


def parse(lines: Iterable[bytes]) -> Iterator[tuple[str, str, str]]:
    """(event name, id, data) of each complete event and comment; an unfinished event is dropped."""
    name, event_id = "", ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data:
                yield name, event_id, "\n".join(data)
            name, event_id, data = "", "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not field:
            yield COMMENT, "", value
        elif field == "data":
            data.append(value)
        elif field == "id":
            event_id = value
        elif field == "event":
            name = value


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text
