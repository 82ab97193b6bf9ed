"""Fetches adapters on threads of their own, so that no step waits for one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from workers.rank.run_context import AdapterNotLoaded
from workers.trainers.inference.serving.requests import AdapterSource

_AT_ONCE = 4


class Fetches:
    """Each adapter once at a time; ``wake`` is called on a thread of the fetches when one has ended."""

    def __init__(self, source: AdapterSource, wake: Callable[[], None]) -> None:
        self._source = source
        self._wake = wake
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="adapter")
        self._running: dict[str, Future[Path]] = {}

    def directory(self, name: str) -> Path | None:
        """Where the adapter lies; None: it is being fetched. Raises AdapterNotLoaded."""
        found = self._running.get(name)
        if found is None:
            found = self._running[name] = self._threads.submit(self._source.directory, name)
            found.add_done_callback(lambda _: self._wake())
        if not found.done():
            return None
        try:
            return found.result()
        except AdapterNotLoaded:
            self.forget(name)
            raise

    def forget(self, name: str) -> None:
        """Ask anew the next time."""
        self._running.pop(name, None)

    def close(self) -> None:
        """Fetches that have begun end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
