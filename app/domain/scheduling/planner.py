"""Snapshot → placements and preemptions: everybody in turn, each on its best node. Pure; a service applies them."""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from app.domain.scheduling.cluster_state import Giving
from app.domain.scheduling.filters import usable_devices
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.preemption import Preemption, Room, Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity
from app.domain.scheduling.running_index import Neighbours
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS, Weights
from app.domain.scheduling.serving_order import Accounts, in_turn

# Each is looked for on every node. The next pass goes on where this one stopped.
MAX_RESERVATIONS = 16
MAX_PREEMPTING = 16
# What is kept for a job is kept elsewhere when it comes so many times sooner there: not for every minute.
SOONER = 2.0


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How an operator wants it, and what time it is.

    Who has waited longer than ``reserve_after_seconds`` gets a node kept, on which from then on only those start that
    end in time: so long, and no longer than what runs there, can smaller jobs hold a large one back.
    """

    weights: Weights = field(default_factory=lambda: DEFAULT_WEIGHTS)
    now: float = 0.0  # by the clock of ``QueuedJob.since``
    reserve_after_seconds: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who starts where now, and for everybody else why not."""

    placements: tuple[Placement, ...]
    pending_reasons: dict[str, str]
    nodes: tuple[NodeCapacity, ...]  # as they are after the placements
    accounts: Accounts = field(default_factory=Accounts)  # the same of projects and queues
    preemptions: tuple[Preemption, ...] = ()
    promises: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # job → what is kept for it, () no more


def plan(
    jobs: Sequence[QueuedJob],
    nodes: Sequence[NodeCapacity],
    accounts: Accounts | None = None,
    *,
    running: Iterable[Running] = (),
    policy: Policy | None = None,
) -> Plan:
    """Each in its turn takes the node that scores highest of those where it can start now.

    Who can't takes the devices of less urgent jobs where that helps, and has devices kept that are on their way. Who
    waits for room in its queue gets no reason here: it is the queue's and holds for all of them.
    """
    made = Planning(nodes, accounts or Accounts(), running, policy or Policy())
    made.go_on(jobs)
    return made.result()


