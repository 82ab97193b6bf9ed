"""Behaviour of jobs in a replay: start, work, checkpoints, preemption, and outcome."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.units import WHOLE
from simulation.site import Allocation
from simulation.trace import TraceJob


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Overheads of attempts in seconds, and the accuracy of the jobs' estimates of their end.

    Jobs that do not save when preempted lose the work since their last checkpoint. ``eta_sigma``: the error factor of a
    job's remaining time is log-normal with this sigma; 0: exact.
    """

    start_seconds: float = 10.0  # of every attempt, from its placement to its first step
    save_seconds: float = 20.0  # from the preemption request until the devices are free
    checkpoint_seconds: float = 1800.0  # of work between checkpoints
    saves_when_asked: bool = True
    eta_sigma: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Stay:
    """An attempt: devices held for a period, ``amount`` summed over all nodes."""

    started_at: float
    ended_at: float
    nodes: tuple[str, ...]
    device_type: str
    amount: float
    instances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # role → the node of each of its instances

    @property
    def device_seconds(self) -> float:
        return (self.ended_at - self.started_at) * self.amount


@dataclass
class JobResult:
    """Result of a job; times are by the clock of the trace."""

    job: TraceJob
    stays: list[Stay] = field(default_factory=list)
    refused: str = ""  # why it could never start
    never_started: bool = False  # it was still pending when no event was left
    pending_reason: str = ""  # its last pending reason
    ended_at: float | None = None
    done_seconds: float = 0.0  # of its work, by the attempts that have ended
    preemptions: int = 0
    lost_seconds: float = 0.0  # of work that had to be repeated
    restarts: dict[str, int] = field(default_factory=dict)  # role → its instances that were started again alone
    failures: dict[str, int] = field(default_factory=dict)  # role → attempts that an instance of it has ended

    @property
    def wait_seconds(self) -> float | None:
        """Seconds until its first start."""
        return self.stays[0].started_at - self.job.arrives_at if self.stays else None


