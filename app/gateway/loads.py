"""Counts requests by service and replica, and reports the counts, by which services get more or fewer replicas."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

from app.gateway.first_tokens import FirstTokens
from app.services.serving.endpoints import Endpoint
from app.services.serving.loads import Load

REPORT_SECONDS = 1.0
SHORTEST_PAUSE_SECONDS = 0.1
logger = logging.getLogger(__name__)

_Name = TypeVar("_Name")
Report = Callable[[Mapping[str, Load]], Awaitable[None]]


class Loads:
    """For one event loop. ``run`` reports each second what there is, and at once when a request begins to wait."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._in_flight: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self.first_tokens = FirstTokens()
        self._of_endpoint: Counter[Endpoint] = Counter()
        self._reported: dict[str, Load] = {}
        self._begins_to_wait = asyncio.Event()

    def came_in(self, service_id: str) -> None:
        self._requests[service_id] += 1

    def waiting(self, service_id: str) -> int:
        return self._waiting[service_id]

    def at(self, endpoint: Endpoint) -> int:
        """Requests of this gateway that the replica is answering."""
        return self._of_endpoint[endpoint]

    @property
    def open(self) -> tuple[int, int]:
        """All requests in flight, and all that wait."""
        return self._in_flight.total(), self._waiting.total()

    @contextlib.contextmanager
    def held(self, service_id: str) -> Iterator[None]:
        """Counts a request as waiting."""
        self._waiting[service_id] += 1
        self._begins_to_wait.set()
        try:
            yield
        finally:
            _less(self._waiting, service_id)

    @contextlib.contextmanager
    def answering(self, service_id: str, endpoint: Endpoint) -> Iterator[None]:
        """Counts a request as in flight, at this replica."""
        self._in_flight[service_id] += 1
        self._of_endpoint[endpoint] += 1
        try:
            yield
        finally:
            _less(self._in_flight, service_id)
            _less(self._of_endpoint, endpoint)

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._begins_to_wait.wait(), REPORT_SECONDS)
            self._begins_to_wait.clear()
            await self.report()
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)

    async def report(self) -> None:
        """Report services with something to count, and those whose counts have changed."""
        now = {
            service: Load(
                in_flight=self._in_flight[service],
                waiting=self._waiting[service],
                requests=requests,
                first_tokens=self.first_tokens.counts(service),
            )
            for service, requests in list(self._requests.items())
        }
        due = {
            service: load
            for service, load in now.items()
            if load.in_flight or load.waiting or load != self._reported.get(service)
        }
        if not due:
            return
        try:
            await self._report(due)
        except Exception:
            logger.warning("the counts of requests could not be reported", exc_info=True)
        else:
            self._reported.update(due)


def _less(counter: Counter[_Name], name: _Name) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
