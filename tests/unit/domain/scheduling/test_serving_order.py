"""Serving order: fair shares of projects and queues, age against priority, and invariants of every plan."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota, QuotaUsage
from app.domain.scheduling.planner import Plan, plan
from app.domain.scheduling.queue_order import AGEING_SECONDS, QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from app.domain.scheduling.serving_order import COMMON, Accounts, PassAccounts, in_serving_order


def node(slots: int, name: str = "n") -> NodeCapacity:
    devices = tuple(Device(index=index, type="cpu") for index in range(slots))
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(slots)), cpu_cores=slots)


def job(
    name: str,
    project: str = "a",
    *,
    since: float = 0,
    priority: int = 5,
    queue: str = "default",
    count: int = 1,
    preemptible: bool = False,
) -> QueuedJob:
    return QueuedJob(
        job_id=name,
        project=project,
        since=since,
        priority=priority,
        queue=queue,
        is_preemptible=preemptible,
        request=Request(device_count=count),
    )


def standing(**quota: float) -> QuotaUsage:
    return QuotaUsage(quota=ProjectQuota(devices={"cpu": DeviceQuota(**quota)}))  # type: ignore[arg-type]


def started(made: Plan) -> list[str]:
    return [placement.job_id for placement in made.placements]


@dataclass
class Cluster:
    """Slots on which jobs run for a number of rounds; every project always has more jobs to start."""

    slots: int
    projects: dict[str, QuotaUsage]
    weights: dict[str, float] = field(default_factory=dict)
    running: list[tuple[int, QueuedJob]] = field(default_factory=list)  # (rounds left, job)

    def next_round(self, waiting: Iterable[QueuedJob], lasts: Callable[[QueuedJob], int]) -> list[QueuedJob]:
        """Ends a round, runs the planner, and returns the jobs that it started."""
        self.running = [(left - 1, each) for left, each in self.running if left > 1]
        used = Counter[str]()
        queue_use = Counter[tuple[str, str, str]]()
        for _, each in self.running:
            used[each.project] += each.request.device_count
            group = each.queue if each.queue in self.weights else COMMON
            queue_use[each.project, group, "cpu"] += each.request.device_count
        projects = {name: replace(who, used={"cpu": used[name]}) for name, who in self.projects.items()}
        free = self.slots - used.total()
        by_id = {each.job_id: each for each in waiting}
        accounts = Accounts(projects=projects, queue_weights=self.weights, queue_use=dict(queue_use))
        made = plan(list(by_id.values()), [node(free)], accounts)
        starts = [by_id[name] for name in started(made)]
        self.running += [(lasts(each), each) for each in starts]
        return starts


def test_projects_alternate_regardless_of_arrival() -> None:
    waiting = [job(f"a{n}", "a", since=n) for n in range(4)] + [job(f"b{n}", "b", since=100 + n) for n in range(4)]

    assert started(plan(waiting, [node(4)])) == ["a0", "b0", "a1", "b1"]


def test_priority_counts_within_a_project_only() -> None:
    waiting = [job("a0", "a", priority=10), job("a1", "a", priority=10), job("b0", "b", priority=0, since=9)]

    assert started(plan(waiting, [node(2)])) == ["a0", "b0"]


def test_what_a_project_deserves_comes_before_what_another_borrows() -> None:
    waiting = [job(f"a{n}", "a") for n in range(4)] + [job(f"b{n}", "b", since=9) for n in range(4)]
    accounts = Accounts(projects={"a": standing(), "b": standing(deserved=3)})

    assert sorted(started(plan(waiting, [node(4)], accounts))) == ["a0", "b0", "b1", "b2"]


def test_devices_that_no_other_project_wants_are_lent() -> None:
    waiting = [job(f"a{n}", "a", preemptible=True) for n in range(4)]
    accounts = Accounts(projects={"a": standing(deserved=1), "b": standing(deserved=3)})

    assert len(started(plan(waiting, [node(4)], accounts))) == 4


def test_a_job_held_back_by_its_quota_gets_the_reason_and_others_pass() -> None:
    waiting = [job("a0", "a", count=3), job("a1", "a", since=1), job("b0", "b", since=2)]
    accounts = Accounts(projects={"a": standing(limit=2)})

    made = plan(waiting, [node(4)], accounts)

    assert sorted(started(made)) == ["a1", "b0"]
    assert made.pending_reasons == {"a0": "the project a uses 0 of at most 2 CPU slots, and the job needs 3"}


def test_one_plan_counts_what_it_starts_itself() -> None:
    waiting = [job(f"a{n}", since=n) for n in range(5)]

    made = plan(waiting, [node(9)], Accounts(projects={"a": standing(limit=2)}))
    further = plan(waiting[2:], [node(9)], made.accounts)

    assert started(made) == ["a0", "a1"]
    assert started(further) == []


def test_queues_with_weights_share_a_projects_devices() -> None:
    waiting = [job(f"{queue}{n}", since=n, queue=queue) for queue in ("day", "night", "other") for n in range(9)]

    names = started(plan(waiting, [node(8)], Accounts(queue_weights={"day": 2.0})))

    assert Counter(name.rstrip("0123456789") for name in names) == {"day": 5, "night": 2, "other": 1}


@pytest.mark.parametrize("gap", [-1, 1])
def test_an_old_job_is_worth_a_more_urgent_one(gap: int) -> None:
    old, urgent = job("old", since=0, priority=3), job("urgent", since=2 * AGEING_SECONDS + gap, priority=5)

    assert started(plan([old, urgent], [node(1)])) == (["old"] if gap > 0 else ["urgent"])


def test_a_job_of_the_lowest_priority_starts_in_the_end_although_urgent_ones_never_cease() -> None:
    low = job("low", priority=0)
    minute = 600.0
    waited = 0.0
    while True:
        stream = [job(f"u{waited}", since=waited, priority=10), low]
        if "low" in started(plan(stream, [node(1)])):
            break
        waited += minute

    assert waited == pytest.approx(10 * AGEING_SECONDS, abs=minute)


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 3}])
def test_shares_of_the_time_are_within_a_tenth_of_the_weights(weights: dict[str, int]) -> None:
    draw = random.Random(7)
    cluster = Cluster(24, {name: standing(over_quota_weight=weight) for name, weight in weights.items()})
    serial = iter(range(10**6))
    had = Counter[str]()
    for round_number in range(400):
        waiting = [
            job(f"{name}{next(serial)}", name, since=round_number, count=draw.choice([1, 1, 2]))
            for name in weights
            for _ in range(24)
        ]
        cluster.next_round(waiting, lambda _: draw.randint(1, 9))
        if round_number >= 20:
            for _, each in cluster.running:
                had[each.project] += each.request.device_count

    for name, weight in weights.items():
        assert had[name] / had.total() == pytest.approx(weight / sum(weights.values()), rel=0.1)


jobs = st.lists(
    st.builds(
        job,
        st.uuids().map(str),
        st.sampled_from(["a", "b", "c"]),
        since=st.floats(0, 10**6),
        priority=st.integers(0, 10),
        queue=st.sampled_from(["day", "night"]),
        count=st.integers(1, 5),
        preemptible=st.booleans(),
    ),
    max_size=40,
)
quotas = st.builds(
    DeviceQuota,
    deserved=st.none() | st.integers(0, 6),
    limit=st.none() | st.integers(0, 12),
    over_quota_weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)
standings = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.builds(
        QuotaUsage,
        quota=st.builds(
            ProjectQuota, devices=st.fixed_dictionaries({"cpu": quotas}), max_running_jobs=st.none() | st.integers(0, 5)
        ),
        used=st.fixed_dictionaries({"cpu": st.integers(2, 6)}),
        fixed=st.fixed_dictionaries({"cpu": st.integers(0, 2)}),
        running=st.integers(0, 3),
    ),
)
nodes = st.lists(st.integers(0, 6), max_size=4).map(lambda sizes: [node(size, f"n{i}") for i, size in enumerate(sizes)])


@settings(max_examples=100)
@given(jobs, standings, st.dictionaries(st.sampled_from(["day", "night"]), st.sampled_from([1.0, 3.0])), st.randoms())
def test_every_job_served_is_the_first_among_the_heads_of_the_projects(
    waiting: list[QueuedJob], projects: dict[str, QuotaUsage], weights: dict[str, float], chance: random.Random
) -> None:
    ledger = PassAccounts(Accounts(projects=projects, queue_weights=weights))
    left = list(waiting)

    for served in in_serving_order(waiting, ledger):
        lines = [[each for each in left if each.project == name] for name in {each.project for each in left}]
        heads = [min(line, key=lambda each: (ledger.queue_rank(each), each.place)) for line in lines]
        assert served == min(heads, key=lambda each: (ledger.rank(each), each.place))
        left.remove(served)
        if chance.random() < 0.3:
            ledger.count(served, served.request.amount)
    assert left == []


@pytest.mark.long
@settings(max_examples=300)
@given(jobs, standings, nodes, st.dictionaries(st.sampled_from(["day", "night"]), st.integers(0, 4)), st.randoms())
def test_no_plan_breaks_a_rule(
    waiting: list[QueuedJob],
    projects: dict[str, QuotaUsage],
    capacities: list[NodeCapacity],
    room: dict[str, int],
    order: random.Random,
) -> None:
    accounts = Accounts(room=room, projects=projects)

    made = plan(waiting, capacities, accounts)

    by_id = {each.job_id: each for each in waiting}
    starts = [by_id[placement.job_id] for placement in made.placements]
    given = [(placement.node, device.index) for placement in made.placements for device in placement.devices]
    assert len(given) == len(set(given)), "a device twice"
    assert set(given) <= {(each.name, index) for each in capacities for index in each.free}
    assert len(starts) == len({each.job_id for each in starts})
    for placement, each in zip(made.placements, starts, strict=True):
        assert len(placement.devices) == each.request.device_count, "half a job"
    for queue, most in room.items():
        assert sum(each.queue == queue for each in starts) <= most
    for name, who in projects.items():
        _assert_within(who, [each for each in starts if each.project == name])
    shuffled = list(waiting)
    order.shuffle(shuffled)
    assert plan(shuffled, capacities, accounts) == made, "the same input, another plan"
    for each in waiting:
        waits_for_room = room.get(each.queue, 1) - sum(s.queue == each.queue for s in starts) <= 0
        assert (each in starts) or (each.job_id in made.pending_reasons) or waits_for_room, (
            "a waiting job without a pending reason"
        )


def _assert_within(who: QuotaUsage, starts: list[QueuedJob]) -> None:
    quota, used = who.quota.of("cpu"), who.used["cpu"]
    grown = used + sum(each.request.device_count for each in starts)
    if starts and quota.most is not None:
        assert grown <= quota.most
    fixed = [each.request.device_count for each in starts if not each.is_preemptible]
    if fixed and quota.deserved is not None:
        assert who.fixed["cpu"] + sum(fixed) <= quota.deserved
    if starts and who.quota.max_running_jobs is not None:
        assert who.running + len(starts) <= who.quota.max_running_jobs
