"""Consecutive planner passes: nodes reserved for a gang stay reserved until it starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf
from random import Random

import pytest

from app.domain.scheduling.fair_share import QuotaUsage
from app.domain.scheduling.gang_index import GangIndex
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy
from app.domain.scheduling.preemption import Room, Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from app.domain.scheduling.running_index import RunningIndex
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS
from app.domain.scheduling.serving_order import Accounts

RESERVE_AFTER = 60.0
GANG = Request(node_count=2, device_count=4, device_kind="cuda")
WIDE = Request(node_count=3, device_count=3, device_kind="cuda")
SINGLE = Request(device_count=1, device_kind="cuda")


def node(name: str, kind: str = "h100", gpus: int = 4) -> NodeCapacity:
    devices = tuple(Device(index=index, type=kind, memory_mb=80_000) for index in range(gpus))
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(gpus)), cpu_cores=64)


@dataclass
class Days:
    """Jobs arrive and end, with one planner pass per second; every job knows when it ends."""

    nodes: dict[str, NodeCapacity]
    now: float = 0.0
    waiting: dict[str, QueuedJob] = field(default_factory=dict)
    running: dict[str, tuple[QueuedJob, Placement, float]] = field(default_factory=dict)  # with its end time
    started: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # run time, where it differs from the common one

    def add(self, name: str, project: str, request: Request = SINGLE) -> None:
        self.waiting[name] = QueuedJob(job_id=name, project=project, priority=5, since=self.now, request=request)

    def run_pass(self, length: float) -> Plan:
        self.now += 1.0
        for name in [name for name, (*_, end) in self.running.items() if end <= self.now]:
            job, placement, _ = self.running.pop(name)
            for part in placement.parts:
                indices = frozenset(device.index for device in part.devices)
                self.nodes[part.node] = self.nodes[part.node].without(indices, 100, job.request.quantities)
        planning = Planning(
            list(self.nodes.values()),
            Accounts(projects=self._standings()),
            self._held(),
            SchedulingPolicy(now=self.now, reserve_after_seconds=RESERVE_AFTER),
        )
        planning.serve_reserved_jobs([job for job in self.waiting.values() if job.awaits])
        planning.go_on([job for job in self.waiting.values() if not job.awaits])
        made = planning.result()
        for name, nodes in made.reservations.items():
            if name in self.waiting:
                self.waiting[name] = replace(self.waiting[name], awaits=nodes)
        for placement in made.placements:
            self._start(placement, length)
        return made

    def _start(self, placement: Placement, length: float) -> None:
        job = self.waiting.pop(placement.job_id)
        self.started[job.job_id] = self.now
        self.running[job.job_id] = job, placement, self.now + self.seconds.get(job.job_id, length)
        for part in placement.parts:
            node = self.nodes[part.node]
            self.nodes[part.node] = replace(
                node.given((device.index for device in part.devices), 100), active_jobs=node.active_jobs + 1
            )

    def _held(self) -> list[Running]:
        return [
            Running(
                job_id=job.job_id,
                project=job.project,
                node=part.node,
                priority=5,
                kind="cuda",
                devices=frozenset(device.index for device in part.devices),
                ends_in=end - self.now,
            )
            for job, placement, end in self.running.values()
            for part in placement.parts
        ]

    def _standings(self) -> dict[str, QuotaUsage]:
        used: dict[str, float] = {}
        for each in self._held():
            used[each.project] = used.get(each.project, 0.0) + len(each.devices)
        return {name: QuotaUsage(used={"cuda": amount}) for name, amount in used.items()}

    def until(self, end: float, length: float, before_each: Callable[[], None]) -> None:
        while self.now < end:
            before_each()
            self.run_pass(length)


def stream(days: Days, projects: Sequence[str], every: int) -> Callable[[], None]:
    """Submits one small job per project every so many seconds."""

    def come() -> None:
        if int(days.now) % every == 0:
            for project in projects:
                days.add(f"{project}{int(days.now):06}", project)

    return come


@pytest.mark.long
def test_a_stream_of_small_jobs_of_others_holds_a_gang_back_no_longer_than_was_promised() -> None:
    days = Days({name: node(name) for name in ("n1", "n2", "n3", "n4")})
    length = 40.0
    for number in range(2):  # its project then uses more than any other, and is served last
        days.add(f"long{number}", "a", replace(SINGLE, device_count=4))
        days.seconds[f"long{number}"] = 10_000.0
    come = stream(days, ["b", "c"], every=9)  # more than the free devices can serve
    days.until(200, length, come)

    days.add("gang", "a", GANG)
    asked = days.now
    days.until(800, length, come)

    assert days.started["gang"] - asked <= RESERVE_AFTER + length + 2
    assert max(days.started.values()) > 750


class Counting(RunningIndex):
    """Counts the nodes that are inspected closely."""

    inspections = 0

    def room_on(self, job: QueuedJob, node: NodeCapacity) -> Room | None:
        self.inspections += 1
        return super().room_on(job, node)


def busy_cluster(names: Sequence[str], random: Random) -> tuple[dict[str, NodeCapacity], list[Running]]:
    """Nodes of two types with running jobs, some of them without a known end."""
    nodes, running = {}, []
    for name in names:
        held = random.sample(range(4), random.randint(0, 4))
        nodes[name] = replace(node(name, random.choice(["h100", "a100"])), free=frozenset(range(4)) - {*held})
        for index in held:
            ends_in = random.choice([None, float(random.randint(1, 500))])
            running.append(
                Running(
                    job_id=f"{name}-{index}",
                    project="",
                    node=name,
                    priority=0,
                    kind="cuda",
                    devices=frozenset({index}),
                    ends_in=ends_in,
                )
            )
    return nodes, running


def last_end(rooms: Sequence[Room]) -> float:
    return max(inf if room.seconds is None else room.seconds for room in rooms)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_set_of_nodes_would_be_free_sooner(seed: int) -> None:
    nodes, running = busy_cluster([f"n{number}" for number in range(7)], Random(seed))
    choices, job = GangIndex(nodes, DEFAULT_WEIGHTS), QueuedJob(job_id="g", priority=5, since=0.0, request=WIDE)

    found = choices.rooms(job, RunningIndex(running, nodes))

    sets = [choices.rooms(job, RunningIndex(running, nodes), on=on) for on in combinations(nodes, WIDE.node_count)]
    ends = [last_end(each) for each in sets if each]
    assert bool(found) is bool(ends)
    assert not found or last_end(found) == min(ends)
    assert len({node.devices[0].type for node in nodes.values() if node.name in {room.node for room in found}}) <= 1


def test_of_many_nodes_few_are_looked_at() -> None:
    nodes, running = busy_cluster([f"n{number:03}" for number in range(300)], Random(1))
    full = {name: replace(each, free=frozenset()) for name, each in nodes.items()}
    running = [replace(each, ends_in=each.ends_in or 1000.0) for each in running]
    choices, running_index = GangIndex(full, DEFAULT_WEIGHTS), Counting(running, full)

    assert choices.rooms(QueuedJob(job_id="g", priority=5, since=0.0, request=WIDE), running_index)
    assert 0 < running_index.inspections < 30
