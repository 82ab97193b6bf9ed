"""Serving order: projects by fair share, queues within a project by weight, jobs within a queue by queue order."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.domain.scheduling.fair_share import QuotaUsage, never_fits, refusal
from app.domain.scheduling.queue_order import QueuedJob

# Queues without a weight share one line and together count as one queue of this weight.
COMMON = ""
COMMON_WEIGHT = 1.0


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """Limits on starts apart from node capacity, and current usage.

    ``room`` is the number of jobs that may still start per queue; queues that it does not name are unlimited.
    """

    room: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    projects: Mapping[str, QuotaUsage] = field(default_factory=lambda: MappingProxyType({}))
    queue_weights: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({})
    )  # queues with a weight only
    # (project, queue, kind) → devices in use, for the queues with a weight and, as COMMON, for all others together.
    queue_use: Mapping[tuple[str, str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    # Reserved by the pass for waiting jobs, by (project, kind): devices, and projects whose remaining quota is held.
    reserved: Mapping[tuple[str, str], float] = field(default_factory=lambda: MappingProxyType({}))
    held: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, kw_only=True)
class JobUsage:
    """Usage that a running job is accounted with; ``others``: its devices of other kinds."""

    project: str
    queue: str
    kind: str
    devices: float
    is_preemptible: bool
    others: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class PassAccounts:
    """Mutable accounts during a pass."""

    def __init__(self, accounts: Accounts) -> None:
        self._room = dict(accounts.room)
        self._projects = dict(accounts.projects)
        self._queue_use = dict(accounts.queue_use)
        self._weights = accounts.queue_weights
        self._clearing: dict[tuple[str, str], float] = {}
        self._held = set(accounts.held)
        self._reserved = dict(accounts.reserved)
        # Caches: read for every job, changed by few.
        self._refusals: dict[tuple[str, str, float, bool], tuple[QuotaUsage, str]] = {}
        self._ranks: dict[tuple[str, str], tuple[int, float]] = {}
        self.changes = 0  # counter of updates that may change the serving order

    def close(self) -> Accounts:
        return Accounts(
            room=dict(self._room),
            projects=dict(self._projects),
            queue_weights=self._weights,
            queue_use=dict(self._queue_use),
            reserved=dict(self._reserved),
            held=frozenset(self._held),
        )

    def room(self, queue: str) -> int:
        return self._room.get(queue, 1)

    def hold(self, job: QueuedJob) -> None:
        """Hold the project's remaining quota for this job, which has waited long and would starve otherwise."""
        self._held.update((job.project, kind) for kind in job.request.amounts)

    def reserve(self, job: QueuedJob) -> None:
        """Reserve devices and quota for the job; they count as used in the serving order."""
        for kind, amount in job.request.amounts.items():
            key = job.project, kind
            self._reserved[key] = self._reserved.get(key, 0) + amount
            self._ranks.pop(key, None)
        self.changes += 1

    def held_back(self, job: QueuedJob) -> str:
        """Why the remaining quota is held for an older job of the project; "" when the job may use it."""
        for kind, amount in job.request.amounts.items():
            key = job.project, kind
            reserved = self._reserved.get(key, 0)
            if key in self._held or (reserved > 0 and self._usage_of(job.project).excess(kind, amount + reserved) > 0):
                return f"what the project {job.project} may use is reserved for an older job of it"
        return ""

    def is_stopped(self, job: QueuedJob) -> bool:
        """Whether no job of its project may start, however many devices it releases."""
        return self._usage_of(job.project).stopped(job.project) != ""

    def refusal(self, job: QueuedJob) -> str:
        standing = self._projects.get(job.project)
        if standing is None:
            return ""
        found = (self._refusal(job, standing, kind, amount) for kind, amount in job.request.amounts.items())
        return next(filter(None, found), "")

    def _refusal(self, job: QueuedJob, standing: QuotaUsage, kind: str, amount: float) -> str:
        like = job.project, kind, amount, job.is_preemptible
        known = self._refusals.get(like)
        if known is None or known[0] is not standing:
            reason = refusal(
                job.project,
                standing,
                kind,
                amount,
                preemptible=job.is_preemptible,
                clearing=self._clearing.get((job.project, kind), 0),
            )
            known = self._refusals[like] = standing, reason
        return known[1]

    def count_clearing(self, job: QueuedJob) -> None:
        """Count devices that are being cleared for the job as used, or too many would be cleared."""
        for kind, amount in job.request.amounts.items():
            key = job.project, kind
            self._clearing[key] = self._clearing.get(key, 0) + amount
        self.count(job, job.request.amount)

    def count(self, job: QueuedJob, devices: float) -> None:
        """Account for the start of the job with this number of devices of its kind."""
        kind, group = job.request.device_kind, self.group(job)
        others = {each: amount for each, amount in job.request.amounts.items() if each != kind}
        standing = self._usage_of(job.project)
        self._projects[job.project] = standing.with_one_more(
            kind, devices, preemptible=job.is_preemptible, others=others
        )
        for each, amount in {kind: devices, **others}.items():
            self._ranks.pop((job.project, each), None)
            place = (job.project, group, each)
            self._queue_use[place] = self._queue_use.get(place, 0) + amount
        self.changes += 1
        if job.queue in self._room:
            self._room[job.queue] -= 1

    def release(self, use: JobUsage) -> None:
        """Account for the end of a job."""
        standing = self._usage_of(use.project)
        self._projects[use.project] = standing.with_one_less(
            use.kind, use.devices, preemptible=use.is_preemptible, others=use.others
        )
        for kind, devices in {use.kind: use.devices, **use.others}.items():
            self._ranks.pop((use.project, kind), None)
            place = use.project, self.group_of(use.queue), kind
            self._queue_use[place] = round(self._queue_use.get(place, 0) - devices, 6)
        self.changes += 1
        if use.queue in self._room:
            self._room[use.queue] += 1

    def is_held(self, project: str, kind: str) -> bool:
        """Whether the project's remaining quota is held for one of its jobs."""
        return (project, kind) in self._held

    def excess(self, job: QueuedJob) -> float:
        """Number of devices that its project must release before the job is within the quota."""
        standing, kind, amount = self._usage_of(job.project), job.request.device_kind, job.request.amount
        if not job.is_preemptible and standing.is_fixed_beyond(kind, amount):
            return 0.0  # preempting jobs of the project would not help
        return standing.excess(kind, amount)

    def is_ever_within(self, job: QueuedJob) -> bool:
        """Whether the quota admits such a job at all."""
        quota = self._usage_of(job.project).quota
        return not any(
            never_fits("", quota, kind, amount, preemptible=job.is_preemptible)
            for kind, amount in job.request.amounts.items()
        )

    def is_deserved(self, job: QueuedJob) -> bool:
        """Whether the project stays within its deserved quota with the job."""
        standing = self._usage_of(job.project)
        return all(standing.is_deserved(kind, amount) for kind, amount in job.request.amounts.items())

    def borrowed(self, project: str, kind: str) -> float:
        """Usage above the deserved quota, without devices that are still being cleared for the project."""
        return self._usage_of(project).borrowed(kind, clearing=self._clearing.get((project, kind), 0))

    def rank(self, job: QueuedJob) -> tuple[int, float]:
        """Fair-share rank of the job's project before the job starts."""
        return self.rank_of(job.project, job.request.device_kind)

    def rank_of(self, project: str, kind: str) -> tuple[int, float]:
        key = project, kind
        rank = self._ranks.get(key)
        if rank is None:
            rank = self._ranks[key] = self._usage_of(project).serving_key(kind, self._reserved.get(key, 0))
        return rank

    def queue_rank(self, job: QueuedJob) -> float:
        """Rank of the job's queue within the project: devices in use per weight."""
        return self.queue_rank_of(job.project, self.group(job), job.request.device_kind)

    def queue_rank_of(self, project: str, group: str, kind: str) -> float:
        return self._queue_use.get((project, group, kind), 0) / self._weights.get(group, COMMON_WEIGHT)

    def group(self, job: QueuedJob) -> str:
        return self.group_of(job.queue)

    def group_of(self, queue: str) -> str:
        return queue if queue in self._weights else COMMON

    def _usage_of(self, project: str) -> QuotaUsage:
        return self._projects.get(project, _NEW)


