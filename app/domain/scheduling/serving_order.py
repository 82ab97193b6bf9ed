"""Whose turn it is: projects by their shares, queues within a project by weight, jobs of a queue in its line."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.domain.scheduling.fair_share import Standing, never_fits, refusal
from app.domain.scheduling.queue_order import QueuedJob

# Queues without a weight share one line, and together count like one of this weight.
COMMON = ""
COMMON_WEIGHT = 1.0


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """What limits starts beside the nodes, and what runs already.

    ``room`` says how many more jobs may start from a queue; one that it does not name may start any number.
    """

    room: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    projects: Mapping[str, Standing] = field(default_factory=lambda: MappingProxyType({}))
    queue_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # of those that have one
    # (project, queue, kind) → devices in use, for the queues with a weight and, as COMMON, for all others together.
    queue_use: Mapping[tuple[str, str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    # What a pass keeps for those that wait, by (project, kind): the devices, and whether all that the quota leaves.
    kept: Mapping[tuple[str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    held: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Use:
    """What a job that runs counts for."""

    project: str
    queue: str
    kind: str
    devices: float
    is_preemptible: bool


class Ledger:
    """The accounts while a plan is made."""

    def __init__(self, accounts: Accounts) -> None:
        self._room = dict(accounts.room)
        self._projects = dict(accounts.projects)
        self._queue_use = dict(accounts.queue_use)
        self._weights = accounts.queue_weights
        self._promised: dict[tuple[str, str], float] = {}
        self._held = set(accounts.held)
        self._kept = dict(accounts.kept)
        # Asked for every job, and changed by few.
        self._refusals: dict[tuple[str, str, float, bool], tuple[Standing, str]] = {}
        self._ranks: dict[tuple[str, str], tuple[int, float]] = {}
        self.changes = 0  # of what anybody's turn depends on

    def close(self) -> Accounts:
        return Accounts(
            room=dict(self._room), projects=dict(self._projects), queue_weights=self._weights,
            queue_use=dict(self._queue_use), kept=dict(self._kept), held=frozenset(self._held),
        )  # fmt: skip

    def room(self, queue: str) -> int:
        return self._room.get(queue, 1)

    def hold(self, job: QueuedJob) -> None:
        """What its project may still use is for this job, which has waited long and would be passed for ever."""
        self._held.add((job.project, job.request.device_kind))

    def keep(self, job: QueuedJob) -> None:
        """Devices are kept for it, and what the quota leaves for it. They count when turns are given, as if in use."""
        key = job.project, job.request.device_kind
        self._kept[key] = self._kept.get(key, 0) + job.request.amount
        self._ranks.pop(key, None)
        self.changes += 1

    def held_back(self, job: QueuedJob) -> str:
        """Why it is refused what the quota leaves for an older job of its project; "" when it may have it."""
        key = job.project, job.request.device_kind
        kept = self._kept.get(key, 0)
        if key in self._held or (
            kept > 0 and self._standing(job.project).excess(job.request.device_kind, job.request.amount + kept) > 0
        ):
            return f"what the project {job.project} may use is kept for an older job of it"
        return ""

    def is_stopped(self, job: QueuedJob) -> bool:
        """Whether nothing of its project may start, however many devices it gives up."""
        return self._standing(job.project).stopped(job.project) != ""

    def refusal(self, job: QueuedJob) -> str:
        standing = self._projects.get(job.project)
        if standing is None:
            return ""
        request = job.request
        like = job.project, request.device_kind, request.amount, job.is_preemptible
        known = self._refusals.get(like)
        if known is None or known[0] is not standing:
            said = refusal(
                job.project, standing, request.device_kind, request.amount, preemptible=job.is_preemptible,
                promised=self._promised.get((job.project, request.device_kind), 0),
            )  # fmt: skip
            known = self._refusals[like] = standing, said
        return known[1]

    def promise(self, job: QueuedJob) -> None:
        """Devices are cleared for it: they count as used, or too many would be cleared."""
        key = job.project, job.request.device_kind
        self._promised[key] = self._promised.get(key, 0) + job.request.amount
        self.count(job, job.request.amount)

    def count(self, job: QueuedJob, devices: float) -> None:
        """It starts, with so many."""
        kind = job.request.device_kind
        standing = self._standing(job.project)
        self._projects[job.project] = standing.with_one_more(kind, devices, preemptible=job.is_preemptible)
        self._ranks.pop((job.project, kind), None)
        self.changes += 1
        place = (job.project, self.group(job), kind)
        self._queue_use[place] = self._queue_use.get(place, 0) + devices
        if job.queue in self._room:
            self._room[job.queue] -= 1

    def give_back(self, use: Use) -> None:
        """What it used is free again."""
        standing = self._standing(use.project)
        self._projects[use.project] = standing.with_one_less(use.kind, use.devices, preemptible=use.is_preemptible)
        self._ranks.pop((use.project, use.kind), None)
        self.changes += 1
        place = use.project, self.group_of(use.queue), use.kind
        self._queue_use[place] = round(self._queue_use.get(place, 0) - use.devices, 6)
        if use.queue in self._room:
            self._room[use.queue] += 1

    def holds_for_one(self, project: str, kind: str) -> bool:
        """Whether all that its quota leaves is for one job of it."""
        return (project, kind) in self._held

    def excess(self, job: QueuedJob) -> float:
        """How many devices its project must give up before the job is within the quota."""
        standing, kind, amount = self._standing(job.project), job.request.device_kind, job.request.amount
        if not job.is_preemptible and standing.is_fixed_beyond(kind, amount):
            return 0.0  # none of those who could go would help
        return standing.excess(kind, amount)

    def is_ever_within(self, job: QueuedJob) -> bool:
        """Whether the quota lets such a job start at all."""
        quota, request = self._standing(job.project).quota, job.request
        return not never_fits("", quota, request.device_kind, request.amount, preemptible=job.is_preemptible)

    def is_deserved(self, job: QueuedJob) -> bool:
        """Whether the job stays within what is its project's own."""
        return self._standing(job.project).is_deserved(job.request.device_kind, job.request.amount)

    def borrowed(self, project: str, kind: str) -> float:
        """What it uses beyond what it deserves; what it was only promised is none of it."""
        return self._standing(project).borrowed(kind, promised=self._promised.get((project, kind), 0))

    def rank(self, job: QueuedJob) -> tuple[int, float]:
        """Of the job's project, as it stands before the job starts."""
        return self.rank_of(job.project, job.request.device_kind)

    def rank_of(self, project: str, kind: str) -> tuple[int, float]:
        key = project, kind
        rank = self._ranks.get(key)
        if rank is None:
            rank = self._ranks[key] = self._standing(project).rank(kind, self._kept.get(key, 0))
        return rank

    def queue_rank(self, job: QueuedJob) -> float:
        """Of the job's queue within the project: devices in use for its weight."""
        return self.queue_rank_of(job.project, self.group(job), job.request.device_kind)

    def queue_rank_of(self, project: str, group: str, kind: str) -> float:
        return self._queue_use.get((project, group, kind), 0) / self._weights.get(group, COMMON_WEIGHT)

    def group(self, job: QueuedJob) -> str:
        return self.group_of(job.queue)

    def group_of(self, queue: str) -> str:
        return queue if queue in self._weights else COMMON

    def _standing(self, project: str) -> Standing:
        return self._projects.get(project, _NEW)


