"""State of the simulated cluster: nodes, pending and running jobs; the planner's input."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from app.domain.scheduling.fair_share import ProjectQuota, QuotaUsage
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planning_pass import GROWTH
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NOTHING, NodeCapacity, Quantities
from app.domain.scheduling.serving_order import COMMON, Accounts
from app.domain.units import WHOLE
from simulation.trace import ReplayCluster

WINDOW = 500  # of each project's line, as the coordinator reads it


@dataclass(frozen=True, kw_only=True)
class PassInput:
    """Input of one pass. ``lines``: pending jobs of every project in order, without those that have a reservation."""

    now: float
    nodes: Sequence[NodeCapacity]
    accounts: Accounts
    running: Sequence[Running]
    reserved: Sequence[QueuedJob]
    lines: Mapping[str, Sequence[QueuedJob]]

    def windows(self, size: int = WINDOW) -> Iterator[list[QueuedJob]]:
        """Yield up to ``size`` jobs from the front of every project's line, then larger windows."""
        after = dict.fromkeys(sorted(self.lines), 0)
        while after:
            found: list[QueuedJob] = []
            for project, start in list(after.items()):
                line = self.lines[project]
                found += line[start : start + size]
                after[project] = start + size
                if after[project] >= len(line):
                    del after[project]
            yield found
            size *= GROWTH


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A running job with its devices."""

    job: QueuedJob
    placement: Placement
    kind: str
    parts: Mapping[str, frozenset[int]]  # node → the indices of its devices
    quantities: Mapping[str, Quantities]  # node → what the job takes of its amounts

    @cached_property
    def amount(self) -> float:
        return sum(map(len, self.parts.values())) * self.placement.share / WHOLE


class SimulatedCluster:
    """Not thread-safe. Raises ValueError for placements on resources that are not free."""

    def __init__(self, cluster: ReplayCluster) -> None:
        self._quotas = cluster.quotas
        self._weights = cluster.queue_weights
        self.nodes = {node.name: node for node in cluster.nodes}
        self.waiting: dict[str, QueuedJob] = {}
        self.held: dict[str, Allocation] = {}
        self._lines: dict[str, list[QueuedJob]] = {}
        self._usages = {name: QuotaUsage(quota=quota) for name, quota in cluster.quotas.items()}
        self._queue_use: dict[tuple[str, str, str], float] = {}

    def add(self, job: QueuedJob) -> None:
        """Add a pending job."""
        self.waiting[job.job_id] = job
        self._usages.setdefault(job.project, QuotaUsage(quota=self._quotas.get(job.project, ProjectQuota())))
        if not job.awaits:
            insort(self._lines.setdefault(job.project, []), job, key=lambda each: each.place)

    def reserve(self, job_id: str, names: tuple[str, ...]) -> None:
        """Record the reservation of a job, () cancels it; ignored for a job that is no longer pending."""
        if job_id in self.waiting:
            self.add(replace(self._take(job_id), awaits=names))

    def start(self, placement: Placement) -> Allocation:
        """Raises ValueError when these devices, or amounts of the nodes, are not free."""
        job = self._take(placement.job_id)
        parts = {part.node: frozenset(device.index for device in part.devices) for part in placement.parts}
        quantities = {part.node: part.quantities(job.request) for part in placement.parts}
        for name, devices in parts.items():
            node = self.nodes[name]
            after = node.with_job(devices, placement.share, quantities[name])
            if any(node.left(index) < placement.share for index in devices) or not _holds(node, after.held):
                raise ValueError(f"{placement} of {job.request} is more than is free on {node}")
            self.nodes[name] = after
        started = Allocation(
            job=replace(job, awaits=()),
            placement=placement,
            kind=job.request.device_kind,
            parts=parts,
            quantities=quantities,
        )
        self.held[job.job_id] = started
        self._count(started, 1)
        return started

    def end(self, job_id: str) -> Allocation:
        """Release the devices of a job."""
        ended = self.held.pop(job_id)
        for name, devices in ended.parts.items():
            self.nodes[name] = self.nodes[name].without(devices, ended.placement.share, ended.quantities[name])
        self._count(ended, -1)
        return ended

    def view(self, now: float, running: Sequence[Running]) -> PassInput:
        """The planner's input; ``running`` is provided by the running jobs."""
        return PassInput(
            now=now,
            nodes=list(self.nodes.values()),
            accounts=Accounts(projects=self._usages, queue_weights=self._weights, queue_use=self._queue_use),
            running=running,
            reserved=[job for job in self.waiting.values() if job.awaits],
            lines={project: line for project, line in self._lines.items() if line},
        )

    def _take(self, job_id: str) -> QueuedJob:
        job = self.waiting.pop(job_id)
        if not job.awaits:
            line = self._lines[job.project]
            del line[bisect_left(line, job.place, key=lambda each: each.place)]
        return job

    def _count(self, held: Allocation, sign: int) -> None:
        job, kind, amount = held.job, held.kind, sign * held.amount
        usage = self._usages[job.project]
        change = usage.with_one_more if sign > 0 else usage.with_one_less
        self._usages[job.project] = change(kind, held.amount, preemptible=job.is_preemptible)
        place = job.project, job.queue if job.queue in self._weights else COMMON, kind
        self._queue_use[place] = round(self._queue_use.get(place, 0) + amount, 6)


def _holds(node: NodeCapacity, held: Quantities) -> bool:
    return held.beyond(Quantities(cpu_cores=node.cpu_cores, ram_mb=node.ram_mb, storage_mb=node.storage_mb)) == NOTHING
