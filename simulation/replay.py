"""Discrete-event simulation: jobs of a trace arrive, run and end, and a planner places them.

Nothing is computed between events; the planner runs only after a change: an arrival, an end, or a timeout of the
policy. ``SimulatedCluster`` applies its decisions and refuses impossible ones.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from app.domain.scheduling import gang_placement
from app.domain.scheduling.fair_share import ProjectQuota, never_fits
from app.domain.scheduling.filters import explain
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import Plan
from app.domain.scheduling.roles import reasons
from app.domain.scheduling.roles.packing import can_pack
from simulation.jobs import Behaviour, JobResult, Worker
from simulation.site import PassInput, SimulatedCluster
from simulation.trace import ReplayCluster, TraceJob

# Limit for a planner that keeps changing reservations while nothing runs and no job is to arrive.
IDLE_PASSES = 50
_ROUNDING = 1e-6  # seconds


@dataclass(frozen=True, kw_only=True)
class Planner:
    """A planner; ``wakes_after_seconds``: waiting time of a job after which its decisions may change."""

    decide: Callable[[PassInput], Plan]
    wakes_after_seconds: float = inf
    may_preempt: bool = True


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Result of a replay; ``outcomes`` are in the order of the trace."""

    cluster: ReplayCluster
    outcomes: Sequence[JobResult]
    passes: int
    ended_at: float


def replay(
    trace: Iterable[TraceJob],
    cluster: ReplayCluster,
    planner: Planner,
    behaviour: Behaviour | None = None,
    *,
    pass_seconds: float = 1.0,
    watch: Callable[[PassInput], None] = lambda _view: None,
) -> Replay:
    """Replay until the last job that can start has ended.

    ``pass_seconds`` is the minimum time between two passes; ``watch`` gets the input of each pass. Raises ValueError
    when the planner places jobs on devices that are not free.
    """
    simulation = _Simulation(cluster, planner, behaviour or Behaviour(), watch)
    simulation.run(trace, pass_seconds)
    return Replay(cluster=cluster, outcomes=simulation.outcomes, passes=simulation.passes, ended_at=simulation.ended_at)


@dataclass(frozen=True, order=True)
class _Event:
    at: float
    number: int  # orders events at the same time
    happen: Callable[[float], bool] = field(compare=False)  # returns whether the planner has to run