def in_turn(jobs: Sequence[QueuedJob], ledger: Ledger) -> Iterator[QueuedJob]:
    """Everybody once; whoever the caller counts in the ledger changes whose turn is next.

    GPUs before CPU slots: what runs there needs processor time and memory, too, and is the scarcer one.
    """
    lines: dict[tuple[str, str], dict[str, _Line]] = {}  # (kind, project) → queue → line
    for job in jobs:
        queues = lines.setdefault((job.request.device_kind, job.project), {})
        queues.setdefault(ledger.group(job), []).append((job.place, job))
    for queues in lines.values():
        for line in queues.values():
            line.sort(reverse=True)
    for wanted in ("cuda", "cpu"):
        yield from _of_one_kind(
            [list(queues.values()) for (kind, _), queues in lines.items() if kind == wanted], ledger
        )


# With their places, the first one last. Places end with the job's id: no two are alike, and nothing behind them is ever
# compared.
_Line = list[tuple[tuple[float, str], QueuedJob]]
# (rank of the project, place of its next job, the line that this job leads, the project's other lines).
_Turn = tuple[tuple[int, float], tuple[float, str], _Line, list[_Line]]


def _of_one_kind(projects: Sequence[list[_Line]], ledger: Ledger) -> Iterator[QueuedJob]:
    # A project's rank changes only when one of its own jobs starts, and that one leads the first line of the heap.
    turns = [_turn(lines, ledger) for lines in projects]
    heapq.heapify(turns)
    while turns:
        _, _, line, others = turns[0]
        yield from _one_after_the_other(turns[0], min(turns[1:3], default=None), ledger)
        if left := [line, *others] if line else others:
            heapq.heapreplace(turns, _turn(left, ledger))
        else:
            heapq.heappop(turns)


def _one_after_the_other(turn: _Turn, following: _Turn | None, ledger: Ledger) -> Iterator[QueuedJob]:
    """The job whose turn it is, and those behind it as long as none starts: most don't, and change nobody's turn."""
    rank, _, line, others = turn
    until = None if following is None or rank < following[0] else following[1]
    changes = ledger.changes
    yield line.pop()[1]
    if others:
        return  # the next one is perhaps that of another line
    while line and ledger.changes == changes and (until is None or line[-1][0] < until):
        yield line.pop()[1]


def _turn(lines: list[_Line], ledger: Ledger) -> _Turn:
    """The job that a project would start next. Of projects that stand alike the one whose job is first in line."""
    line, *others = lines
    if others:
        line = min(lines, key=lambda each: (ledger.queue_rank(each[-1][1]), each[-1][0]))
        others = [each for each in lines if each is not line]
    place, first = line[-1]
    return ledger.rank(first), place, line, others


_NEW = Standing()
