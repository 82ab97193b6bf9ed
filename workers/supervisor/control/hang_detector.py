"""Detects that the ranks of an attempt hang: no step for too long, or a rank stopped by a signal."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.host import processes
from workers.supervisor.control.rank_group import RankGroup
from workers.supervisor.ranks.event_loop import EventLoop

LOOK_SECONDS = 5.0
MIN_CHECK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Hang:
    """``seconds`` without a step after ``step`` where ``allowed`` is the limit; ``stopped``: ranks held by SIGSTOP."""

    step: int | None
    seconds: float
    allowed: float
    doing: str
    stopped: Sequence[int]

    def __str__(self) -> str:
        after = f"after step {self.step}" if self.step is not None else "since they were started"
        description = (
            f"the ranks made no step for {self.seconds:.0f} s {after} ({self.doing}; allowed were {self.allowed:.0f} s)"
        )
        if self.stopped:
            named = ", ".join(map(str, self.stopped))
            description += f"; stopped by a signal (SIGSTOP): rank {named}"
        return description


class HangDetector:
    """Checks every few seconds on the loop's thread; calls ``on_hang`` once."""

    def __init__(self, loop: EventLoop, ranks: RankGroup, on_hang: Callable[[Hang], None]) -> None:
        self._loop = loop
        self._ranks = ranks
        self._steps = ranks.reports.steps
        self._on_hang = on_hang
        self._stopped_since: dict[int, float] = {}

    def start(self) -> None:
        """Watch until the ranks have ended or hang."""
        limit = self._steps.limit()
        seconds = LOOK_SECONDS if limit is None else min(LOOK_SECONDS, limit.seconds / 10)
        self._loop.call_after(max(MIN_CHECK_SECONDS, seconds), self._check)

    def _check(self) -> None:
        if self._ranks.ended:
            return
        if self._hang() is None:
            self.start()
        else:
            self._loop.call(self._check_again)  # messages received meanwhile are handled first

    def _check_again(self) -> None:
        hang = self._hang()
        if hang is None or self._ranks.ended:
            self.start()
        else:
            self._on_hang(hang)

    def _hang(self) -> Hang | None:
        limit, now = self._steps.limit(), time.monotonic()
        if limit is None:
            return None
        stopped = self._stopped(now)
        since, allowed = limit.since, limit.seconds
        # A rank that is stopped while the others continue, or have ended, delays no step.
        long_stopped = [rank for rank, at in stopped.items() if now - at > self._steps.step_limit_seconds]
        if long_stopped and not limit.overdue(now):
            since, allowed = min(stopped.values()), self._steps.step_limit_seconds
        elif not limit.overdue(now):
            return None
        return Hang(
            step=self._steps.step,
            seconds=now - since,
            allowed=allowed,
            doing=self._steps.doing(),
            stopped=sorted(stopped),
        )

    def _stopped(self, now: float) -> dict[int, float]:
        """Stopped ranks → when each was first found stopped."""
        stopped = {rank for rank, pid in self._ranks.pids.items() if processes.state_of(pid) == "T"}
        self._stopped_since = {rank: self._stopped_since.get(rank, now) for rank in stopped}
        return self._stopped_since