def in_serving_order(jobs: Sequence[QueuedJob], ledger: PassAccounts) -> Iterator[QueuedJob]:
    """Yield every job once; starts that the caller accounts in the ledger change the order of the rest.

    GPUs come before CPU slots: they are scarcer, and GPU jobs need processor time and memory, too.
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


# (position key, job) in reverse order. Keys end with the job id, so they are unique and jobs are never compared.
_Line = list[tuple[tuple[float, str], QueuedJob]]
# (rank of the project, position of its next job, the line with this job, the project's other lines).
_Position = tuple[tuple[int, float], tuple[float, str], _Line, list[_Line]]


def _of_one_kind(projects: Sequence[list[_Line]], ledger: PassAccounts) -> Iterator[QueuedJob]:
    # A project's rank changes only when one of its own jobs starts, and that job is at the head of the heap.
    turns = [_turn(lines, ledger) for lines in projects]
    heapq.heapify(turns)
    while turns:
        _, _, line, others = turns[0]
        yield from _one_after_the_other(turns[0], min(turns[1:3], default=None), ledger)
        if left := [line, *others] if line else others:
            heapq.heapreplace(turns, _turn(left, ledger))
        else:
            heapq.heappop(turns)


def _one_after_the_other(turn: _Position, following: _Position | None, ledger: PassAccounts) -> Iterator[QueuedJob]:
    """The next job, and those behind it while none starts: most don't start, so the order does not change."""
    rank, _, line, others = turn
    until = None if following is None or rank < following[0] else following[1]
    changes = ledger.changes
    yield line.pop()[1]
    if others:
        return  # the next job may be in another line
    while line and ledger.changes == changes and (until is None or line[-1][0] < until):
        yield line.pop()[1]


def _turn(lines: list[_Line], ledger: PassAccounts) -> _Position:
    """The next job of a project. Ties between projects are broken by the position of these jobs."""
    line, *others = lines
    if others:
        line = min(lines, key=lambda each: (ledger.queue_rank(each[-1][1]), each[-1][0]))
        others = [each for each in lines if each is not line]
    place, first = line[-1]
    return ledger.rank(first), place, line, others


_NEW = QuotaUsage()
