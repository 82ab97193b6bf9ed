"""Between two full passes: a job comes, or what one held is free, and only those who gain by it are looked at.

A full pass leaves everybody refused. After an event nobody can start but the new job, who fits on what has become free,
and whom the quota or the queue of the job that ended refused. They are served in their turn, as a full pass would that
finds nodes, accounts and what is kept as they are now, and makes no more room. To make room, for which somebody is
preempted or a node is kept, is left to the full passes, and so is whatever touches the room that they have made. Pure.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from app.domain.scheduling.cluster_state import Giving
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import Plan
from app.domain.scheduling.queue_order import QueuedJob, asked_by
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.serving_order import COMMON, Ledger, Use


@dataclass(frozen=True, kw_only=True)
class Followed:
    """Who starts after an event, and why those that came do not."""

    placements: tuple[Placement, ...] = ()
    pending_reasons: Mapping[str, str] = field(default_factory=dict)


class _Shape(NamedTuple):
    """Jobs of a line that are refused together."""

    asked: object
    queue: str
    is_preemptible: bool


_Line = dict[_Shape, list[QueuedJob]]  # in their order
_Lines = dict[str, _Line]  # of a project, by group of queues
_Key = tuple[str, str]  # kind, project
_Place = tuple[float, str]


class Following:
    """Follows a full pass, whose ``giving`` it goes on with. ``jobs`` are all that were looked at in it.

    Of what it can't tell an event's method says None; then it is spoilt, and a full pass has to look.
    """

    def __init__(self, giving: Giving, made: Plan, jobs: Iterable[QueuedJob]) -> None:
        self._giving = giving
        self._lines: dict[_Key, _Lines] = {}
        started = {placement.job_id for placement in made.placements}
        self._promised = []
        for job in jobs:
            if made.promises.get(job.job_id, job.awaits):
                self._promised.append(job)
            elif job.job_id not in started:
                self._line_of(job).append(job)
        self._promised.sort(key=_place)
        for lines in self._lines.values():
            for line in lines.values():
                for alike in line.values():
                    alike.sort(key=_place)

    def submitted(self, jobs: Sequence[QueuedJob]) -> Followed | None:
        """These wait from now on, or start."""
        for job in jobs:
            insort(self._line_of(job), job, key=_place)
        new = {asked_by(job): job.request for job in jobs if not self._giving.is_nowhere(job)}
        keys = {_key(job) for job in jobs if asked_by(job) in new}
        placements = _Serving(self._giving, {key: self._lines[key] for key in keys}, new).placements()
        if placements is None:
            return None
        started = {placement.job_id for placement in placements}
        reasons = {job.job_id: str(self._giving.find(job)) for job in jobs if job.job_id not in started
                   and self._giving.ledger.room(job.queue) > 0}  # fmt: skip
        return Followed(placements=placements, pending_reasons=reasons)

    def ended(self, uses: Sequence[Use], nodes: Sequence[NodeCapacity]) -> Followed | None:
        """These jobs have given back what they had, and that is how their nodes are now."""
        ledger = self._giving.ledger
        if not all(self._is_known(node) for node in nodes):
            return None
        queues = {use.queue for use in uses if ledger.room(use.queue) <= 0}
        projects = {use.project for use in uses}
        for use in uses:
            if ledger.holds_for_one(use.project, use.kind):
                return None
            ledger.give_back(use)
        reopened: dict[object, Request] = {}
        for node in nodes:
            reopened |= self._giving.look_again_at(node)
        serving = _Serving(
            self._giving, self._lines, reopened, nodes=[node.name for node in nodes], projects=projects, queues=queues
        )
        self._promised = serving.left_of(self._promised)
        placements = serving.placements()
        return None if placements is None else Followed(placements=placements)

    def _is_known(self, node: NodeCapacity) -> bool:
        """Whether nothing of it is kept or cleared for anybody, and only what is free of it is another."""
        before = self._giving.choices.nodes.get(node.name)
        return before is not None and node.name not in self._giving.rooms and _lasting(before) == _lasting(node)

    def _line_of(self, job: QueuedJob) -> list[QueuedJob]:
        lines = self._lines.setdefault(_key(job), {})
        line = lines.setdefault(self._giving.ledger.group(job), {})
        return line.setdefault(_Shape(asked_by(job), job.queue, job.is_preemptible), [])


class _Serving:
    """Those who gain by an event, in their turn: of shapes that are ``reopened``, or in projects or queues that got
    something back.

    With ``nodes``, nothing else has become free.
    """

    def __init__(
        self, giving: Giving, lines: Mapping[_Key, _Lines], reopened: dict[object, Request], *,
        nodes: Collection[str] = (), projects: AbstractSet[str] = frozenset(), queues: AbstractSet[str] = frozenset(),
    ) -> None:  # fmt: skip
        self._giving = giving
        self._lines = lines
        self._reopened = reopened
        self._nodes = nodes
        self._projects = projects
        self._queues = queues
        self._placements: list[Placement] = []

    def placements(self) -> tuple[Placement, ...] | None:
        """GPUs before CPU slots, as in ``in_turn``. None where several lines of a project hide whose turn it is."""
        served = all(self._serve(kind) for kind in ("cuda", "cpu"))
        return tuple(self._placements) if served else None

    def left_of(self, promised: Sequence[QueuedJob]) -> list[QueuedJob]:
        """Those for whom there is no other room than what is being made. They come before everybody else."""
        return [job for job in promised if not self._start_if_it_can(job)]

    def _serve(self, kind: str) -> bool:
        ledger = self._giving.ledger
        ranks = {project: ledger.rank_of(project, kind) for each, project in self._lines if each == kind}
        known: dict[str, _Gainers] = {}
        while ranks := self._who_may_gain(ranks):
            least = min(ranks.values())
            turn = [
                known.get(project) or known.setdefault(project, self._gainers(kind, project))
                for project, rank in ranks.items() if rank == least
            ]  # fmt: skip
            if (gainers := [each for each in turn if each.any]) and len(gainers) > 1 and any(e.is_split for e in turn):
                return False
            started = self._start_one(gainers)
            if started is not None:
                ranks[started] = ledger.rank_of(started, kind)
            for each in turn:
                if not each.any:
                    del ranks[each.project]
        return True

    def _who_may_gain(self, ranks: dict[str, tuple[int, float]]) -> dict[str, tuple[int, float]]:
        if self._reopened or self._queues:
            return ranks
        return {project: rank for project, rank in ranks.items() if project in self._projects}

    def _start_one(self, turn: Sequence["_Gainers"]) -> str | None:
        """The first of them that can start; returns its project."""
        ledger = self._giving.ledger
        while waiting := [each for each in turn if each.any]:
            gainers = waiting[0] if len(waiting) == 1 else min(waiting, key=lambda each: each.first(ledger).place)
            job = gainers.first(ledger)
            if self._start_if_it_can(job):
                gainers.start()
                return gainers.project
            gainers.refuse()
        return None

    def _start_if_it_can(self, job: QueuedJob) -> bool:
        found = self._giving.find(job) if self._giving.ledger.room(job.queue) > 0 else ""
        if isinstance(found, str):
            return False
        self._giving.start(job, found)
        self._placements.append(found)
        self._narrow()
        return True

    def _narrow(self) -> None:
        """Forget the shapes that what has become free is too little for by now."""
        if self._nodes:
            left = [self._giving.choices.nodes[name] for name in self._nodes]
            for asked, request in list(self._reopened.items()):
                if not any(self._giving.may_start_on(request, node) for node in left):
                    self._giving.choices.close(asked)
                    del self._reopened[asked]

    def _gainers(self, kind: str, project: str) -> "_Gainers":
        return _Gainers(kind, project, self._lines[kind, project], self._gains)

    def _gains(self, shape: _Shape, job: QueuedJob) -> bool:
        if shape.asked in self._reopened:
            return True
        is_relieved = job.project in self._projects or shape.queue in self._queues
        return is_relieved and not self._giving.is_nowhere(job)


class _Gainers:
    """Those of one project, the first of each shape."""

    def __init__(
        self, kind: str, project: str, lines: _Lines, gains: Callable[[_Shape, QueuedJob], bool]
    ) -> None:  # fmt: skip
        self.project = project
        self.is_split = len(lines) > 1
        self._kind = kind
        self._heads: dict[str, list[tuple[_Place, _Shape, list[QueuedJob]]]] = {}
        for group, line in lines.items():
            heads = [
                (alike[0].place, shape, alike) for shape, alike in line.items() if alike and gains(shape, alike[0])
            ]
            if heads:
                heapq.heapify(heads)
                self._heads[group] = heads
        self._group = COMMON  # of whom ``first`` has found

    @property
    def any(self) -> bool:
        return bool(self._heads)

    def first(self, ledger: Ledger) -> QueuedJob:
        """Whose turn it is, of some."""
        self._group = min(
            self._heads,
            key=lambda group: (ledger.queue_rank_of(self.project, group, self._kind), self._heads[group][0][0]),
        )
        return self._heads[self._group][0][2][0]

    def refuse(self) -> None:
        """It, and all of its shape: they ask for the same, and nobody gives anything back while they are served."""
        heads = self._heads[self._group]
        heapq.heappop(heads)
        if not heads:
            del self._heads[self._group]

    def start(self) -> None:
        """It waits no longer."""
        heads = self._heads[self._group]
        _, shape, alike = heads[0]
        del alike[0]
        if alike:
            heapq.heapreplace(heads, (alike[0].place, shape, alike))
        else:
            self.refuse()


def _key(job: QueuedJob) -> _Key:
    return job.request.device_kind, job.project


def _lasting(node: NodeCapacity) -> object:
    amounts = node.cpu_cores, node.ram_mb, node.storage_mb
    return node.devices, node.capabilities, node.accepts_training, node.labels, amounts


_place = attrgetter("place")
