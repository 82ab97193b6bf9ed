"""Who of the coordinators plans: one seat in the database, given up only by the dead and by those who stand still."""

from collections.abc import Callable

from app.database.engine import Database
from app.domain.lifecycle.lease_expiry import StandstillWatch
from app.host.process_names import is_provably_dead
from app.services.scheduling import planner

RENEW_SECONDS = 1.0
# Two planners for a moment do no harm (unique keys refuse what both place), so this may be short.
STANDSTILL_SECONDS = 5.0


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
