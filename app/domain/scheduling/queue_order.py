"""Queue order: by priority with ageing, so that no job starves behind more urgent ones."""

from dataclasses import dataclass

from app.domain.scheduling.data_locality import NOT_CACHED, Cached
from app.domain.scheduling.resources import Request

# One step of priority is worth this wait. A job is never overtaken by one submitted more than 10 × this (40 hours)
# later, and an urgent job waits only behind less urgent ones that are older than that.
AGEING_SECONDS = 14_400


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job that waits for devices; ``since`` is in seconds of a clock that all jobs share."""

    job_id: str
    priority: int
    since: float
    request: Request
    queue: str = ""
    project: str = ""
    is_preemptible: bool = False
    max_seconds: float | None = None  # remaining maximum runtime
    awaits: tuple[str, ...] = ()  # nodes that are being cleared or are reserved for it
    avoids: frozenset[str] = frozenset()  # nodes on which it failed repeatedly
    no_room_on: tuple[str, ...] = ()  # nodes whose disk was full for it, the oldest event first
    cached: Cached = NOT_CACHED  # its model and data in the nodes' caches
    is_auto: bool = False  # it takes GPUs or CPU slots, whichever there are

    @property
    def place(self) -> tuple[float, str]:
        """Position key in the line: lower is served first."""
        return position_key(self.since, self.priority, self.job_id)


def request_key(job: QueuedJob) -> object:
    """A key that is equal for jobs which fit on the same nodes."""
    return (job.request, job.avoids) if job.avoids else job.request


def position_key(since: float, priority: int, job_id: str) -> tuple[float, str]:
    """Position key: lower is served first; ``since`` in seconds."""
    return since - priority * AGEING_SECONDS, job_id
