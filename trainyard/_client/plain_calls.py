"""Requests whose answers have no envelope, as OpenAI's API has them: files and batches."""

import http.client
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainyard._client.calls import Calls, RetryState, query_of
from trainyard._client.errors import ApiError, ClientError, NotFound, Unreachable
from trainyard._client.http import Content, Query
from trainyard.protocol.json import JSON

# Completing an upload writes its parts once more, as one file.
_SLOW_ANSWER_SECONDS = 900.0
# Method, path, body: made anew for each try, because a body that is sent as it is read can be read once.
Request = Callable[[], tuple[str, str, Mapping[str, Any] | Content | None]]


class PlainCalls:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def send(self, method: str, path: str, *, query: Query = (), body: Mapping[str, Any] | None = None) -> JSON:
        return self.retried(lambda: (method, path, body), query=query)

    def items(self, path: str, *, page_size: int, query: Iterable[tuple[str, Any]] = ()) -> Iterator[JSON]:
        """All items of a list, page after page."""
        wanted, after = list(query), ""
        while True:
            page = self.send("GET", path, query=[*wanted, *query_of(limit=page_size, after=after)])
            yield from page["data"]
            after = page.get("last_id") or ""
            if not (page["has_more"] and after):
                return

    def retried(self, request: Request, *, query: Query = ()) -> JSON:
        """The answer. A POST carries an idempotency key: retries have no second effect."""
        headers, tries = {"Idempotency-Key": str(uuid.uuid4())}, RetryState(self._calls.patience)
        while True:
            method, path, body = request()
            sent = headers if method == "POST" else {}
            try:
                return self._answer(method, path, query, body, sent)
            except (Unreachable, ApiError) as error:
                if method == "DELETE" and isinstance(error, NotFound) and tries.lost_an_answer:
                    return None  # an earlier try whose answer was lost has succeeded
                time.sleep(tries.pause(error))

    def _answer(
        self, method: str, path: str, query: Query, body: Mapping[str, Any] | Content | None, headers: Mapping[str, str]
    ) -> JSON:
        server, seconds = self._calls.http, _SLOW_ANSWER_SECONDS if method == "POST" else None
        with server.open(method, path, query=query, body=body, headers=headers, timeout_seconds=seconds) as response:
            try:
                return json.loads(response.read())
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(f"the connection to {server.url} broke: {error}") from error
            except ValueError as error:
                raise ClientError(f"{server.url}{path} did not answer like a Trainyard server") from error
