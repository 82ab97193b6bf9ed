"""What a gateway counts, and what becomes of counts that can't be written."""

import asyncio
from collections.abc import Mapping
from datetime import date

from app.gateway.event_stream import Tokens
from app.gateway.loads import Loads
from app.gateway.open_requests import OpenRequests
from app.gateway.usage_book import UsageBook
from app.services.serving.endpoints import Endpoint
from app.services.serving.loads import Load
from app.services.serving.usage import UsageCounts, UsageKey

KEY = UsageKey(day=date(2026, 11, 29), key_id="key-1", model="m", project="default", service_id="service-1")
ENDPOINT = Endpoint(job_id="job-1", attempt=1, fence=1, address="127.0.0.1", port=1, revision=1, number=0)


class Store:
    """Fails the first ``failures`` times, then keeps what is written."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.usage: list[Mapping[UsageKey, UsageCounts]] = []
        self.loads: list[Mapping[str, Load]] = []

    async def write(self, counts: Mapping[UsageKey, UsageCounts]) -> None:
        self._fail()
        self.usage.append(counts)

    async def report(self, counts: Mapping[str, Load]) -> None:
        self._fail()
        self.loads.append(counts)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("the database is away")


def test_usage_is_summed_up_and_survives_a_failed_write() -> None:
    store = Store(failures=1)
    book = UsageBook(store.write)

    async def use() -> None:
        book.add(KEY, Tokens(3, 4), failed=False)
        await book.flush()
        book.add(KEY, Tokens(0, 0), failed=True)
        await book.flush()
        await book.flush()

    asyncio.run(use())

    assert store.usage == [{KEY: UsageCounts(requests=2, failures=1, prompt_tokens=3, completion_tokens=4)}]


def test_a_flush_that_is_cancelled_loses_nothing_and_counts_nothing_twice() -> None:
    written: list[Mapping[UsageKey, UsageCounts]] = []

    async def use() -> None:
        may_write = asyncio.Event()

        async def write(counts: Mapping[UsageKey, UsageCounts]) -> None:
            await may_write.wait()
            written.append(counts)

        book = UsageBook(write)
        book.add(KEY, Tokens(3, 4), failed=False)
        flush = asyncio.create_task(book.flush())
        await asyncio.sleep(0)
        flush.cancel()
        await asyncio.gather(flush, return_exceptions=True)
        may_write.set()
        await book.flush()

    asyncio.run(use())

    assert written == [{KEY: UsageCounts(requests=1, failures=0, prompt_tokens=3, completion_tokens=4)}]


def test_loads_are_reported_while_there_is_something_and_once_when_it_ends() -> None:
    store = Store()

    async def use() -> None:
        loads = Loads(store.report)
        loads.came_in("a")
        with loads.answering("a", ENDPOINT):
            assert loads.at(ENDPOINT) == 1
            await loads.report()
            await loads.report()
        with loads.held("a"):
            await loads.report()
        await loads.report()
        await loads.report()

    asyncio.run(use())

    assert [each["a"] for each in store.loads] == [
        Load(in_flight=1, requests=1),
        Load(in_flight=1, requests=1),
        Load(waiting=1, requests=1),
        Load(requests=1),
    ]


def test_a_report_that_failed_is_made_again() -> None:
    store = Store(failures=1)

    async def use() -> None:
        loads = Loads(store.report)
        loads.came_in("a")
        await loads.report()
        await loads.report()

    asyncio.run(use())

    assert store.loads == [{"a": Load(requests=1)}]


def test_so_many_requests_may_be_open() -> None:
    async def use() -> None:
        requests = OpenRequests(1, most_bytes=10)
        assert (requests.enter(), requests.enter()) == (True, False)
        requests.leave()
        await asyncio.wait_for(requests.gone(), 1)

    asyncio.run(use())