class Worker:
    """State of a job in the replay: pending, running, done."""

    def __init__(self, job: TraceJob, behaviour: Behaviour) -> None:
        self.job = job
        self.outcome = JobResult(job)
        self.attempts = 0
        self.is_stopping = False
        self.leaves = False  # it will be preempted with work left
        self._behaviour = behaviour
        self._left = job.seconds
        self._held: Allocation | None = None
        self._started_at = 0.0
        self._allowed: float | None = None  # maximum time with its devices in this attempt
        self._failures = list(job.failures)  # to come
        self._waited = 0.0  # seconds of this attempt for instances that are started again
        self._reached = 0.0  # seconds of work of this attempt when the last of them failed
        # Seeded by its id, so that its error is the same under every policy.
        self._eta_factor = math.exp(random.Random(job.job_id).gauss(0, 1) * behaviour.eta_sigma)  # noqa: S311

    def queued(self, now: float) -> QueuedJob:
        """The pending job, as the planner sees it."""
        job = self.job
        return QueuedJob(
            job_id=job.job_id,
            priority=job.priority,
            since=now,
            request=job.request,
            queue=job.queue,
            project=job.project,
            is_preemptible=job.is_preemptible,
            max_seconds=self._at_most(),
        )

    def start(self, held: Allocation, now: float) -> float:
        """Start another attempt; returns when it is done if it is not preempted."""
        self.attempts += 1
        self._held, self._started_at, self._allowed = held, now, self._at_most()
        self.is_stopping = self.leaves = False
        self._waited = self._reached = 0.0
        return now + self.ends_in(now)

    def ends_in(self, now: float) -> float:
        """Seconds until its work is done, if nothing fails."""
        return max(0.0, self._works_from + self._left - now)

    @property
    def _works_from(self) -> float:
        """When its work would have begun, had it not been interrupted since."""
        return self._started_at + self._behaviour.start_seconds + self._waited

    def next_failure(self, now: float) -> float | None:
        """When an instance fails next in this attempt; None: never."""
        if not self._failures:
            return None
        done = self.job.seconds - self._left
        return max(now, self._works_from + self._failures[0].after_seconds - done)

    def restart_instance(self, now: float) -> bool:
        """Start the failed instance again, for which the others wait; False: its failure ends the attempt."""
        role = self._failures[0].role
        if role not in self.job.restart_alone:
            return False
        del self._failures[0]
        self._reached = self._worked(now)
        self._waited += self._behaviour.start_seconds
        self.outcome.restarts[role] = self.outcome.restarts.get(role, 0) + 1
        return True

    def fail(self, now: float) -> None:
        """End the attempt by the failed instance; the job resumes from its last checkpoint."""
        role = self._failures.pop(0).role
        worked = self._worked(now)
        lost = worked % self._behaviour.checkpoint_seconds
        self._left -= worked - lost
        self.outcome.failures[role] = self.outcome.failures.get(role, 0) + 1
        self.outcome.lost_seconds += lost
        self._close(now)

    def running(self, now: float, *, may_preempt: bool) -> list[Running]:
        """The job as the planner sees it, one entry per node; as in ``services/scheduling/running_jobs.py``."""
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
                job_id=job.job_id,
                attempt=self.attempts,
                project=job.project,
                node=node,
                priority=job.priority,
                kind=held.kind,
                devices=devices,
                share=held.placement.share,
                elsewhere=held.amount - len(devices) * held.placement.share / WHOLE,
                quantities=held.quantities[node],
                by_kind=job.request.amounts if job.request.roles else {},
                may_be_preempted=may_be_preempted,
                is_stopping=self.is_stopping,
                loss=loss,
                ends_in=ends_in,
            )
            for node, devices in held.parts.items()
        ]

    def request_preemption(self, now: float) -> float | None:
        """Request preemption; returns when its devices are free, None when its work is done before."""
        self.is_stopping = True
        saved_in = self._behaviour.save_seconds
        self.leaves = self.ends_in(now) > saved_in
        return now + saved_in if self.leaves else None

    def leave(self, asked_at: float, now: float) -> None:
        """Complete a preemption: unsaved work has to be repeated."""
        worked = self._worked(asked_at)
        behaviour = self._behaviour
        lost = 0.0 if behaviour.saves_when_asked else worked % behaviour.checkpoint_seconds
        self._left -= worked - lost
        self.outcome.preemptions += 1
        self.outcome.lost_seconds += lost
        self._close(now)

    def finish(self, now: float) -> None:
        """Complete the job."""
        self._left = 0.0
        self.outcome.ended_at = now
        self._close(now)

    def _close(self, now: float) -> None:
        held = self._started()
        device_type = held.placement.devices[0].type
        self.outcome.stays.append(
            Stay(
                started_at=self._started_at,
                ended_at=now,
                nodes=tuple(held.parts),
                device_type=device_type,
                amount=held.amount,
                instances=_instances(held),
            )
        )
        self.outcome.done_seconds = self.job.seconds - self._left
        self._held = None

    def _started(self) -> Allocation:
        if self._held is None:
            raise ValueError(f"{self.job.job_id} holds nothing")
        return self._held

    def _worked(self, now: float) -> float:
        """Seconds of work in this attempt."""
        return min(self._left, max(self._reached, now - self._works_from))

    def _at_most(self) -> float | None:
        """Maximum time with its devices in the next attempt.

        A trace contains runtime and maximum runtime. Repeated work and start-ups are not counted, so that the job
        completes here, too.
        """
        if self.job.max_runtime_seconds is None:
            return None
        done = self.job.seconds - self._left
        return max(self._left, self.job.max_runtime_seconds - done) + self._behaviour.start_seconds


def _instances(held: Allocation) -> dict[str, tuple[str, ...]]:
    placed = sorted((each.role, each.index, part.node) for part in held.placement.parts for each in part.instances)
    roles = dict.fromkeys(role for role, _, _ in placed)
    return {role: tuple(node for other, _, node in placed if other == role) for role in roles}
