"""Which inspections a coordinator may take up: those that wait, and those of whoever is gone or stands still."""

import time
from collections.abc import Callable, Collection

from app.database.engine import Database
from app.domain.lifecycle.lease_expiry import StandstillWatch
from app.host.process_names import is_provably_dead, own_name
from app.services.preflight import inspections
from app.services.preflight.inspections import Open

RENEW_SECONDS = 2.0
STANDSTILL_SECONDS = 10.0  # two at work on the same do no harm: only one can write its result down
ABANDONED_SECONDS = 30.0  # whoever can look takes up what waits at once, or is busy and shows it
_ANY = "any"  # no id of an inspection


class InspectionLine:
    """One coordinator's view; called by one thread."""

    def __init__(self, db: Database, me: str = "", *, is_dead: Callable[[str], bool] = is_provably_dead) -> None:
        self.me = me or own_name()
        self._db = db
        self._is_dead = is_dead
        self._watch = StandstillWatch(limit_seconds=STANDSTILL_SECONDS)

    def free(self, mine: Collection[str], now_seconds: float | None = None) -> list[Open]:
        """The oldest first. ``mine`` are the ids of those that this process works on now.

        Of equal looks one is enough: the others come when its result is there. What the database raises goes through.
        """
        now = time.monotonic() if now_seconds is None else now_seconds
        try:
            seen = inspections.open_ones(self._db)
        except Exception:
            self._watch.reset()  # time in which nobody could look does not count against a holder
            raise
        running = [each for each in seen if each.state == "running"]
        still = set(self._watch.observe([(_turn(each), each.counter) for each in running], now))
        lost = {each.id for each in running if self._is_lost(each, mine, still)}
        busy = {each.fingerprint for each in running if each.id not in lost} - {""}
        found = []
        for each in seen:
            if each.id in lost or (each.state == "waiting" and each.fingerprint not in busy):
                found.append(each)
                busy |= {each.fingerprint} - {""}
        return found

    def _is_lost(self, seen: Open, mine: Collection[str], still: set[str]) -> bool:
        if seen.holder == self.me:
            return seen.id not in mine  # its result could not be written down
        return _turn(seen) in still or self._is_dead(seen.holder)


class AbandonedLine:
    """The view of a coordinator that does not look itself; called by one thread."""

    def __init__(self, db: Database, me: str = "") -> None:
        self.me = me or own_name()
        self._db = db
        self._watch = StandstillWatch(limit_seconds=ABANDONED_SECONDS)

    def left(self, now_seconds: float | None = None) -> list[Open]:
        """What nobody takes up; nothing as long as anybody was seen to look at anything.

        What the database raises goes through.
        """
        now = time.monotonic() if now_seconds is None else now_seconds
        try:
            seen = inspections.open_ones(self._db)
        except Exception:
            self._watch.reset()
            raise
        # Between two looks nothing is running for a moment: it counts when anything was last seen to move.
        moving = sum(each.counter for each in seen if each.state == "running")
        still = set(self._watch.observe([(_ANY, moving), *((_turn(each), each.counter) for each in seen)], now))
        return [each for each in seen if _turn(each) in still] if _ANY in still else []


def _turn(seen: Open) -> str:
    return f"{seen.id} {seen.holder}"
