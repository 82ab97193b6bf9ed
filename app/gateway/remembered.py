"""What was read from the database a moment ago: requests that want the same at a time share one reading of it."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

MOST = 10_000  # names whose values are remembered
_Name = TypeVar("_Name", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _Known(Generic[_Value]):
    value: _Value
    read_at: float  # on the monotonic clock, before the reading began


@dataclass(frozen=True)
class _Reading(Generic[_Value]):
    task: "asyncio.Task[_Value]"
    began: float


class Remembered(Generic[_Name, _Value]):
    """For one event loop.

    A value older than ``ahead`` seconds is read anew while requests still get it: none waits for a reading as long as
    requests keep coming. No request gets one that was older than ``seconds`` when it asked, also where a reading takes
    longer than that: then another one begins beside it. A failed reading is not remembered.
    """

    def __init__(self, *, seconds: float, ahead: float) -> None:
        self._seconds, self._ahead = seconds, ahead
        self._known: OrderedDict[_Name, _Known[_Value]] = OrderedDict()
        self._reading: dict[_Name, _Reading[_Value]] = {}

    async def get(self, name: _Name, read: Callable[[], Awaitable[_Value]], *, max_age: float | None = None) -> _Value:
        """The value, read at most ``max_age`` seconds before now, or ``seconds``. Raises what the reading raises."""
        now = time.monotonic()
        most = self._seconds if max_age is None else max_age
        known = self._known.get(name)
        if known is not None and now - known.read_at <= most:
            if now - known.read_at > self._ahead:
                self._begun(name, read, now, self._seconds)
            return known.value
        return await asyncio.shield(self._begun(name, read, now, most))

    def _begun(
        self, name: _Name, read: Callable[[], Awaitable[_Value]], now: float, most: float
    ) -> "asyncio.Task[_Value]":
        """A reading that began at most ``most`` seconds before ``now``: one that takes longer found an older state."""
        reading = self._reading.get(name)
        if reading is None or now - reading.began > most:
            task = asyncio.create_task(self._read(name, read, now))
            begun = reading = self._reading[name] = _Reading(task, now)
            task.add_done_callback(lambda _: self._ended(name, begun))
        return reading.task

    async def _read(self, name: _Name, read: Callable[[], Awaitable[_Value]], began: float) -> _Value:
        value = await read()
        known = self._known.get(name)
        if known is None or known.read_at <= began:
            self._known[name] = _Known(value, began)
            self._known.move_to_end(name)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return value

    def _ended(self, name: _Name, ended: _Reading[_Value]) -> None:
        if self._reading.get(name) is ended:
            del self._reading[name]
        known = self._known.get(name)
        has_failed = not ended.task.cancelled() and ended.task.exception() is not None
        if has_failed and known is not None and known.read_at <= ended.began:
            del self._known[name]  # the next request reads it itself, and gets the error
