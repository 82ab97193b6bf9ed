"""What a supervisor hands over when its ranks have ended, to store the results and to write the outcome."""

from collections.abc import Callable
from dataclasses import dataclass

from app.database.engine import Database
from app.services.attempts.work_orders import Work
from config.settings import Settings
from workers.supervisor.control.lease_renewal import Renewal
from workers.supervisor.ranks.event_loop import MainLoop
from workers.supervisor.ranks.observations import Sightings
from workers.supervisor.ranks.rank_group import Ranks
from workers.supervisor.recording.context import Ground
from workers.supervisor.recording.disk_space import RoomWatch
from workers.supervisor.recording.recorders import Keeping
from workers.supervisor.recording.report_writer import Reporter


@dataclass(frozen=True, kw_only=True)
class FinishedAttempt:
    """An attempt none of whose ranks runs any more, except processes that can't be killed."""

    settings: Settings
    began: float  # by the monotonic clock
    context: Ground
    observations: Sightings
    ranks: Ranks
    recorders: Keeping
    renewal: Renewal
    loop: MainLoop
    disk: RoomWatch
    is_lost: Callable[[], bool]  # the lease
    goes_down: Callable[[], bool]  # the machine

    @property
    def db(self) -> Database:
        return self.context.db

    @property
    def work(self) -> Work:
        return self.context.work

    @property
    def reporter(self) -> Reporter:
        return self.recorders.reporter
