"""How many requests a gateway has open, of as many as it may."""

import asyncio


class OpenRequests:
    """For one event loop; a request counts from its first byte to the end of its answer."""

    def __init__(self, most: int) -> None:
        self._most = most
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

    async def gone(self) -> None:
        """Wait until none is open."""
        await self._empty.wait()
