"""Who of the coordinators plans: one seat in the database, given up only by the dead and by those who stand still."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from app.database.engine import Database
from app.domain.lifecycle.lease_expiry import StandstillWatch
from app.services.scheduling import planner

RENEW_SECONDS = 1.0
# Two planners for a moment do no harm (unique keys refuse what both place), so this may be short.
STANDSTILL_SECONDS = 5.0

_PROC = Path("/proc")


class PlannerSeat:
    """This process's side of the seat. ``hold`` is called by one thread; ``is_mine`` by any."""

    def __init__(self, db: Database, me: str, *, is_dead: Callable[[str], bool] | None = None) -> None:
        self._db = db
        self._me = me
        self._is_dead = is_dead or is_provably_dead
        self._watch = StandstillWatch(limit_seconds=STANDSTILL_SECONDS)
        self._held_since_check: float | None = None

    @property
    def is_mine(self) -> bool:
        return self._held_since_check is not None

    def hold(self, now_seconds: float) -> bool:
        """Keep the seat, or take it from somebody who is gone. What the database raises goes through."""
        checked = self._held_since_check
        if checked is not None and now_seconds - checked < RENEW_SECONDS:
            return True
        # Until the answer is there the old one stands: the reaper, which asks `is_mine`, would start counting anew.
        try:
            mine = self._keep_or_take(now_seconds)
        except Exception:
            self._held_since_check = None
            self._watch.reset()  # time in which nobody could look does not count against the holder
            raise
        self._held_since_check = now_seconds if mine else None
        return mine

    def _keep_or_take(self, now_seconds: float) -> bool:
        seen = planner.hold_planner(self._db, self._me)
        if seen.holder == self._me:
            return True
        stands_still = self._watch.observe([(seen.holder, seen.counter)], now_seconds)
        if not stands_still and not self._is_dead(seen.holder):
            return False
        return planner.hold_planner(self._db, self._me, replacing=seen).holder == self._me


def own_identity() -> str:
    """``host:boot:pid:start``: names this process so that nobody can take another one for it."""
    return f"{socket.gethostname()}:{_place()}:{os.getpid()}:{_start_ticks(os.getpid())}"


def is_provably_dead(identity: str) -> bool:
    """Whether that process is gone for certain: it ran where we run, and is not there."""
    parts = identity.rsplit(":", 3)
    if len(parts) != 4 or parts[1] != _place() or not parts[2].isdecimal():
        return False
    return str(_start_ticks(int(parts[2]))) != parts[3]


def _place() -> str:
    # The boot alone would not do: containers of one machine share it, and do not see each other's processes.
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id}/{(_PROC / 'self/ns/pid').stat().st_ino}"


def _start_ticks(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
