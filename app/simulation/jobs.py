"""How a job behaves while it is replayed: its start, its work, its checkpoints, and what is remembered of it."""

import math
import random
from dataclasses import dataclass, field

from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import WHOLE
from app.simulation.site import Held
from app.simulation.trace import TraceJob


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What attempts cost beside their work, in seconds, and how well running jobs know their own end.

    Of jobs that do not save when they are asked to go, the work since their last checkpoint is lost.
    ``eta_sigma``: by what factor a job misjudges what it has left is log-normal with this sigma; 0: it knows exactly.
    """

    start_seconds: float = 10.0  # of every attempt, from its placement to its first step
    save_seconds: float = 20.0  # from being asked to go until the devices are free
    checkpoint_seconds: float = 1800.0  # of work, from one to the next
    saves_when_asked: bool = True
    eta_sigma: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stay:
    """An attempt: devices that a job held for some time, ``amount`` of all its nodes together."""

    started_at: float
    ended_at: float
    nodes: tuple[str, ...]
    device_type: str
    amount: float

    @property
    def device_seconds(self) -> float:
        return (self.ended_at - self.started_at) * self.amount


@dataclass
class Outcome:
    """What became of a job; times are by the clock of the trace."""

    job: TraceJob
    stays: list[Stay] = field(default_factory=list)
    refused: str = ""  # why it could never start
    never_started: bool = False  # it still waited when nothing could happen any more
    pending_reason: str = ""  # what it was told last while it waited
    ended_at: float | None = None
    preemptions: int = 0
    lost_seconds: float = 0.0  # of work, which was done again

    @property
    def wait_seconds(self) -> float | None:
        """Until it started for the first time."""
        return self.stays[0].started_at - self.job.arrives_at if self.stays else None


class Worker:
    """A job of the trace on its way: waiting, holding devices, done."""

    def __init__(self, job: TraceJob, behaviour: Behaviour) -> None:
        self.job = job
        self.outcome = Outcome(job)
        self.attempts = 0
        self.is_stopping = False
        self.leaves = False  # it goes with some of its work left
        self._behaviour = behaviour
        self._left = job.seconds
        self._held: Held | None = None
        self._started_at = 0.0
        self._allowed: float | None = None  # how long it may hold its devices in this attempt
        # By its id, so that it misjudges itself alike under every policy.
        self._eta_factor = math.exp(random.Random(job.job_id).gauss(0, 1) * behaviour.eta_sigma)  # noqa: S311

    def queued(self, now: float) -> QueuedJob:
        """As it stands in the line."""
        job = self.job
        return QueuedJob(
            job_id=job.job_id, priority=job.priority, since=now, request=job.request, queue=job.queue,
            project=job.project, is_preemptible=job.is_preemptible, max_seconds=self._at_most(),
        )  # fmt: skip

    def start(self, held: Held, now: float) -> float:
        """Another attempt; returns when it is done if nothing comes between."""
        self.attempts += 1
        self._held, self._started_at, self._allowed = held, now, self._at_most()
        self.is_stopping = self.leaves = False
        return now + self._behaviour.start_seconds + self._left

    def ends_in(self, now: float) -> float:
        """Seconds until its work is done."""
        return max(0.0, self._started_at + self._behaviour.start_seconds + self._left - now)

    def running(self, now: float, *, may_preempt: bool) -> list[Running]:
        """As the planner sees it on each of its nodes; the same terms as those of ``services/running_jobs.py``."""
        job, held = self.job, self._started()
        has_run = now - self._started_at
        may_be_preempted = may_preempt and job.is_preemptible and has_run >= job.min_runtime_seconds
        ends_in = self.ends_in(now) * self._eta_factor
        if self._allowed is not None:
            ends_in = min(ends_in, max(0.0, self._allowed - has_run))
        since_checkpoint = self._worked(now) % self._behaviour.checkpoint_seconds
        loss = (since_checkpoint + self._behaviour.save_seconds) * held.amount
        return [
            Running(
                job_id=job.job_id, attempt=self.attempts, project=job.project, node=node, priority=job.priority,
                kind=held.kind, devices=devices, share=held.placement.share,
                elsewhere=held.amount - len(devices) * held.placement.share / WHOLE, quantities=held.quantities,
                may_be_preempted=may_be_preempted, is_stopping=self.is_stopping, loss=loss, ends_in=ends_in,
            )
            for node, devices in held.parts.items()
        ]  # fmt: skip

    def ask_to_go(self, now: float) -> float | None:
        """When it has saved and is gone; None when its work is done before."""
        self.is_stopping = True
        saved_in = self._behaviour.save_seconds
        self.leaves = self.ends_in(now) > saved_in
        return now + saved_in if self.leaves else None

    def leave(self, asked_at: float, now: float) -> None:
        """It was asked to go, and has gone: what it had not saved is to be done again."""
        worked = self._worked(asked_at)
        behaviour = self._behaviour
        lost = 0.0 if behaviour.saves_when_asked else worked % behaviour.checkpoint_seconds
        self._left -= worked - lost
        self.outcome.preemptions += 1
        self.outcome.lost_seconds += lost
        self._close(now)

    def finish(self, now: float) -> None:
        """Its work is done."""
        self._left = 0.0
        self.outcome.ended_at = now
        self._close(now)

    def _close(self, now: float) -> None:
        held = self._started()
        device_type = held.placement.devices[0].type
        self.outcome.stays.append(
            Stay(
                started_at=self._started_at, ended_at=now, nodes=tuple(held.parts), device_type=device_type,
                amount=held.amount,
            )
        )  # fmt: skip
        self._held = None

    def _started(self) -> Held:
        if self._held is None:
            raise ValueError(f"{self.job.job_id} holds nothing")
        return self._held

    def _worked(self, now: float) -> float:
        """In this attempt."""
        return min(self._left, max(0.0, now - self._started_at - self._behaviour.start_seconds))

    def _at_most(self) -> float | None:
        """What it may hold its devices for in its next attempt.

        A trace says how long a job ran and was allowed to run. So that it comes to its end here, too, what it does
        again and its starts are not counted.
        """
        if self.job.max_runtime_seconds is None:
            return None
        done = self.job.seconds - self._left
        return max(self._left, self.job.max_runtime_seconds - done) + self._behaviour.start_seconds
