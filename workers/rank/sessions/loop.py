"""Waits for descriptors, signals and timers of the session server. Standard library only."""

import contextlib
import heapq
import itertools
import select
import time
from collections.abc import Callable

Callback = Callable[[], None]
_BROKEN = select.EPOLLHUP | select.EPOLLERR


def _nothing() -> None:
    pass


class Watched:
    """One descriptor. While nothing is wanted of it the kernel is not asked, not even for its end."""

    def __init__(self, loop: "EpollLoop", fd: int) -> None:
        self._loop, self.fd = loop, fd
        self._mask = 0
        self.on_readable: Callback = _nothing
        self.on_writable: Callback = _nothing
        self.on_hangup: Callback | None = None  # the other side sends no more, seen even while it is not read
        self.on_break: Callback | None = None  # it neither sends nor reads any more

    def want(self, *, reads: bool, writes: bool) -> None:
        mask = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0)
        mask |= select.EPOLLRDHUP if self.on_hangup is not None else 0
        mask |= select.EPOLLHUP if self.on_break is not None else 0
        if mask != self._mask:
            self._loop.change(self, self._mask, mask)
            self._mask = mask

    def take(self, events: int) -> None:
        """The event of a broken descriptor is that which is waited for: reading or writing it shows the error."""
        wanted = self._mask
        if self.on_hangup is not None and events & (select.EPOLLRDHUP | _BROKEN):
            self.on_hangup()
            return
        if self.on_break is not None and events & _BROKEN:
            self.on_break()
            return
        if wanted & select.EPOLLIN and events & (select.EPOLLIN | _BROKEN):
            self.on_readable()
        if wanted & self._mask & select.EPOLLOUT and events & (select.EPOLLOUT | _BROKEN):
            self.on_writable()

    def forget(self) -> None:
        """Before it is closed."""
        self.on_hangup = self.on_break = None
        self.want(reads=False, writes=False)


class EpollLoop:
    """One thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()
        self.stopped = False

    def watch(self, fd: int) -> Watched:
        """Nothing is wanted of it yet."""
        return Watched(self, fd)

    def change(self, watched: Watched, before: int, after: int) -> None:
        if not after:
            del self._watched[watched.fd]
            with contextlib.suppress(OSError):
                self._epoll.unregister(watched.fd)
        elif not before:
            self._watched[watched.fd] = watched
            self._epoll.register(watched.fd, after)
        else:
            self._epoll.modify(watched.fd, after)

    def call_after(self, seconds: float, callback: Callback) -> None:
        """Once."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), callback))

    def run(self) -> None:
        while not self.stopped:
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for fd, events in self._epoll.poll(wait):
                watched = self._watched.get(fd)
                if watched is not None:  # else an earlier callback of this round has closed it
                    watched.take(events)
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
