"""How many requests a gateway has open, of as many as it may."""

import asyncio
from collections.abc import Callable


class OpenRequests:
    """For one event loop; a request counts from its first byte to the end of its answer."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._bytes_left = most_bytes
        self.enders: set[Callable[[], None]] = set()  # each ends a request that is being answered
        self._count = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self) -> bool:
        """Whether one more may be open, which then counts until `leave`."""
        if self._count >= self._most:
            return False
        self._count += 1
        self._empty.clear()
        return True

    def leave(self) -> None:
        self._count -= 1
        if not self._count:
            self._empty.set()

    def hold(self, count: int) -> bool:
        """Whether so many bytes more of bodies may be kept, which then count until `free`."""
        if count > self._bytes_left:
            return False
        self._bytes_left -= count
        return True

    def free(self, count: int) -> None:
        self._bytes_left += count

    async def gone(self) -> None:
        """Wait until none is open."""
        await self._empty.wait()
