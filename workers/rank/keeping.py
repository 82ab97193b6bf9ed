"""How long the sandbox of a failed job stays for its user, and which processes are spared meanwhile."""

import time
from collections.abc import Callable, Collection

from app.host.processes import descendants


class Keeping:
    """Of one agent. ``tell`` is called once, when the sandbox begins to stay."""

    def __init__(self, seconds: float, tell: Callable[[], None]) -> None:
        self._seconds = seconds
        self._tell = tell
        self._until: float | None = None
        self.is_over = False  # on request: the sandbox does not stay after a failure

    def stays(self, exit_code: int) -> bool:
        """Whether the sandbox stays, now that no rank runs any more."""
        if not exit_code or not self._seconds or self.is_over:
            return False
        if self._until is None:
            self._until = time.monotonic() + self._seconds
            self._tell()
        return time.monotonic() < self._until

    def seconds_left(self) -> float | None:
        """None: it does not stay yet."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def without_people(self, pids: Collection[int], session_server: int) -> list[int]:
        """Those of the processes that end with the ranks: what people have started is spared if the sandbox stays."""
        if not self._seconds or self.is_over or not session_server:
            return list(pids)
        spared = {session_server, *descendants(session_server)}
        return [pid for pid in pids if pid not in spared]
