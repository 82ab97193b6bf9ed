"""Of which sweeps jobs of trials have ended since a moment ago, so that the next trial begins at once.

The change counter is read twice a second: up to half a second of every short trial would pass without a device.
"""

import time
from collections.abc import Callable, Collection

from sqlalchemy import select

from app.database.engine import Database
from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps.states import TrialState
from app.models import Job, Trial

# Of the time since the last end: by so much the next one may be noticed late.
SHARE = 0.025
SHORTEST_SECONDS, LONGEST_SECONDS = 0.025, 0.5


class TrialEnds:
    """One loop's view of the ends of trials; not thread-safe.

    ``seconds``: how long to wait before asking again. Where trials last for minutes, it is mostly as long as between
    two readings of the change counter.
    """

    def __init__(self, db: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._db, self._clock = db, clock
        self._seen: frozenset[tuple[str, str]] = frozenset()  # of sweeps and jobs
        self._newest_at = float("-inf")
        self.seconds = LONGEST_SECONDS

    def to_watch(self, sweep_ids: Collection[str]) -> Collection[str]:
        """Those of these sweeps that have running trials; without them, as of a paused one, nothing can end."""
        if not sweep_ids:
            return ()
        query = select(Trial.sweep_id).where(Trial.sweep_id.in_(sweep_ids), Trial.state == TrialState.RUNNING)
        with self._db.query() as connection:
            return connection.scalars(query.distinct()).all()

    def new_among(self, sweep_ids: Collection[str]) -> set[str]:
        """Those of these sweeps of which the job of a running trial has ended since the last call.

        One statement; raises database errors. A trial that waits for others, or for its evaluation, is new only once.
        """
        query = select(Trial.sweep_id, Job.id).join(Trial, Trial.job_id == Job.id)
        query = query.where(Trial.sweep_id.in_(sweep_ids), Trial.state == TrialState.RUNNING, Job.status.in_(TERMINAL))
        with self._db.query() as connection:
            ended = frozenset((row.sweep_id, row.id) for row in connection.execute(query))
        new, self._seen = ended - self._seen, ended
        if new:
            self._newest_at = self._clock()
        self.seconds = min(max((self._clock() - self._newest_at) * SHARE, SHORTEST_SECONDS), LONGEST_SECONDS)
        return {sweep_id for sweep_id, _ in new}
