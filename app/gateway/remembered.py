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


class Remembered(Generic[_Name, _Value]):
    """For one event loop.

    A value older than ``ahead`` seconds is read anew while requests still get it: none waits for a reading as long as
    requests keep coming. No request gets one older than ``seconds``; a failed reading is not remembered.
    """

    def __init__(self, *, seconds: float, ahead: float) -> None:
        self._seconds, self._ahead = seconds, ahead
        self._known: OrderedDict[_Name, _Known[_Value]] = OrderedDict()
        self._reading: dict[_Name, asyncio.Task[_Value]] = {}

    async def get(self, name: _Name, read: Callable[[], Awaitable[_Value]], *, max_age: float | None = None) -> _Value:
        """The value, read at most ``max_age`` seconds ago, by default ``seconds``. Raises what the reading raises."""
        known = self._known.get(name)
        age = time.monotonic() - known.read_at if known is not None else 0.0
        if known is not None and age <= (self._seconds if max_age is None else max_age):
            if age > self._ahead:
                self._begun(name, read)
            return known.value
        return await asyncio.shield(self._begun(name, read))

    def _begun(self, name: _Name, read: Callable[[], Awaitable[_Value]]) -> "asyncio.Task[_Value]":
        reading = self._reading.get(name)
        if reading is None:
            reading = self._reading[name] = asyncio.create_task(self._read(name, read))
            reading.add_done_callback(lambda ended: self._ended(name, ended))
        return reading

    async def _read(self, name: _Name, read: Callable[[], Awaitable[_Value]]) -> _Value:
        began = time.monotonic()
        value = await read()
        self._known[name] = _Known(value, began)
        self._known.move_to_end(name)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return value

    def _ended(self, name: _Name, ended: "asyncio.Task[_Value]") -> None:
        self._reading.pop(name, None)
        if not ended.cancelled() and ended.exception() is not None:
            self._known.pop(name, None)  # the next request reads it itself, and gets the error
