"""The line in which jobs wait: by priority, and by age, so that nobody waits for ever behind the more urgent."""

from dataclasses import dataclass

from app.domain.scheduling.data_locality import NOWHERE, Cached
from app.domain.scheduling.resources import Request

# One step of priority is worth so long a wait. So a job of any priority is passed by none that was submitted more than
# 10 × this (40 hours) after it, and a more urgent one waits behind no less urgent one that is younger than that.
AGEING_SECONDS = 14_400


@dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job that waits for devices, ``since`` so many seconds by the clock that all of them are told by."""

    job_id: str
    priority: int
    since: float
    request: Request
    queue: str = ""
    project: str = ""
    is_preemptible: bool = False
    at_most_seconds: float | None = None  # how long it may run yet
    awaits: tuple[str, ...] = ()  # nodes that are cleared or kept for it
    avoids: frozenset[str] = frozenset()  # nodes that it failed on again and again
    no_room_on: tuple[str, ...] = ()  # nodes whose disk was full for it, the one where that is longest ago first
    cached: Cached = NOWHERE  # what nodes hold of its model and data

    @property
    def place(self) -> tuple[float, str]:
        """In the line: lower is served first."""
        return place_in_line(self.since, self.priority, self.job_id)


def asked_by(job: QueuedJob) -> object:
    """The same for jobs that find room on the same nodes, or on none."""
    return (job.request, job.avoids) if job.avoids else job.request


def place_in_line(since: float, priority: int, job_id: str) -> tuple[float, str]:
    """Lower is served first; ``since`` in seconds."""
    return since - priority * AGEING_SECONDS, job_id
