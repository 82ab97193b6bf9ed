"""The supervisor's single loop: sockets and pipes with a callback each, timers, and calls from other threads."""

import contextlib
import heapq
import itertools
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable

Callback = Callable[[], None]


class EventLoop:
    """Runs callbacks on the thread that calls ``run_until``; ``call`` is the only method other threads may use."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Callback] = deque()
        self._writers: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._numbers = itertools.count()
        self._waker, self._wakened = socket.socketpair()
        for end in (self._waker, self._wakened):
            end.setblocking(False)
        self.watch(self._wakened, self._drain_wakeups)

    def watch(self, source: int | socket.socket, callback: Callback) -> None:
        """Call back whenever the source is readable."""
        self._selector.register(source, selectors.EVENT_READ, callback)

    def watch_writable(self, source: socket.socket, callback: Callback) -> None:
        """Call back once, when a source that is watched can be written to."""
        key = self._selector.get_key(source)
        self._writers[key.fd] = callback
        self._selector.modify(source, selectors.EVENT_READ | selectors.EVENT_WRITE, key.data)

    def forget(self, source: int | socket.socket) -> None:
        """Stop watching; a source that was not watched is fine."""
        with contextlib.suppress(KeyError, ValueError):
            self._writers.pop(self._selector.unregister(source).fd, None)

    def call(self, callback: Callback) -> None:
        """Run soon on the loop's thread; safe from any thread and from signal handlers."""
        self._calls.append(callback)
        self.wake()

    def wake(self) -> None:
        """Make the loop check its condition again."""
        with contextlib.suppress(OSError):  # full of wake-ups already, or closed: other threads may end later
            self._waker.send(b"\0")

    def call_after(self, seconds: float, callback: Callback) -> None:
        """Run once after that many seconds."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), callback))

    def run_until(self, done: Callable[[], bool]) -> None:
        """Serve until ``done()``; it is asked after each round, which runs no timer that is set within it."""
        while not done():
            for key, events in self._selector.select(self._seconds_to_next()):
                if events & selectors.EVENT_WRITE:
                    self._write(key)
                if events & selectors.EVENT_READ:
                    key.data()
            while self._calls:
                self._calls.popleft()()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        self._selector.close()
        self._waker.close()
        self._wakened.close()

    def _write(self, key: selectors.SelectorKey) -> None:
        callback = self._writers.pop(key.fd, None)
        if callback is not None:  # else an earlier callback of this round has made it forget the source
            self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
            callback()

    def _seconds_to_next(self) -> float | None:
        if self._calls:
            return 0.0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakened.recv(4096):
                pass
