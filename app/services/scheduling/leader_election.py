"""Leader election for the planner: a row that its holder renews; taken over when the holder dies or stops renewing."""

from collections.abc import Callable

from app.database.engine import Database
from app.domain.lifecycle.lease_expiry import StandstillWatch
from app.host.process_names import is_provably_dead
from app.services.scheduling import planner

RENEW_SECONDS = 2.0
# Two leaders for a moment are harmless (unique keys refuse duplicate placements), so this may be short.
STANDSTILL_SECONDS = 5.0


class LeaderLease:
    """This process's view of the leader lease. One thread calls ``acquire``; any may read ``is_leader``."""

    def __init__(self, db: Database, me: str, *, is_dead: Callable[[str], bool] | None = None) -> None:
        self._db = db
        self._me = me
        self._is_dead = is_dead or is_provably_dead
        self._watch = StandstillWatch(limit_seconds=STANDSTILL_SECONDS)
        self._leading_since_check: float | None = None

    @property
    def is_leader(self) -> bool:
        return self._leading_since_check is not None

    @property
    def renewed_at(self) -> float | None:
        """When this process last renewed its lease, and with it its heartbeat; None if it does not lead."""
        return self._leading_since_check

    def acquire(self, now_seconds: float) -> bool:
        """Renew the lease, or take it over from a dead holder; True when this process leads. Raises database errors."""
        checked = self._leading_since_check
        if checked is not None and now_seconds - checked < RENEW_SECONDS:
            return True
        # `is_leader` keeps its value until the database answers; otherwise the reaper, which reads it, would reset.
        try:
            leads = self._renew_or_take(now_seconds)
        except Exception:
            self._leading_since_check = None
            self._watch.reset()  # an outage of the database does not count against the holder
            raise
        self._leading_since_check = now_seconds if leads else None
        return leads

    def _renew_or_take(self, now_seconds: float) -> bool:
        if self.is_leader and planner.renew(self._db, self._me):
            return True
        seen = planner.leader(self._db)
        if seen is not None and seen.holder != self._me:
            stands_still = self._watch.observe([(seen.holder, seen.counter)], now_seconds)
            if not stands_still and not self._is_dead(seen.holder):
                return False
        return planner.renew_leadership(self._db, self._me, replacing=seen).holder == self._me