class Planning:
    """One pass. The line may come in several parts; what was kept and given in one holds in the next."""

    def __init__(
        self, nodes: Sequence[NodeCapacity], accounts: Accounts, running: Iterable[Running], policy: Policy
    ) -> None:
        self._policy = policy
        with _without_collector():
            self.giving = Giving(nodes, accounts, policy.weights)
            self._choices, self._gangs, self._ledger = self.giving.choices, self.giving.gangs, self.giving.ledger
            self._neighbours = Neighbours(running, self._choices.nodes)
        self._placements: list[Placement] = []
        self._preemptions: list[Preemption] = []
        self._reasons: dict[str, str] = {}
        self._reservations = self._preempting = 0
        self._promises: dict[str, tuple[str, ...]] = {}
        self._kept_for: set[str] = set()  # projects
        # Jobs for which nobody has what would help, and the highest priority that is known of.
        self._hopeless: dict[tuple[object, ...], int] = {}
        self._never_free: set[tuple[object, ...]] = set()  # those for which nothing that ends would be enough

    @property
    def is_full(self) -> bool:
        """No device is left to be given away."""
        return self._choices.is_full

    @property
    def _is_settled(self) -> bool:
        """Whether nobody is preempted, and nothing is kept, for those whose turn has not come yet."""
        return self._preempting == MAX_PREEMPTING and self._reservations >= MAX_RESERVATIONS

    def has_room(self, queues: Iterable[str]) -> bool:
        return any(self._ledger.room(queue) > 0 for queue in queues)

    def keep_promises(self, jobs: Iterable[QueuedJob]) -> list[QueuedJob]:
        """Serve those first for whom others were preempted, whosever turn it is, or that would happen again and again.

        And those for whom a node is kept: it was when their turn came, and stays so until they start.

        Returns those to whom nothing is promised any more: they wait like all others.
        """
        released = []
        for job in sorted(jobs, key=lambda job: job.place):
            if not self._keep_promise(job):
                released.append(job)
                self._promises[job.job_id] = ()
        return released

    def _keep_promise(self, job: QueuedJob) -> bool:
        if self._ledger.room(job.queue) <= 0 or self._ledger.is_stopped(job):
            return False
        if job.request.is_gang:
            return self._keep_promise_to_gang(job)
        node = self._choices.holding(job)(job.awaits[0])
        if node is None:
            return False
        refused = self._ledger.refusal(job)
        if not refused:
            placement = self._choices.best_on(node.name, job) or self._choices.best_free(job)
            if placement is not None:
                self._start(job, placement)
                return True
        owed = self._ledger.excess(job)
        comes_back = owed <= self._neighbours.going(job.project, job.request.device_kind)
        room = self._neighbours.room_of_going(job, node)
        # Within the quota, and on a node that has room without anybody's end, it would have started.
        if room is None or (refused and not (owed and comes_back)) or not (refused or room.gone):
            return not refused and self._keep_on(job, node)
        self._reasons[job.job_id] = (refused or self._choices.why_none(job)) + self._promise(job, (room,))
        return True

    def _keep_on(self, job: QueuedJob, node: NodeCapacity) -> bool:
        """Keep for it what was kept before, unless somebody may go by now, or another node is free far sooner."""
        why = self._choices.why_none(job)
        if said := self._preempt(job):
            self._reasons[job.job_id] = why + said
            return True
        room = self._neighbours.room_on(job, node)
        if room is None or not self._may_reserve(job):
            return False
        soonest = self._neighbours.room_in_time(job, self._choices.holding(job)) or room
        if _last_ends((room,)) > SOONER * _last_ends((soonest,)):
            room = soonest
        self._reasons[job.job_id] = why + self._kept(job, (room,))
        self._stay_kept(job, (room,))
        return True

    def _keep_promise_to_gang(self, job: QueuedJob) -> bool:
        """The same of all its nodes together."""
        refused, found = self._ledger.refusal(job), self._gangs.place(job)
        if not refused and not isinstance(found, str):
            self._start(job, found)
            return True
        owed = self._ledger.excess(job)
        comes_back = owed <= self._neighbours.going(job.project, job.request.device_kind)
        rooms = self._gangs.rooms_of_going(job, self._neighbours)
        if rooms and ((owed and comes_back) if refused else any(room.gone for room in rooms)):
            self._reasons[job.job_id] = (refused or str(found)) + self._promise(job, rooms)
            return True
        return not refused and self._keep_on_for_gang(job, str(found))

    def _keep_on_for_gang(self, job: QueuedJob, found: str) -> bool:
        """Keep for it what was kept before, unless somebody may go by now, or others are free far sooner."""
        if said := self._preempt(job):
            self._reasons[job.job_id] = found + said
            return True
        if not self._may_reserve(job):
            return False
        soonest = self._gangs.rooms(job, self._neighbours)
        rooms = self._gangs.rooms(job, self._neighbours, on=job.awaits)
        if not soonest:
            return False
        if not rooms or _last_ends(rooms) > SOONER * _last_ends(soonest):
            rooms = soonest
        self._reasons[job.job_id] = found + self._kept(job, rooms)
        self._stay_kept(job, rooms)
        return True

    def _stay_kept(self, job: QueuedJob, rooms: Sequence[Room]) -> None:
        names = _names(rooms)
        if names != self._promises.get(job.job_id, job.awaits):
            self._promises[job.job_id] = names
        self._ledger.keep(job)

    def go_on(self, jobs: Sequence[QueuedJob]) -> None:
        with _without_collector():
            for job in in_turn(jobs, self._ledger):
                self._serve(job)

    def _serve(self, job: QueuedJob) -> None:
        if self._ledger.room(job.queue) <= 0:
            return
        if refused := self._ledger.refusal(job):
            self._reasons[job.job_id] = refused + self._beyond_quota(job)
        elif held := self._ledger.held_back(job):
            self._reasons[job.job_id] = held
        elif isinstance(found := (self._gangs if job.request.is_gang else self._choices).place(job), str):
            self._reasons[job.job_id] = (
                found if self._is_settled else found + (self._preempt(job) or self._reserve(job))
            )
        else:
            self._start(job, found)

    def result(self) -> Plan:
        return Plan(
            placements=tuple(self._placements), pending_reasons=self._reasons,
            nodes=tuple(self._choices.nodes.values()), accounts=self._ledger.close(),
            preemptions=tuple(self._preemptions), promises=self._promises,
        )  # fmt: skip

    def _start(self, job: QueuedJob, placement: Placement) -> None:
        self._placements.append(placement)
        self.giving.start(job, placement)

    def _beyond_quota(self, job: QueuedJob) -> str:
        if self._ledger.excess(job) == 0 or self._ledger.is_stopped(job):
            return ""
        said = self._preempt(job)
        if not said and self._has_waited(job) and self._ledger.is_ever_within(job) and self._could_hold(job):
            self._ledger.hold(job)
        return said

    def _could_hold(self, job: QueuedJob) -> bool:
        return (self._gangs if job.request.is_gang else self._choices).could_hold(job)

    def _preempt(self, job: QueuedJob) -> str:
        """What is said of it; "" when that is no way to let the job start."""
        if self._preempting == MAX_PREEMPTING:
            return ""
        like = job.request, job.project, job.is_preemptible, job.avoids, job.no_room_on
        if self._hopeless.get(like, -1) >= job.priority:
            return ""  # what others were promised since makes it no better
        rooms = self._rooms_with_the_quota(job) or self._rooms_by_preemption(job)
        if not rooms:
            self._hopeless[like] = job.priority
            return ""
        victims = [victim for room in rooms for victim in room.victims]
        for victim in victims:
            reason = f"its devices go to {job.job_id}, {_for_what(job, victim)}"
            self._preemptions.append(
                Preemption(job_id=victim.job_id, attempt=victim.attempt, for_job=job.job_id, reason=reason)
            )
        if victims:
            self._preempting += 1
            self._promises[job.job_id] = _names(rooms)
        return self._promise(job, rooms)

    def _rooms_with_the_quota(self, job: QueuedJob) -> tuple[Room, ...]:
        """Where it can start as soon as the jobs of its project that go already are gone."""
        owed = self._ledger.excess(job)
        if not 0 < owed <= self._neighbours.going(job.project, job.request.device_kind):
            return ()
        place = self._gangs.best_free(job) if job.request.is_gang else self._choices.best_free(job)
        amounts = job.request.quantities
        parts = place.parts if place is not None else ()
        return tuple(Room(node=part.node, devices=part.devices, amounts=amounts) for part in parts)

    def _rooms_by_preemption(self, job: QueuedJob) -> tuple[Room, ...]:
        if job.request.is_gang:
            return self._gangs.rooms_by_preemption(job, self._neighbours, self._ledger)
        room = self._neighbours.room_by_preemption(job, self._choices.holding(job), self._ledger)
        return () if room is None else (room,)

    def _promise(self, job: QueuedJob, rooms: Sequence[Room]) -> str:
        """What is said of it."""
        self._ledger.promise(job)
        for room in rooms:
            self._keep(room)
        names = _names(rooms)
        return f"; {', '.join(names)} {'are' if len(names) > 1 else 'is'} being cleared for it"

    def _has_waited(self, job: QueuedJob) -> bool:
        return self._policy.now - job.since >= self._policy.reserve_after_seconds

    def _reserve(self, job: QueuedJob) -> str:
        """The same of a node that is kept until what runs there has ended."""
        if not self._may_reserve(job):
            return ""
        like = job.request, job.avoids, job.no_room_on
        if like in self._never_free:
            return ""
        rooms = self._rooms_in_time(job)
        if not rooms:
            self._never_free.add(like)
            return ""
        if self._stays_kept(job, rooms[0]):
            self._stay_kept(job, rooms)
        return self._kept(job, rooms)

    def _stays_kept(self, job: QueuedJob, room: Room) -> bool:
        """Whether others' turns, where they come first, would take one of the devices after the other for ever.

        So it is with what needs most of a node, or several at once. Of each project one such job at a time: what it has
        before its turn is then no more than that.
        """
        if job.request.is_gang:
            return job.project not in self._kept_for
        devices = usable_devices(job.request, self._choices.nodes[room.node])
        return 2 * job.request.device_count > max(2, len(devices)) and job.project not in self._kept_for

    def _may_reserve(self, job: QueuedJob) -> bool:
        return self._reservations < MAX_RESERVATIONS and self._has_waited(job)

    def _kept(self, job: QueuedJob, rooms: Sequence[Room]) -> str:
        self._reservations += 1
        self._kept_for.add(job.project)
        for room in rooms:
            self._keep(room)
        return f"; {', '.join(_names(rooms))} {'are' if len(rooms) > 1 else 'is'} kept for it from what ends there next"

    def _rooms_in_time(self, job: QueuedJob) -> tuple[Room, ...]:
        if job.request.is_gang:
            return self._gangs.rooms(job, self._neighbours)
        room = self._neighbours.room_in_time(job, self._choices.holding(job))
        return () if room is None else (room,)

    def _keep(self, room: Room) -> None:
        self._neighbours.take(room)
        if room.devices:
            self.giving.keep(room)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Nothing here refers to itself: the collector would go through a large cluster again and again, for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _names(rooms: Sequence[Room]) -> tuple[str, ...]:
    """The nodes of which the job has something; on others somebody may go for its quota alone."""
    return tuple(sorted(room.node for room in rooms if room.devices))


def _last_ends(rooms: Sequence[Room]) -> float:
    return max(inf if room.seconds is None else room.seconds for room in rooms)


def _for_what(job: QueuedJob, victim: Running) -> str:
    if job.project == victim.project:
        return f"whose priority is {job.priority}, not {victim.priority}"
    return f"for what the project {job.project} deserves and {victim.project} had borrowed"


def held_back(queue: str, *, is_paused: bool, limit: int | None, running: int) -> str:
    """Why nobody in the queue starts, whatever is free; "" when somebody may."""
    if is_paused:
        return f"the queue {queue} is paused: it takes jobs and starts none until it is resumed"
    if limit is not None and running >= limit:
        return f"the queue {queue} runs {running} of at most {limit} jobs (max_running_jobs)"
    return ""
