"""Shows that a call of the engine advances, however long it takes: else it would be taken for a hang."""

import time
from collections.abc import Callable

_REPORT_SECONDS = 5.0


class Advancing:
    """Wraps the ``interrupted`` of engine calls, which they ask before each step: a step reads or makes at least one
    token. ``report`` gets the steps of this shard now and then.
    """

    def __init__(
        self, interrupted: Callable[[], bool], report: Callable[[int], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._interrupted = interrupted
        self._report = report
        self._now = now
        self._steps = 0
        self._at = now()

    def __call__(self) -> bool:
        """Whether to stop."""
        self._steps += 1
        if self._now() - self._at >= _REPORT_SECONDS:
            self._report(self._steps)
            self._at = self._now()
        return self._interrupted()
