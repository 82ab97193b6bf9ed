"""The planner: snapshot → placements and preemptions, jobs in serving order, each on its best node. Pure."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from app.domain.scheduling.cluster_state import ClusterState
from app.domain.scheduling.filters import usable_devices
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.preemption import Preemption, Room, Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity
from app.domain.scheduling.running_index import RunningIndex
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS, Weights
from app.domain.scheduling.serving_order import Accounts, in_serving_order

# Each search covers every node. The next pass continues where this one stopped.
MAX_RESERVATIONS = 16
MAX_PREEMPTING = 16
# A reservation moves to other nodes only when they are free this many times sooner, which avoids thrashing.
MIN_SPEEDUP = 2.0


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """The operator's scheduling settings and the time of the pass.

    A job that has waited longer than ``reserve_after_seconds`` gets a node reserved, on which only jobs that end in
    time may start from then on (backfill). This bounds how long smaller jobs can delay a large one.
    """

    weights: Weights = field(default_factory=lambda: DEFAULT_WEIGHTS)
    now: float = 0.0  # by the clock of ``QueuedJob.since``
    reserve_after_seconds: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Placements of the jobs that start now, and the pending reasons of all others."""

    placements: tuple[Placement, ...]
    pending_reasons: dict[str, str]
    nodes: tuple[NodeCapacity, ...]  # their state after the placements
    accounts: Accounts = field(default_factory=Accounts)  # usage after the placements
    preemptions: tuple[Preemption, ...] = ()
    reservations: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # job → nodes reserved for it; () cancels the reservation


def plan(
    jobs: Sequence[QueuedJob],
    nodes: Sequence[NodeCapacity],
    accounts: Accounts | None = None,
    *,
    running: Iterable[Running] = (),
    policy: SchedulingPolicy | None = None,
) -> Plan:
    """Place each job, in serving order, on the highest-scoring node where it can start now.

    A job that can't start preempts jobs of lower priority where that helps, or gets a reservation. A job that waits for
    its queue gets no reason here: the queue's reason holds for all of its jobs.
    """
    made = Planning(nodes, accounts or Accounts(), running, policy or SchedulingPolicy())
    made.go_on(jobs)
    return made.result()


