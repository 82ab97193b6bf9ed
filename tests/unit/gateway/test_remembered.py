"""What a gateway reads from the database: shared by those who want it at once, and renewed before they wait for it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from app.gateway.remembered import Remembered


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Readings:
    """Readings that end when the test allows it; each finds the next number."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.error: Exception | None = None

    async def read(self) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return number


@on_a_loop
async def test_requests_at_once_share_a_reading_and_its_error() -> None:
    found = Remembered[str, int](seconds=60.0, ahead=60.0)
    readings = Readings()
    readings.error = ValueError("the database is away")

    failed = await asyncio.gather(*(found.get("a", readings.read) for _ in range(3)), return_exceptions=True)
    readings.error = None
    again = await asyncio.gather(*(found.get("a", readings.read) for _ in range(3)))

    assert [type(each) for each in failed] == [ValueError] * 3
    assert again == [2, 2, 2]
    assert await found.get("b", readings.read) == 3


@on_a_loop
async def test_a_value_is_read_anew_while_requests_still_get_it() -> None:
    found = Remembered[str, int](seconds=60.0, ahead=0.0)
    readings = Readings()
    assert await found.get("a", readings.read) == 1

    readings.may_end.clear()
    meanwhile = [await found.get("a", readings.read) for _ in range(3)]
    readings.may_end.set()
    await asyncio.sleep(0.01)

    assert meanwhile == [1, 1, 1]
    assert await found.get("a", readings.read) == 2


@on_a_loop
async def test_a_value_whose_renewal_fails_is_given_to_nobody_any_more() -> None:
    found = Remembered[str, int](seconds=60.0, ahead=0.0)
    readings = Readings()
    await found.get("a", readings.read)
    readings.error = ValueError("the key was revoked")

    await found.get("a", readings.read)
    await asyncio.sleep(0.01)

    with pytest.raises(ValueError, match="revoked"):
        await found.get("a", readings.read)


@on_a_loop
async def test_a_value_that_is_too_old_is_waited_for() -> None:
    found = Remembered[str, int](seconds=60.0, ahead=60.0)
    readings = Readings()

    assert await found.get("a", readings.read) == 1
    assert await found.get("a", readings.read, max_age=-1.0) == 2


@on_a_loop
async def test_a_request_that_is_cancelled_takes_the_reading_of_no_other() -> None:
    found = Remembered[str, int](seconds=60.0, ahead=60.0)
    readings = Readings()
    readings.may_end.clear()
    first, second = (asyncio.ensure_future(found.get("a", readings.read)) for _ in range(2))
    await asyncio.sleep(0)

    first.cancel()
    await asyncio.sleep(0)
    readings.may_end.set()

    assert await second == 1
    assert first.cancelled()


@on_a_loop
async def test_a_reading_that_takes_long_is_joined_by_no_later_request() -> None:
    found = Remembered[str, str](seconds=0.02, ahead=0.02)
    may_end = {"valid": asyncio.Event(), "revoked": asyncio.Event()}

    def reading(value: str) -> Callable[[], Coroutine[Any, Any, str]]:
        async def read() -> str:
            await may_end[value].wait()
            return value

        return read

    before = asyncio.ensure_future(found.get("a", reading("valid"), max_age=60.0))
    await asyncio.sleep(0.05)
    after = asyncio.ensure_future(found.get("a", reading("revoked")))
    await asyncio.sleep(0)
    may_end["valid"].set()
    assert await before == "valid"
    joined = asyncio.ensure_future(found.get("a", reading("valid"), max_age=60.0))
    await asyncio.sleep(0)
    may_end["revoked"].set()

    assert await after == "revoked"
    assert await joined == "valid"  # the older reading found it at most 60 s ago


@on_a_loop
async def test_an_older_reading_takes_the_place_of_no_newer_one() -> None:
    found = Remembered[str, int](seconds=60.0, ahead=60.0)
    older, newer = Readings(), Readings()
    older.may_end.clear()
    newer.begun = 10
    late = asyncio.ensure_future(found.get("a", older.read))
    await asyncio.sleep(0.01)

    assert await found.get("a", newer.read, max_age=0.0) == 11
    older.may_end.set()

    assert await late == 1
    assert await found.get("a", newer.read) == 11
    assert newer.begun == 11


@on_a_loop
async def test_an_older_reading_that_fails_takes_nothing_from_a_newer_one() -> None:
    found = Remembered[str, int](seconds=60.0, ahead=60.0)
    older, newer = Readings(), Readings()
    older.may_end.clear()
    older.error = ValueError("the database is away")
    late = asyncio.ensure_future(found.get("a", older.read))
    await asyncio.sleep(0.01)

    assert await found.get("a", newer.read, max_age=0.0) == 1
    older.may_end.set()
    with pytest.raises(ValueError, match="away"):
        await late

    assert await found.get("a", newer.read) == 1
