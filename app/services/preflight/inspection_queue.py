"""Inspection queue: the inspections that a coordinator may claim, waiting ones and those of dead or stalled holders."""

import time
from collections.abc import Callable, Collection

from app.database.engine import Database
from app.domain.lifecycle.lease_expiry import StandstillWatch
from app.host.process_names import is_provably_dead, own_name
from app.services.preflight import inspections
from app.services.preflight.inspections import Open

RENEW_SECONDS = 2.0
STANDSTILL_SECONDS = 10.0  # duplicate work is harmless: only one result can be stored
ABANDONED_SECONDS = 30.0  # a coordinator that can inspect claims waiting ones at once, or shows that it is busy
_ANY = "any"  # not an inspection id


class InspectionQueue:
    """One coordinator's view of the queue; ``without_models``: of the files and graders in it. Not thread-safe."""

    def __init__(
        self,
        db: Database,
        me: str = "",
        *,
        is_dead: Callable[[str], bool] = is_provably_dead,
        without_models: bool = False,
    ) -> None:
        self.me = me or own_name()
        self._of_models = False if without_models else None
        self._db = db
        self._is_dead = is_dead
        self._watch = StandstillWatch(limit_seconds=STANDSTILL_SECONDS)
        self.is_empty = False  # as of the last read: no inspection waits or runs

    def free(self, mine: Collection[str], now_seconds: float | None = None) -> list[Open]:
        """The inspections to claim, oldest first. ``mine`` are the ids that this process works on now.

        Of equal inspections only one is returned: the others use its result. Raises database errors.
        """
        now = time.monotonic() if now_seconds is None else now_seconds
        try:
            seen = inspections.open_ones(self._db, of_models=self._of_models)
        except Exception:
            self._watch.reset()  # an outage of the database does not count against a holder
            raise
        self.is_empty = not seen
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
            return seen.id not in mine  # its result could not be stored
        return _turn(seen) in still or self._is_dead(seen.holder)


class AbandonedInspections:
    """The view of a coordinator that can't inspect models and data itself. Not thread-safe."""

    def __init__(self, db: Database, me: str = "") -> None:
        self.me = me or own_name()
        self._db = db
        self._watch = StandstillWatch(limit_seconds=ABANDONED_SECONDS)
        self.is_empty = False

    def left(self, now_seconds: float | None = None) -> list[Open]:
        """Inspections that no coordinator claims; empty while any coordinator is seen working. Raises database errors.

        Abandoned ones are left to the node by the caller.
        """
        now = time.monotonic() if now_seconds is None else now_seconds
        try:
            seen = inspections.open_ones(self._db, of_models=True)
        except Exception:
            self._watch.reset()
            raise
        self.is_empty = not seen
        # Nothing may be running at the moment of a read: the time since any counter last moved decides.
        moving = sum(each.counter for each in seen if each.state == "running")
        still = set(self._watch.observe([(_ANY, moving), *((_turn(each), each.counter) for each in seen)], now))
        return [each for each in seen if _turn(each) in still] if _ANY in still else []


def _turn(seen: Open) -> str:
    return f"{seen.id} {seen.holder}"
