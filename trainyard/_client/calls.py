"""Requests with safe retries, and paginated lists."""

import http.client
import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard._client.errors import ApiError, ClientError, NoServer, NotFound, Unreachable
from trainyard._client.events import SILENCE_SECONDS, StreamEvent, follow
from trainyard._client.http import Query, Transport
from trainyard.protocol.json import JSON

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
BUSY = (429, 503)  # too many requests, or not ready; Retry-After says when to retry
GATEWAYS = (502, 504)  # a gateway between client and server lost the request
PAGE_SIZE = 100
TOKEN_HEADERS = {"scaidrive": "X-ScaiDrive-Token", "scaiatlas": "X-ScaiAtlas-Token", "user": "X-User-Token"}


@dataclass(frozen=True)
class RetryPolicy:
    """How often a broken connection is retried, and how long to wait for a server that is busy.

    Without ``retries_refused`` a connection that this machine itself refuses is not retried: no server runs there.
    """

    tries: int = 3
    seconds: float = 60.0
    retries_refused: bool = True


class RetryState:
    """Retry state of one request, counted from the server's last answer."""

    def __init__(self, patience: RetryPolicy) -> None:
        self._patience, self._left = patience, patience.tries
        self._ends_at = time.monotonic() + patience.seconds
        self._pause = FIRST_PAUSE_SECONDS
        self.lost_an_answer = False

    def pause(self, error: ClientError, *, least_seconds: float = 0.0) -> float:
        """Seconds to wait before the next try; raises the error when a retry is useless or too late."""
        seconds = max(least_seconds, self._pause * random.uniform(0.75, 1.25))  # noqa: S311 – so that not all come at once
        if isinstance(error, ApiError) and error.status not in GATEWAYS:
            if error.status not in BUSY or error.retry_after is None:
                raise error
            seconds = max(seconds, error.retry_after)
        else:
            if isinstance(error, NoServer) and error.refused_here and not self._patience.retries_refused:
                raise error
            self.lost_an_answer = True
            self._left -= 1
            if self._left <= 0:
                raise error
        if time.monotonic() + seconds > self._ends_at:
            raise error
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        return seconds


class Calls:
    """Shared by all parts of a client."""

    def __init__(self, http: Transport, patience: RetryPolicy) -> None:
        self.http = http
        self.patience = patience

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JSON:
        """The ``data`` of the answer. A POST carries an idempotency key, so that retries have no second effect."""
        sent = dict(headers or {})
        if method == "POST":
            sent.setdefault("Idempotency-Key", str(uuid.uuid4()))
        query, tries = list(query), RetryState(self.patience)
        while True:
            try:
                return self.http.json(method, path, query=query, body=body, headers=sent)
            except (Unreachable, ApiError) as error:
                if method == "DELETE" and isinstance(error, NotFound) and tries.lost_an_answer:
                    return None  # an earlier try whose answer was lost has succeeded
                time.sleep(tries.pause(error))

    def record(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """As `send`, for an answer that is an object."""
        return dict(self.send(method, path, **request))

    def pages(self, path: str, items: str, query: Query = ()) -> Iterator[dict[str, Any]]:
        """All items of a list, fetched page by page on demand."""
        without_unset, token = list(query), ""
        while True:
            page = self.record(
                "GET", path, query=[*without_unset, ("page_size", PAGE_SIZE), *query_of(page_token=token)]
            )
            yield from page[items]
            token = page.get("next_page_token") or ""
            if not token:
                return

    def first(self, path: str, items: str, query: Query, *, most: int) -> tuple[list[dict[str, Any]], int]:
        """The first ``most`` items of a list, and how many it has."""
        fixed, found, token = list(query), list[dict[str, Any]](), ""
        while True:
            size = ("page_size", min(PAGE_SIZE, most - len(found)))
            page = self.record("GET", path, query=[*fixed, size, *query_of(page_token=token)])
            found += page[items]
            token = page.get("next_page_token") or ""
            if not token or len(found) >= most:
                return found, page["total_count"]

    def stream(self, path: str, query: Query = (), *, last_id: str = "") -> Iterator[StreamEvent]:
        """The events of a stream, from the one after ``last_id`` until the server ends it."""
        wanted = list(query)

        def connect(after: str) -> http.client.HTTPResponse:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
            return self.http.open("GET", path, query=wanted, headers=headers, timeout_seconds=SILENCE_SECONDS)

        return follow(connect, last_id=last_id, patience_seconds=self.patience.seconds)


def forwarded(tokens: Mapping[str, str] | None) -> dict[str, str]:
    """The headers that forward a user's tokens, those of ``TOKEN_HEADERS``."""
    return {TOKEN_HEADERS[name]: token for name, token in (tokens or {}).items()}


def without_unset(**values: Any) -> dict[str, Any]:
    """The values that were passed, for a body in which omitted fields stay unchanged."""
    return {name: value for name, value in values.items() if value is not None}


def query_of(**values: Any) -> Iterable[tuple[str, Any]]:
    """Query parameters: a list's items one by one, times formatted, unset values omitted."""
    for name, value in values.items():
        for one in value if isinstance(value, list | tuple | set | frozenset) else [value]:
            if one not in (None, ""):
                yield name, one.isoformat() if hasattr(one, "isoformat") else one


def as_list(texts: Iterable[str]) -> list[str]:
    """A list, where a single text counts as one item instead of an iterable of characters."""
    return [texts] if isinstance(texts, str) else list(texts)
