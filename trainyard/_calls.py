"""Requests that are sent again when that helps and does no harm, and lists that go on page after page."""

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard._errors import ApiError, ClientError, NotFound, Unreachable
from trainyard._http import Query, Transport

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
BUSY = (429, 503)  # too many requests, and not ready yet: with a time after which to ask again
GATEWAYS = (502, 504)  # somebody between us and the server lost it
PAGE_SIZE = 100


@dataclass(frozen=True)
class Patience:
    """How often a connection that breaks is made again, and how long a server that can't answer now is waited for."""

    tries: int = 3
    seconds: float = 60.0


class Tries:
    """The tries of one request, counted from the server's last answer."""

    def __init__(self, patience: Patience) -> None:
        self._left = patience.tries
        self._ends_at = time.monotonic() + patience.seconds
        self._pause = FIRST_PAUSE_SECONDS
        self.lost_an_answer = False

    def pause(self, error: ClientError, *, least_seconds: float = 0.0) -> float:
        """How long to wait before the next one; raises the error when another is of no use, or too late."""
        seconds = max(least_seconds, self._pause * random.uniform(0.75, 1.25))  # noqa: S311 – so that not all come at once
        if isinstance(error, ApiError) and error.status not in GATEWAYS:
            if error.status not in BUSY or error.retry_after is None:
                raise error
            seconds = max(seconds, error.retry_after)
        else:
            self.lost_an_answer = True
            self._left -= 1
            if self._left <= 0:
                raise error
        if time.monotonic() + seconds > self._ends_at:
            raise error
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
        return seconds


class Calls:
    """What everything that a client offers is made of."""

    def __init__(self, http: Transport, patience: Patience) -> None:
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
    ) -> Any:
        """The ``data`` of the answer. A POST has an idempotency key, so that no try of it is done twice."""
        sent = dict(headers or {})
        if method == "POST":
            sent.setdefault("Idempotency-Key", str(uuid.uuid4()))
        query, tries = list(query), Tries(self.patience)
        while True:
            try:
                return self.http.json(method, path, query=query, body=body, headers=sent)
            except (Unreachable, ApiError) as error:
                if method == "DELETE" and isinstance(error, NotFound) and tries.lost_an_answer:
                    return None  # the try whose answer was lost has done it
                time.sleep(tries.pause(error))

    def record(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        """The same, of an answer that is an object."""
        return dict(self.send(method, path, **request))

    def pages(self, path: str, items: str, query: Query = ()) -> Iterator[dict[str, Any]]:
        """All items of a list, page after page as they are asked for."""
        given, token = list(query), ""
        while True:
            page = self.record("GET", path, query=[*given, ("page_size", PAGE_SIZE), *query_of(page_token=token)])
            yield from page[items]
            token = page.get("next_page_token") or ""
            if not token:
                return


def given(**values: Any) -> dict[str, Any]:
    """The values that were given at all, for a body in which what is left out stays as it is."""
    return {name: value for name, value in values.items() if value is not None}


def query_of(**values: Any) -> Iterable[tuple[str, Any]]:
    """Parameters of a query; a list's items one by one, a time as it is written, what was not given not at all."""
    for name, value in values.items():
        for one in value if isinstance(value, list | tuple | set | frozenset) else [value]:
            if one not in (None, ""):
                yield name, one.isoformat() if hasattr(one, "isoformat") else one


def several(texts: Iterable[str]) -> list[str]:
    """What was given as one of them alone is one: a text is iterable, too, and its letters are never meant."""
    return [texts] if isinstance(texts, str) else list(texts)
