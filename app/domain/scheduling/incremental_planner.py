"""Incremental scheduling: after a submission or a release, reconsider only the jobs that it can unblock. Pure.

After a full pass every job that still waits has been refused. An event can only unblock the submitted job, jobs that
fit on the freed devices, and jobs that the quota or queue of the ended job had refused. They are served in the order
of a full pass over the current nodes, usage and reservations. Preemption and new reservations are left to full passes,
and so is every event that touches an existing reservation.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from app.domain.scheduling.cluster_state import ClusterState
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import Plan
from app.domain.scheduling.queue_order import QueuedJob, request_key
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.serving_order import COMMON, JobUsage, PassAccounts


@dataclass(frozen=True, kw_only=True)
class IncrementalPlan:
    """Jobs that start after an event, and the pending reasons of submitted ones that do not."""

    placements: tuple[Placement, ...] = ()
    pending_reasons: Mapping[str, str] = field(default_factory=dict)


class _Shape(NamedTuple):
    """Key of the jobs in a line that are refused together."""

    asked: object
    queue: str
    is_preemptible: bool


_Line = dict[_Shape, list[QueuedJob]]  # in their order
_Lines = dict[str, _Line]  # of a project, by group of queues
_Key = tuple[str, str]  # kind, project
_Place = tuple[float, str]


class IncrementalPlanner:
    """Continues with the cluster state of a full pass; ``jobs`` are all that the pass read.

    An event method returns None when it can't decide; the instance is then invalid, and a full pass must follow.
    """

    def __init__(self, cluster: ClusterState, made: Plan, jobs: Iterable[QueuedJob]) -> None:
        self._cluster = cluster
        self._lines: dict[_Key, _Lines] = {}
        started = {placement.job_id for placement in made.placements}
        self._reserved = []
        for job in jobs:
            if made.reservations.get(job.job_id, job.awaits):
                self._reserved.append(job)
            elif job.job_id not in started:
                self._line_of(job).append(job)
        self._reserved.sort(key=_place)
        for lines in self._lines.values():
            for line in lines.values():
                for alike in line.values():
                    alike.sort(key=_place)

    def submitted(self, jobs: Sequence[QueuedJob]) -> IncrementalPlan | None:
        """Add submitted jobs and start those that can."""
        for job in jobs:
            insort(self._line_of(job), job, key=_place)
        new = {request_key(job): job.request for job in jobs if not self._cluster.is_unplaceable(job)}
        keys = {_key(job) for job in jobs if request_key(job) in new}
        placements = _EventPass(self._cluster, {key: self._lines[key] for key in keys}, new).placements()
        if placements is None:
            return None
        started = {placement.job_id for placement in placements}
        reasons = {
            job.job_id: str(self._cluster.find(job))
            for job in jobs
            if job.job_id not in started and self._cluster.ledger.room(job.queue) > 0
        }
        return IncrementalPlan(placements=placements, pending_reasons=reasons)

    def ended(self, uses: Sequence[JobUsage], nodes: Sequence[NodeCapacity]) -> IncrementalPlan | None:
        """Account for ended jobs, ``nodes`` being the current state of their nodes, and start jobs that fit now."""
        ledger = self._cluster.ledger
        if not all(self._is_unreserved(node) for node in nodes):
            return None
        queues = {use.queue for use in uses if ledger.room(use.queue) <= 0}
        projects = {use.project for use in uses}
        for use in uses:
            if any(ledger.is_held(use.project, kind) for kind in (use.kind, *use.others)):
                return None
            ledger.release(use)
        reopened: dict[object, Request] = {}
        for node in nodes:
            reopened |= self._cluster.refresh(node)
        serving = _EventPass(
            self._cluster, self._lines, reopened, nodes=[node.name for node in nodes], projects=projects, queues=queues
        )
        self._reserved = serving.serve_reserved(self._reserved)
        placements = serving.placements()
        return None if placements is None else IncrementalPlan(placements=placements)

    def _is_unreserved(self, node: NodeCapacity) -> bool:
        """Whether the node has no reservation and differs from the known state only in what is free."""
        before = self._cluster.node_index.nodes.get(node.name)
        return (
            before is not None and node.name not in self._cluster.rooms and _static_part(before) == _static_part(node)
        )

    def _line_of(self, job: QueuedJob) -> list[QueuedJob]:
        lines = self._lines.setdefault(_key(job), {})
        line = lines.setdefault(self._cluster.ledger.group(job), {})
        return line.setdefault(_Shape(request_key(job), job.queue, job.is_preemptible), [])


class _EventPass:
    """Serves the jobs that an event can unblock, in serving order: those of ``reopened`` shapes, and those in projects
    or queues that got capacity back.

    ``nodes`` are the only ones that have become freer, if any.
    """

    def __init__(
        self,
        cluster: ClusterState,
        lines: Mapping[_Key, _Lines],
        reopened: dict[object, Request],
        *,
        nodes: Collection[str] = (),
        projects: AbstractSet[str] = frozenset(),
        queues: AbstractSet[str] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self._lines = lines
        self._reopened = reopened
        self._nodes = nodes
        self._projects = projects
        self._queues = queues
        self._placements: list[Placement] = []

    def placements(self) -> tuple[Placement, ...] | None:
        """GPUs before CPU slots, as in ``in_serving_order``; None when several lines of a project hide the order."""
        served = all(self._serve(kind) for kind in ("cuda", "cpu"))
        return tuple(self._placements) if served else None

    def serve_reserved(self, reserved: Sequence[QueuedJob]) -> list[QueuedJob]:
        """Serve jobs with a reservation, which come first; returns those that have to wait for it."""
        return [job for job in reserved if not self._try_start(job)]

    def _serve(self, kind: str) -> bool:
        ledger = self._cluster.ledger
        ranks = {project: ledger.rank_of(project, kind) for each, project in self._lines if each == kind}
        known: dict[str, _UnblockedJobs] = {}
        while ranks := self._eligible_projects(ranks):
            least = min(ranks.values())
            turn = [
                known.get(project) or known.setdefault(project, self._unblocked(kind, project))
                for project, rank in ranks.items()
                if rank == least
            ]
            if (
                (unblocked := [each for each in turn if each.any])
                and len(unblocked) > 1
                and any(e.is_split for e in turn)
            ):
                return False
            started = self._start_one(unblocked)
            if started is not None:
                ranks[started] = ledger.rank_of(started, kind)
            for each in turn:
                if not each.any:
                    del ranks[each.project]
        return True

    def _eligible_projects(self, ranks: dict[str, tuple[int, float]]) -> dict[str, tuple[int, float]]:
        if self._reopened or self._queues:
            return ranks
        return {project: rank for project, rank in ranks.items() if project in self._projects}

    def _start_one(self, turn: Sequence["_UnblockedJobs"]) -> str | None:
        """Start the first job that can; returns its project."""
        ledger = self._cluster.ledger
        while waiting := [each for each in turn if each.any]:
            unblocked = waiting[0] if len(waiting) == 1 else min(waiting, key=lambda each: each.first(ledger).place)
            job = unblocked.first(ledger)
            if self._try_start(job):
                unblocked.start()
                return unblocked.project
            unblocked.refuse()
        return None

    def _try_start(self, job: QueuedJob) -> bool:
        found = self._cluster.find(job) if self._cluster.ledger.room(job.queue) > 0 else ""
        if isinstance(found, str):
            return False
        self._cluster.start(job, found)
        self._placements.append(found)
        self._narrow()
        return True

    def _narrow(self) -> None:
        """Drop the reopened shapes that no longer fit on the freed nodes."""
        if self._nodes:
            left = [self._cluster.node_index.nodes[name] for name in self._nodes]
            for asked, request in list(self._reopened.items()):
                if not any(self._cluster.may_start_on(request, node) for node in left):
                    self._cluster.node_index.close(asked)
                    del self._reopened[asked]

    def _unblocked(self, kind: str, project: str) -> "_UnblockedJobs":
        return _UnblockedJobs(kind, project, self._lines[kind, project], self._is_unblocked)

    def _is_unblocked(self, shape: _Shape, job: QueuedJob) -> bool:
        if shape.asked in self._reopened:
            return True
        is_relieved = job.project in self._projects or shape.queue in self._queues
        return is_relieved and not self._cluster.is_unplaceable(job)


class _UnblockedJobs:
    """The unblocked jobs of one project, the first of each shape."""

    def __init__(
        self, kind: str, project: str, lines: _Lines, is_unblocked: Callable[[_Shape, QueuedJob], bool]
    ) -> None:
        self.project = project
        self.is_split = len(lines) > 1
        self._kind = kind
        self._heads: dict[str, list[tuple[_Place, _Shape, list[QueuedJob]]]] = {}
        for group, line in lines.items():
            heads = [
                (alike[0].place, shape, alike)
                for shape, alike in line.items()
                if alike and is_unblocked(shape, alike[0])
            ]
            if heads:
                heapq.heapify(heads)
                self._heads[group] = heads
        self._group = COMMON  # the group that ``first`` has chosen

    @property
    def any(self) -> bool:
        return bool(self._heads)

    def first(self, ledger: PassAccounts) -> QueuedJob:
        """The next job in serving order; there must be one."""
        self._group = min(
            self._heads,
            key=lambda group: (ledger.queue_rank_of(self.project, group, self._kind), self._heads[group][0][0]),
        )
        return self._heads[self._group][0][2][0]

    def refuse(self) -> None:
        """Drop the job and all of its shape: they request the same, and nothing is released while they are served."""
        heads = self._heads[self._group]
        heapq.heappop(heads)
        if not heads:
            del self._heads[self._group]

    def start(self) -> None:
        """Remove the job, which has started."""
        heads = self._heads[self._group]
        _, shape, alike = heads[0]
        del alike[0]
        if alike:
            heapq.heapreplace(heads, (alike[0].place, shape, alike))
        else:
            self.refuse()


def _key(job: QueuedJob) -> _Key:
    return job.request.device_kind, job.project


def _static_part(node: NodeCapacity) -> object:
    amounts = node.cpu_cores, node.ram_mb, node.storage_mb
    accepted = node.accepts_training, node.accepts_inference
    return node.devices, node.capabilities, accepted, node.labels, amounts


_place = attrgetter("place")
