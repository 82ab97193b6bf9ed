"""After every event the same jobs start as in a full pass, in the same order."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.nodes.project_demand import sharing
from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota, QuotaUsage
from app.domain.scheduling.incremental_planner import IncrementalPlan, IncrementalPlanner
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy, plan
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Request, RoleRequest
from app.domain.scheduling.serving_order import COMMON, Accounts, JobUsage

PROJECTS, QUEUES, LABELS = ("a", "b", "c"), ("day", "night"), ("ssd", "rack-1")
SHAPES = (
    Request(device_kind="cuda"),
    Request(device_kind="cuda", device_count=2),
    Request(device_kind="cuda", device_count=3),
    Request(device_kind="cuda", gpu_share=50),
    Request(device_kind="cuda", gpu_share=25),
    Request(device_kind="cuda", gpu_types=(GpuType("h100"),)),
    Request(device_kind="cuda", required_labels=frozenset({"ssd"})),
    Request(preferred_labels=frozenset({"ssd"})),
    Request(device_kind="cuda", preferred_labels=frozenset({"n1"}), avoided_labels=frozenset({"ssd"})),
    Request(device_kind="cuda", ram_min_mb=700),
    Request(device_kind="cuda", node_count=2),
    Request(
        roles=(
            RoleRequest(role="trainer", count=1, each=Request(device_kind="cuda", device_count=2)),
            RoleRequest(role="rollout", count=2, each=Request(device_kind="cuda")),
        ),
        device_kind="cuda",
        device_count=4,
    ),
    Request(device_kind="cpu"),
    Request(device_kind="cpu", device_count=2, forbidden_labels=frozenset({"n0"})),
)


@dataclass
class World:
    """A random cluster, drawn from ``draw``, in the state in which the last planner pass left it."""

    draw: random.Random
    nodes: dict[str, NodeCapacity] = field(default_factory=dict)
    running: dict[str, tuple[Running, ...]] = field(default_factory=dict)  # each job with its gang parts
    uses: dict[str, JobUsage] = field(default_factory=dict)
    waiting: list[QueuedJob] = field(default_factory=list)
    accounts: Accounts = field(default_factory=Accounts)
    serial: int = 0

    def fill(self) -> None:
        self._make_nodes()
        self._make_accounts()
        for _ in range(self.draw.randrange(12)):
            job = self.job()
            made = plan([job], list(self.nodes.values()))
            self._take(job, made)
        self.waiting = [self.job() for _ in range(self.draw.randrange(25))]

    def job(self) -> QueuedJob:
        self.serial += 1
        project = self.draw.choice(PROJECTS)
        return QueuedJob(
            job_id=f"j{self.serial:03}",
            priority=self.draw.randrange(3),
            since=self.draw.choice((0.0, 100.0, 5e4)),
            request=sharing(self.draw.choice(SHAPES), project),
            queue=self.draw.choice(QUEUES),
            project=project,
            is_preemptible=self.draw.random() < 0.5,
            avoids=frozenset({"n1"}) if self.draw.random() < 0.1 else frozenset(),
            no_room_on=("n2",) if self.draw.random() < 0.1 else (),
        )

    def start(self, made: Plan | IncrementalPlan) -> None:
        """What was decided is so."""
        by_id = {job.job_id: job for job in self.waiting}
        for placement in made.placements:
            self._take(by_id[placement.job_id], replace(_NOTHING, placements=(placement,)))
        started = {placement.job_id for placement in made.placements}
        self.waiting = [job for job in self.waiting if job.job_id not in started]

    def end(self) -> tuple[list[JobUsage], list[NodeCapacity]]:
        """One of those that run, on all of its nodes."""
        job_id = self.draw.choice(sorted(self.running))
        use, parts = self.uses.pop(job_id), self.running.pop(job_id)
        for part in parts:
            node = self.nodes[part.node].without(part.devices, part.share, part.quantities)
            self.nodes[part.node] = replace(node, reputation=self.draw.choice((0.5, 1.0)))
        self._count(use, -1)
        return [use], [self.nodes[part.node] for part in parts]

    def _make_nodes(self) -> None:
        for number in range(self.draw.randint(1, 5)):
            chip = self.draw.choice(("h100", "a100"))
            devices = [Device(index=index, type=chip, memory_mb=80_000) for index in range(self.draw.randint(1, 4))]
            devices += [Device(index=10 + index, type="cpu") for index in range(self.draw.randrange(3))]
            self.nodes[f"n{number}"] = NodeCapacity(
                name=f"n{number}",
                devices=tuple(devices),
                free=frozenset(device.index for device in devices),
                cpu_cores=8,
                ram_mb=1000,
                labels=frozenset(label for label in LABELS if self.draw.random() < 0.5),
                max_jobs=self.draw.choice((None, None, 2)),
                reputation=self.draw.choice((0.5, 1.0)),
            )

    def _make_accounts(self) -> None:
        draw = self.draw
        quotas = {
            name: ProjectQuota(
                devices={
                    "cuda": DeviceQuota(
                        deserved=draw.choice((None, 1, 3)),
                        limit=draw.choice((None, 4, 6)),
                        over_quota_weight=draw.choice((0.0, 1.0, 2.0)),
                    )
                },
                max_running_jobs=draw.choice((None, None, 3)),
            )
            for name in PROJECTS
        }
        self.accounts = Accounts(
            projects={name: QuotaUsage(quota=quota) for name, quota in quotas.items()},
            queue_weights={name: 2.0 for name in QUEUES if draw.random() < 0.2},
            room={name: draw.randrange(5) for name in QUEUES if draw.random() < 0.3},
        )

    def _take(self, job: QueuedJob, made: Plan) -> None:
        for placement in made.placements:
            request, kind = job.request, job.request.device_kind
            for part in placement.parts:
                indices = frozenset(device.index for device in part.devices)
                node = self.nodes[part.node]
                self.nodes[part.node] = node.with_job(indices, placement.share, request.quantities, request.tenant)
                running = Running(
                    job_id=job.job_id,
                    project=job.project,
                    node=part.node,
                    priority=job.priority,
                    kind=kind,
                    devices=indices,
                    share=placement.share,
                    quantities=request.quantities,
                    may_be_preempted=job.is_preemptible,
                    ends_in=self.draw.choice((None, 60.0, 600.0)),
                )
                self.running[job.job_id] = (*self.running.get(job.job_id, ()), running)
            use = self.uses[job.job_id] = JobUsage(
                project=job.project,
                queue=job.queue,
                kind=kind,
                is_preemptible=job.is_preemptible,
                devices=placement.amounts[kind],
            )
            self._count(use, 1)

    def _count(self, use: JobUsage, sign: int) -> None:
        standing, devices = self.accounts.projects[use.project], sign * use.devices
        changed = replace(
            standing,
            running=standing.running + sign,
            used={**standing.used, use.kind: standing.used.get(use.kind, 0) + devices},
            fixed=standing.fixed
            if use.is_preemptible
            else {**standing.fixed, use.kind: standing.fixed.get(use.kind, 0) + devices},
        )
        place = use.project, use.queue if use.queue in self.accounts.queue_weights else COMMON, use.kind
        room = {name: left - sign if name == use.queue else left for name, left in self.accounts.room.items()}
        self.accounts = replace(
            self.accounts,
            projects={**self.accounts.projects, use.project: changed},
            room=room,
            queue_use={**self.accounts.queue_use, place: self.accounts.queue_use.get(place, 0) + devices},
        )


_NOTHING = Plan(placements=(), pending_reasons={}, nodes=())


def follow(world: World, planning: Planning) -> tuple[IncrementalPlanner, Plan]:
    """What follows a full pass, whose plan is carried out."""
    planning.go_on(world.waiting)
    made = planning.result()
    following = IncrementalPlanner(planning.cluster, made, world.waiting)
    world.start(made)
    return following, made


def happen(world: World, following: IncrementalPlanner) -> IncrementalPlan | None:
    """Some event."""
    if world.running and world.draw.random() < 0.6:
        return following.ended(*world.end())
    new = [world.job() for _ in range(world.draw.randint(1, 2))]
    world.waiting += new
    return following.submitted(new)


@pytest.mark.long
@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_an_incremental_pass_starts_the_jobs_that_a_full_pass_would(seed: int) -> None:
    world = World(random.Random(seed))
    world.fill()
    following, _ = follow(world, Planning(list(world.nodes.values()), world.accounts, (), SchedulingPolicy()))

    for _ in range(12):
        found = happen(world, following)

        expected = plan(world.waiting, list(world.nodes.values()), world.accounts)
        if found is None:
            assert world.accounts.queue_weights, "only queue weights make this event need a full pass"
            return
        assert found.placements == expected.placements
        assert set(found.pending_reasons) <= set(expected.pending_reasons)
        world.start(found)


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_what_a_full_pass_made_room_for_stays_so_until_the_next_one(seed: int) -> None:
    world = World(random.Random(seed))
    world.fill()
    running = [part for parts in world.running.values() for part in parts]
    policy = SchedulingPolicy(now=6e4, reserve_after_seconds=3e4)
    following, made = follow(world, Planning(list(world.nodes.values()), world.accounts, running, policy))
    world.nodes, world.accounts = {node.name: node for node in made.nodes}, made.accounts
    promised = [job for job in sorted(world.waiting, key=lambda job: job.place) if made.reservations.get(job.job_id)]

    for _ in range(6):
        found = happen(world, following)

        if found is None:
            return
        again = Planning(list(world.nodes.values()), world.accounts, (), SchedulingPolicy())
        waiting = [job for job in world.waiting if job not in promised]
        for line in (*([job] for job in promised), waiting):
            again.go_on(line)
        assert found.placements == again.result().placements
        world.start(found)
        promised = [job for job in promised if job in world.waiting]


def gpu(name: str, *, count: int = 1, busy: int = 0) -> NodeCapacity:
    devices = tuple(Device(index=index, type="a100", memory_mb=40_000) for index in range(count))
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(busy, count)))


def job(job_id: str, count: int = 1, **more: Any) -> QueuedJob:
    return QueuedJob(
        job_id=job_id, priority=5, since=0, request=Request(device_kind="cuda", device_count=count), project="a", **more
    )


def use(project: str = "b", devices: float = 1) -> JobUsage:
    return JobUsage(project=project, queue="default", kind="cuda", devices=devices, is_preemptible=False)


def following_of(
    jobs: list[QueuedJob],
    nodes: list[NodeCapacity],
    accounts: Accounts | None = None,
    running: Sequence[Running] = (),
    policy: SchedulingPolicy | None = None,
) -> IncrementalPlanner:
    planning = Planning(nodes, accounts or Accounts(), running, policy or SchedulingPolicy())
    planning.go_on(jobs)
    return IncrementalPlanner(planning.cluster, planning.result(), jobs)


def names(found: IncrementalPlan | None) -> list[str] | None:
    return None if found is None else [placement.job_id for placement in found.placements]


def test_a_new_job_starts_on_free_devices_or_gets_a_pending_reason() -> None:
    following = following_of([job("large", 4)], [gpu("n", count=2)])

    found = following.submitted([job("one"), job("two", 2)])

    assert names(found) == ["one"]
    assert found is not None
    assert found.pending_reasons["two"].startswith("needs 2 GPUs on one node; free: 1 on n")


def test_freed_devices_go_to_the_first_job_that_fits() -> None:
    following = following_of([job("large", 2), job("small"), job("last")], [gpu("n", count=2, busy=2)])

    assert names(following.ended([use()], [gpu("n", count=2, busy=1)])) == ["last"]
    assert names(following.ended([use()], [gpu("n", count=2, busy=1)])) == ["small"]
    assert names(following.ended([use(devices=2)], [gpu("n", count=2)])) == ["large"]


def test_what_the_quota_gets_back_may_be_used_on_another_node() -> None:
    quota = ProjectQuota(devices={"cuda": DeviceQuota(limit=1)})
    accounts = Accounts(projects={"a": QuotaUsage(quota=quota, used={"cuda": 1.0}, running=1)})
    following = following_of([job("waits")], [gpu("n", busy=1), gpu("free")], accounts)

    found = following.ended([use("a")], [replace(gpu("n", busy=1), out_of_service=frozenset({0}))])

    assert [placement.node for placement in found.placements] == ["free"] if found is not None else False


def test_a_job_that_waits_for_its_queue_starts_when_one_ends() -> None:
    following = following_of(
        [job("waits", queue="default")], [gpu("n", count=2, busy=1)], Accounts(room={"default": 0})
    )

    assert names(following.submitted([job("late", queue="default")])) == []
    assert names(following.ended([use()], [gpu("n", count=2)])) == ["late"]


@pytest.mark.parametrize("node", [gpu("new"), replace(gpu("n"), labels=frozenset({"ssd"}))])
def test_nodes_that_changed_need_a_full_pass(node: NodeCapacity) -> None:
    following = following_of([job("waits")], [gpu("n", busy=1)])

    assert following.ended([], [node]) is None


def test_a_full_pass_gives_away_what_is_kept() -> None:
    running = [Running(job_id="r", project="b", node="n", priority=5, kind="cuda", devices=frozenset({0}), ends_in=60)]
    nodes, policy = [gpu("n", count=2, busy=1), gpu("o", busy=1)], SchedulingPolicy(now=10, reserve_after_seconds=5)
    following = following_of([job("large", 2)], nodes, running=running, policy=policy)

    assert names(following.submitted([job("small")])) == []
    assert following.ended([use()], [gpu("n", count=2)]) is None
