"""Rollouts that are away, or still load their model: the training waits for them, which is no hang of its ranks."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Section = Callable[[str, float], AbstractContextManager[None]]  # `RunContext.section`


def unannounced(name: str, seconds: float) -> AbstractContextManager[None]:
    """For a training that is not watched."""
    del name, seconds
    return nullcontext()


class WaitingSection:
    """One section for all rollouts that are waited for at once, each on a thread of its own."""

    def __init__(self, section: Section = unannounced) -> None:
        self._section = section
        self._open: AbstractContextManager[None] | None = None
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def announced(self, what: str, seconds: float) -> Iterator[None]:
        """``seconds``: that it may take."""
        with self._lock:
            if not self._count:
                self._open = self._section(what, seconds)
                self._open.__enter__()
            self._count += 1
        try:
            yield
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count and self._open is not None:
                self._open.__exit__(None, None, None)
                self._open = None