class Planning:
    """One pass. Jobs may be served in several batches; placements and reservations of one hold in the next."""

    def __init__(
        self, nodes: Sequence[NodeCapacity], accounts: Accounts, running: Iterable[Running], policy: SchedulingPolicy
    ) -> None:
        self._policy = policy
        with _without_collector():
            self.cluster = ClusterState(nodes, accounts, policy.weights)
            self._node_index, self._gangs, self._ledger = (
                self.cluster.node_index,
                self.cluster.gangs,
                self.cluster.ledger,
            )
            self._running_index = RunningIndex(running, self._node_index.nodes)
        self._placements: list[Placement] = []
        self._preemptions: list[Preemption] = []
        self._reasons: dict[str, str] = {}
        self._reservation_count = self._preemption_count = 0
        self._reservations: dict[str, tuple[str, ...]] = {}
        self._reserving_projects: set[str] = set()  # projects
        # Requests for which preemption does not help → the highest priority for which that is known.
        self._not_preemptible_for: dict[tuple[object, ...], int] = {}
        self._never_free: set[tuple[object, ...]] = (
            set()
        )  # requests that would not fit even after all running jobs had ended

    @property
    def is_full(self) -> bool:
        """Whether no free device is left."""
        return self._node_index.is_full

    @property
    def _is_settled(self) -> bool:
        """Whether this pass makes no more preemptions and reservations."""
        return self._preemption_count == MAX_PREEMPTING and self._reservation_count >= MAX_RESERVATIONS

    def has_room(self, queues: Iterable[str]) -> bool:
        return any(self._ledger.room(queue) > 0 for queue in queues)

    def serve_reserved_jobs(self, jobs: Iterable[QueuedJob]) -> list[QueuedJob]:
        """Serve jobs with a reservation first, regardless of serving order.

        Jobs for which others were preempted come first, or the preemption would be repeated; a node that was reserved
        in serving order stays reserved until its job starts.

        Returns the jobs whose reservation was cancelled: they wait like all others.
        """
        released = []
        for job in sorted(jobs, key=lambda job: job.place):
            if not self._serve_reserved(job):
                released.append(job)
                self._reservations[job.job_id] = ()
        return released

    def _serve_reserved(self, job: QueuedJob) -> bool:
        if self._ledger.room(job.queue) <= 0 or self._ledger.is_stopped(job):
            return False
        if job.request.is_gang:
            return self._serve_reserved_gang(job)
        node = self._node_index.candidates(job)(job.awaits[0])
        if node is None:
            return False
        refused = self._ledger.refusal(job)
        if not refused:
            placement = self._node_index.best_on(node.name, job) or self._node_index.best_free(job)
            if placement is not None:
                self._start(job, placement)
                return True
        owed = self._ledger.excess(job)
        comes_back = owed <= self._running_index.stopping(job.project, job.request.device_kind)
        room = self._running_index.room_of_stopping(job, node)
        # Within the quota, and on a node with enough free devices, the job would have started.
        if room is None or (refused and not (owed and comes_back)) or not (refused or room.ended):
            return not refused and self._renew(job, node)
        self._reasons[job.job_id] = (refused or self._node_index.why_none(job)) + self._reserve_cleared(job, (room,))
        return True

    def _renew(self, job: QueuedJob, node: NodeCapacity) -> bool:
        """Renew the reservation, unless preemption is possible by now, or another node is free far sooner."""
        why = self._node_index.why_none(job)
        if note := self._preempt(job):
            self._reasons[job.job_id] = why + note
            return True
        room = self._running_index.room_on(job, node)
        if room is None or not self._may_reserve(job):
            return False
        soonest = self._running_index.room_in_time(job, self._node_index.candidates(job)) or room
        if _last_ends((room,)) > MIN_SPEEDUP * _last_ends((soonest,)):
            room = soonest
        self._reasons[job.job_id] = why + self._reserve_rooms(job, (room,))
        self._hold_over_passes(job, (room,))
        return True

    def _serve_reserved_gang(self, job: QueuedJob) -> bool:
        """As ``_serve_reserved``, for all nodes of a gang together."""
        refused, found = self._ledger.refusal(job), self._gangs.place(job)
        if not refused and not isinstance(found, str):
            self._start(job, found)
            return True
        owed = self._ledger.excess(job)
        comes_back = owed <= self._running_index.stopping(job.project, job.request.device_kind)
        rooms = self._gangs.rooms_of_stopping(job, self._running_index)
        if rooms and ((owed and comes_back) if refused else any(room.ended for room in rooms)):
            self._reasons[job.job_id] = (refused or str(found)) + self._reserve_cleared(job, rooms)
            return True
        return not refused and self._renew_for_gang(job, str(found))

    def _renew_for_gang(self, job: QueuedJob, found: str) -> bool:
        """Renew the reservations, unless preemption is possible by now, or other nodes are free far sooner."""
        if note := self._preempt(job):
            self._reasons[job.job_id] = found + note
            return True
        if not self._may_reserve(job):
            return False
        soonest = self._gangs.rooms(job, self._running_index)
        rooms = self._gangs.rooms(job, self._running_index, on=job.awaits)
        if not soonest:
            return False
        if not rooms or _last_ends(rooms) > MIN_SPEEDUP * _last_ends(soonest):
            rooms = soonest
        self._reasons[job.job_id] = found + self._reserve_rooms(job, rooms)
        self._hold_over_passes(job, rooms)
        return True

    def _hold_over_passes(self, job: QueuedJob, rooms: Sequence[Room]) -> None:
        names = _names(rooms)
        if names != self._reservations.get(job.job_id, job.awaits):
            self._reservations[job.job_id] = names
        self._ledger.reserve(job)

    def go_on(self, jobs: Sequence[QueuedJob]) -> None:
        with _without_collector():
            for job in in_serving_order(jobs, self._ledger):
                self._serve(job)

    def _serve(self, job: QueuedJob) -> None:
        if self._ledger.room(job.queue) <= 0:
            return
        if refused := self._ledger.refusal(job):
            self._reasons[job.job_id] = refused + self._beyond_quota(job)
        elif held := self._ledger.held_back(job):
            self._reasons[job.job_id] = held
        elif isinstance(found := (self._gangs if job.request.is_gang else self._node_index).place(job), str):
            self._reasons[job.job_id] = (
                found if self._is_settled else found + (self._preempt(job) or self._reserve(job))
            )
        else:
            self._start(job, found)

    def result(self) -> Plan:
        return Plan(
            placements=tuple(self._placements),
            pending_reasons=self._reasons,
            nodes=tuple(self._node_index.nodes.values()),
            accounts=self._ledger.close(),
            preemptions=tuple(self._preemptions),
            reservations=self._reservations,
        )

    def _start(self, job: QueuedJob, placement: Placement) -> None:
        self._placements.append(placement)
        self.cluster.start(job, placement)

    def _beyond_quota(self, job: QueuedJob) -> str:
        if self._ledger.excess(job) == 0 or self._ledger.is_stopped(job):
            return ""
        note = self._preempt(job)
        if not note and self._has_waited(job) and self._ledger.is_ever_within(job) and self._could_hold(job):
            self._ledger.hold(job)
        return note

    def _could_hold(self, job: QueuedJob) -> bool:
        return (self._gangs if job.request.is_gang else self._node_index).could_hold(job)

    def _preempt(self, job: QueuedJob) -> str:
        """Preempt for the job; returns the addition to its pending reason, "" when preemption does not help."""
        if self._preemption_count == MAX_PREEMPTING:
            return ""
        like = job.request, job.project, job.is_preemptible, job.avoids, job.no_room_on
        if self._not_preemptible_for.get(like, -1) >= job.priority:
            return ""  # reservations made since then only take devices away
        rooms = self._rooms_with_the_quota(job) or self._rooms_by_preemption(job)
        if not rooms:
            self._not_preemptible_for[like] = job.priority
            return ""
        victims = [victim for room in rooms for victim in room.victims]
        for victim in victims:
            reason = f"its devices go to {job.job_id}, {_preemption_reason(job, victim)}"
            self._preemptions.append(
                Preemption(job_id=victim.job_id, attempt=victim.attempt, for_job=job.job_id, reason=reason)
            )
        if victims:
            self._preemption_count += 1
            self._reservations[job.job_id] = _names(rooms)
        return self._reserve_cleared(job, rooms)

    def _rooms_with_the_quota(self, job: QueuedJob) -> tuple[Room, ...]:
        """Where it can start as soon as the stopping jobs of its project have released their quota."""
        owed = self._ledger.excess(job)
        if not 0 < owed <= self._running_index.stopping(job.project, job.request.device_kind):
            return ()
        place = self._gangs.best_free(job) if job.request.is_gang else self._node_index.best_free(job)
        parts = place.parts if place is not None else ()
        return tuple(Room(node=part.node, devices=part.devices, amounts=part.quantities(job.request)) for part in parts)

    def _rooms_by_preemption(self, job: QueuedJob) -> tuple[Room, ...]:
        if job.request.is_gang:
            return self._gangs.rooms_by_preemption(job, self._running_index, self._ledger)
        room = self._running_index.room_by_preemption(job, self._node_index.candidates(job), self._ledger)
        return () if room is None else (room,)

    def _reserve_cleared(self, job: QueuedJob, rooms: Sequence[Room]) -> str:
        """Reserve nodes that are being cleared; returns the addition to the pending reason."""
        self._ledger.count_clearing(job)
        for room in rooms:
            self._reserve_room(room)
        names = _names(rooms)
        return f"; {', '.join(names)} {'are' if len(names) > 1 else 'is'} being cleared for it"

    def _has_waited(self, job: QueuedJob) -> bool:
        return self._policy.now - job.since >= self._policy.reserve_after_seconds

    def _reserve(self, job: QueuedJob) -> str:
        """Reserve nodes until the jobs there end; returns the addition to the pending reason, "" if impossible."""
        if not self._may_reserve(job):
            return ""
        like = job.request, job.avoids, job.no_room_on
        if like in self._never_free:
            return ""
        rooms = self._rooms_in_time(job)
        if not rooms:
            self._never_free.add(like)
            return ""
        if self._outlives_pass(job, rooms[0]):
            self._hold_over_passes(job, rooms)
        return self._reserve_rooms(job, rooms)

    def _outlives_pass(self, job: QueuedJob, room: Room) -> bool:
        """Whether the reservation outlives the pass, because jobs served earlier would starve this one.

        True for jobs that need most of a node, or several nodes. One such job per project at a time bounds what a
        project gets ahead of its serving order.
        """
        if job.request.is_gang:
            return job.project not in self._reserving_projects
        devices = usable_devices(job.request, self._node_index.nodes[room.node])
        return 2 * job.request.device_count > max(2, len(devices)) and job.project not in self._reserving_projects

    def _may_reserve(self, job: QueuedJob) -> bool:
        return self._reservation_count < MAX_RESERVATIONS and self._has_waited(job)

    def _reserve_rooms(self, job: QueuedJob, rooms: Sequence[Room]) -> str:
        self._reservation_count += 1
        self._reserving_projects.add(job.project)
        for room in rooms:
            self._reserve_room(room)
        return f"; {', '.join(_names(rooms))} {'are' if len(rooms) > 1 else 'is'} reserved for it as running jobs end"

    def _rooms_in_time(self, job: QueuedJob) -> tuple[Room, ...]:
        if job.request.is_gang:
            return self._gangs.rooms(job, self._running_index)
        room = self._running_index.room_in_time(job, self._node_index.candidates(job))
        return () if room is None else (room,)

    def _reserve_room(self, room: Room) -> None:
        self._running_index.take(room)
        if room.devices:
            self.cluster.reserve(room)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the cyclic garbage collector: a pass creates no cycles, and scans of a large cluster are expensive."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _names(rooms: Sequence[Room]) -> tuple[str, ...]:
    """The nodes with devices for the job; the other rooms hold victims that only free quota."""
    return tuple(sorted(room.node for room in rooms if room.devices))


def _last_ends(rooms: Sequence[Room]) -> float:
    return max(inf if room.seconds is None else room.seconds for room in rooms)


def _preemption_reason(job: QueuedJob, victim: Running) -> str:
    if job.project == victim.project:
        return f"whose priority is {job.priority}, not {victim.priority}"
    return f"for what the project {job.project} deserves and {victim.project} had borrowed"


def held_back(queue: str, *, is_paused: bool, limit: int | None, running: int) -> str:
    """Why no job of the queue may start, whatever is free; "" when jobs may start."""
    if is_paused:
        return f"the queue {queue} is paused: it takes jobs and starts none until it is resumed"
    if limit is not None and running >= limit:
        return f"the queue {queue} runs {running} of at most {limit} jobs (max_running_jobs)"
    return ""
