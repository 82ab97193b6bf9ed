"""What a supervisor hands over when its ranks have ended, to store the results and to write the outcome."""

from collections.abc import Callable
from dataclasses import dataclass

from app.database.engine import Database
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.supervisor.control.lease_renewal import LeaseRenewal
from workers.supervisor.control.rank_group import RankGroup
from workers.supervisor.ranks.event_loop import EventLoop
from workers.supervisor.ranks.observations import Observations
from workers.supervisor.recording.context import AttemptContext
from workers.supervisor.recording.disk_space import DiskSpaceWatch
from workers.supervisor.recording.recorders import Recorders
from workers.supervisor.recording.report_writer import Reporter
from workers.tracking.trackers import Trackers


@dataclass(frozen=True, kw_only=True)
class FinishedAttempt:
    """An attempt none of whose ranks runs any more, except processes that can't be killed."""

    settings: Settings
    began: float  # by the monotonic clock
    context: AttemptContext
    observations: Observations
    ranks: RankGroup
    recorders: Recorders
    trackers: Trackers
    renewal: LeaseRenewal
    loop: EventLoop
    disk: DiskSpaceWatch
    is_lost: Callable[[], bool]  # the lease
    machine_stops: Callable[[], bool]  # the machine

    @property
    def db(self) -> Database:
        return self.context.db

    @property
    def work(self) -> WorkOrder:
        return self.context.work

    @property
    def reporter(self) -> Reporter:
        return self.recorders.reporter