class _Simulation:
    def __init__(
        self, cluster: ReplayCluster, planner: Planner, behaviour: Behaviour, watch: Callable[[PassInput], None]
    ) -> None:
        self._cluster = cluster
        self._planner = planner
        self._behaviour = behaviour
        self._watch = watch
        self._site = SimulatedCluster(cluster)
        self._events: list[_Event] = []
        self._event_count = 0
        self._workers: dict[str, Worker] = {}
        self._idle = 0
        self.outcomes: list[JobResult] = []
        self.passes = 0
        self.ended_at = 0.0

    def run(self, trace: Iterable[TraceJob], pass_seconds: float) -> None:
        for job in sorted(trace, key=lambda job: (job.arrives_at, job.job_id)):
            worker = Worker(job, self._behaviour)
            self.outcomes.append(worker.outcome)
            self._at(job.arrives_at, lambda now, worker=worker: self._arrive(worker, now))  # type: ignore[misc]
        must_plan, next_pass = False, -inf
        while self._events:
            now = self._events[0].at
            while self._events and self._events[0].at == now:
                must_plan |= heapq.heappop(self._events).happen(now)
            if not must_plan or not self._site.waiting:
                continue
            if now < next_pass:
                self._at(next_pass, lambda _now: True)
                continue
            must_plan, next_pass = False, now + pass_seconds
            self._run_pass(now, next_pass)
        for job_id in self._site.waiting:
            self._workers[job_id].outcome.never_started = True

    def _at(self, when: float, happen: Callable[[float], bool]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, _Event(when, self._event_count, happen))

    def _arrive(self, worker: Worker, now: float) -> bool:
        job = worker.job
        worker.outcome.refused = self._refusal(job)
        if worker.outcome.refused:
            return False
        self._workers[job.job_id] = worker
        self._wait(worker, now)
        return True

    def _refusal(self, job: TraceJob) -> str:
        """The error at submission; "" if the job would be accepted."""
        if job.request.roles:
            if not can_pack(job.request, self._cluster.nodes):
                return reasons.explain(job.request, self._cluster.nodes)
        elif gang_placement.most_alike(job.request, self._cluster.nodes) < job.request.node_count:
            why = gang_placement.explain if job.request.is_gang else explain
            return why(job.request, self._cluster.nodes)
        quota, request = self._cluster.quotas.get(job.project, ProjectQuota()), job.request
        return never_fits(job.project, quota, request.device_kind, request.amount, preemptible=job.is_preemptible)

    def _wait(self, worker: Worker, now: float) -> None:
        self._site.add(worker.queued(now))
        if self._planner.wakes_after_seconds < inf:
            job_id, number = worker.job.job_id, worker.attempts
            self._at(
                now + self._planner.wakes_after_seconds,
                lambda _: job_id in self._site.waiting and worker.attempts == number,
            )

    def _run_pass(self, now: float, next_pass: float) -> None:
        may_preempt = self._planner.may_preempt
        running = [
            part for job_id in self._site.held for part in self._workers[job_id].running(now, may_preempt=may_preempt)
        ]
        view = self._site.view(now, running)
        self._watch(view)
        made = self._planner.decide(view)
        self.passes += 1
        for placement in made.placements:
            self._start(placement, now)
        for job_id, reason in made.pending_reasons.items():
            self._workers[job_id].outcome.pending_reason = reason
        for job_id, names in made.reservations.items():
            self._site.reserve(job_id, names)
        for preemption in made.preemptions:
            self._request_preemption(self._workers[preemption.job_id], now)
        self._idle = 0 if self._site.held else self._idle + 1
        if (made.preemptions or made.reservations) and self._idle < IDLE_PASSES:
            self._at(next_pass, lambda _: True)  # the next pass continues where this one stopped

    def _start(self, placement: Placement, now: float) -> None:
        worker = self._workers[placement.job_id]
        ends_at = worker.start(self._site.start(placement), now)
        number, job = worker.attempts, worker.job
        self._at(ends_at, lambda now: self._finish(worker, number, now))
        self._await_failure(worker, now)
        if job.is_preemptible and job.min_runtime_seconds > 0:
            self._at(now + job.min_runtime_seconds, lambda _: worker.attempts == number and not worker.is_stopping)

    def _finish(self, worker: Worker, number: int, now: float) -> bool:
        if not self._runs(worker, number) or worker.leaves or worker.ends_in(now) > _ROUNDING:
            return False
        worker.finish(now)
        self._site.end(worker.job.job_id)
        self.ended_at = now
        return True

    def _runs(self, worker: Worker, number: int) -> bool:
        """Whether the attempt of this number holds devices."""
        return worker.attempts == number and worker.job.job_id in self._site.held

    def _await_failure(self, worker: Worker, now: float) -> None:
        number, fails_at = worker.attempts, worker.next_failure(now)
        if fails_at is not None:
            self._at(fails_at, lambda now: self._fail(worker, number, now))

    def _fail(self, worker: Worker, number: int, now: float) -> bool:
        """An instance of a role fails; of an attempt that is being preempted in the next one."""
        if not self._runs(worker, number) or worker.is_stopping:
            return False
        if worker.restart_instance(now):
            self._at(now + worker.ends_in(now), lambda now: self._finish(worker, number, now))
            self._await_failure(worker, now)
            return False
        worker.fail(now)
        self._site.end(worker.job.job_id)
        self._wait(worker, now)
        return True

    def _request_preemption(self, worker: Worker, now: float) -> None:
        gone_at = worker.request_preemption(now)
        if gone_at is not None:
            self._at(gone_at, lambda gone_at: self._leave(worker, now, gone_at))

    def _leave(self, worker: Worker, asked_at: float, now: float) -> bool:
        worker.leave(asked_at, now)
        self._site.end(worker.job.job_id)
        self._wait(worker, now)
        return True
