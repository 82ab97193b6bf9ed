"""Server-sent events that go on after a broken connection, without loss or repeats."""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from trainyard._http import ApiError, Unreachable

DONE = "[DONE]"
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class StreamEvent:
    """One event of a stream; ``id`` is what a later stream may continue after."""

    id: str
    data: Any


Connect = Callable[[str], IO[bytes]]  # takes the last id that was seen, "" at first


def follow(connect: Connect, *, last_id: str = "", patience_seconds: float = 60.0) -> Iterator[StreamEvent]:
    """Events until the server says that all is sent.

    A connection that breaks is made again and continues after the last event; Unreachable is raised after
    ``patience_seconds`` without a single event, ApiError at once when the server refuses.
    """
    pause, quiet_since = FIRST_PAUSE_SECONDS, time.monotonic()
    while True:
        try:
            with connect(last_id) as response:
                for name, event_id, text in parse(response):
                    if text == DONE:
                        return
                    if name == "error":
                        raise Unreachable(_message(text))
                    last_id = event_id or last_id
                    pause, quiet_since = FIRST_PAUSE_SECONDS, time.monotonic()
                    yield StreamEvent(last_id, json.loads(text))
            failure: Exception = Unreachable("the stream ended before its end was told")
        except ApiError as error:
            if error.status < 500:
                raise
            failure = error
        except (Unreachable, OSError, http.client.HTTPException) as error:
            failure = error
        if time.monotonic() - quiet_since > patience_seconds:
            raise Unreachable(f"the stream broke and could not be continued: {failure}") from failure
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def parse(lines: Iterable[bytes]) -> Iterator[tuple[str, str, str]]:
    """(event name, id, data) of each complete event; comments are skipped, an unfinished event is dropped."""
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
        if field == "data":
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
