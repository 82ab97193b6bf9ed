"""Preemption: the victims of a waiting job, the devices reserved for it, and how long small jobs can delay it."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota, QuotaUsage
from app.domain.scheduling.node_classes import CandidateNodes
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy, plan
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Quantities, Request
from app.domain.scheduling.running_index import RunningIndex
from app.domain.scheduling.serving_order import Accounts, PassAccounts


def node(name: str = "n", slots: int = 4, free: int = 0) -> NodeCapacity:
    devices = tuple(Device(index=index, type="cpu") for index in range(slots))
    return NodeCapacity(
        name=name, devices=devices, free=frozenset(range(slots - free, slots)), cpu_cores=slots, ram_mb=1000
    )


def runs(name: str, *devices: int, on: str = "n", project: str = "a", priority: int = 1, **more: Any) -> Running:
    values = {"may_be_preempted": True, "kind": "cpu", **more}
    return Running(job_id=name, node=on, project=project, priority=priority, devices=frozenset(devices), **values)


def waits(name: str = "j", count: int = 1, *, project: str = "a", priority: int = 5, **more: Any) -> QueuedJob:
    values = {"since": 0.0, **more, "request": Request(device_count=count, **more.pop("request", {}))}
    return QueuedJob(job_id=name, project=project, priority=priority, **values)


def uses(used: int, **quota: float) -> QuotaUsage:
    devices = {"cpu": DeviceQuota(**quota)}  # type: ignore[arg-type]
    return QuotaUsage(quota=ProjectQuota(devices=devices), used={"cpu": used})


def victims(made: Plan) -> dict[str, str]:
    return {each.job_id: each.for_job for each in made.preemptions}


def test_less_urgent_jobs_of_the_project_are_preempted_and_the_pending_reason_says_so() -> None:
    made = plan([waits(count=2)], [node()], running=[runs("x", 0), runs("y", 1), runs("z", 2), runs("w", 3)])

    assert len(victims(made)) == 2
    assert set(victims(made).values()) == {"j"}
    assert made.placements == ()
    assert made.pending_reasons["j"] == "needs 2 CPU slots on one node; free: 0 on n; n is being cleared for it"
    assert made.preemptions[0].reason == "its devices go to j, whose priority is 5, not 1"


def test_no_job_is_preempted_that_is_as_urgent_not_preemptible_or_of_another_project() -> None:
    running = [
        runs("x", 0, priority=5),
        runs("y", 1, may_be_preempted=False),
        runs("z", 2, project="b"),
        runs("w", 3, priority=9),
    ]

    assert plan([waits()], [node()], running=running).preemptions == ()


def test_jobs_that_lose_the_least_work_are_preempted_and_no_more_than_needed() -> None:
    running = [runs("cheap", 0, loss=1.0), runs("two", 1, 2, loss=5.0), runs("dear", 3, loss=9.0)]

    assert set(victims(plan([waits(count=1)], [node()], running=running))) == {"cheap"}
    assert set(victims(plan([waits(count=2)], [node()], running=running))) == {"two"}
    assert set(victims(plan([waits(count=3)], [node()], running=running))) == {"cheap", "two"}


def test_the_node_is_taken_where_the_least_is_lost() -> None:
    running = [runs("x", 0, 1, 2, 3, on="a", loss=50.0), runs("y", 0, 1, 2, 3, on="b", loss=3.0)]

    assert victims(plan([waits(count=4)], [node("a"), node("b")], running=running)) == {"y": "j"}


def test_nothing_is_preempted_when_the_job_would_still_not_fit() -> None:
    running = [runs("x", 0), runs("y", 1), runs("fixed", 2, 3, may_be_preempted=False)]

    assert plan([waits(count=3)], [node()], running=running).preemptions == ()
    assert plan([waits(request={"ram_min_mb": 2000})], [node()], running=running).preemptions == ()


def test_memory_counts_like_devices() -> None:
    full = replace(node(free=2), held=Quantities(ram_mb=1000))
    running = [runs("x", 0, quantities=Quantities(ram_mb=900)), runs("y", 1, quantities=Quantities(ram_mb=100))]

    assert set(victims(plan([waits(request={"ram_min_mb": 500})], [full], running=running))) == {"x"}


def test_no_further_job_is_preempted_while_one_is_already_stopping() -> None:
    running = [runs("x", 0, 1, is_stopping=True), runs("y", 2), runs("z", 3)]

    made = plan([waits("j", 2), waits("k", 2, since=1)], [node()], running=running)

    assert victims(made) == {"y": "k", "z": "k"}, "the first waits for x, and what it waits for is not the second's"


def test_what_is_cleared_is_kept_for_the_job_that_it_is_cleared_for() -> None:
    running = [runs("x", 0, is_stopping=True), runs("fixed", 1, may_be_preempted=False)]

    made = plan([waits("big", 3), waits("small", 1, since=1, priority=4)], [node(free=2)], running=running)

    assert made.placements == ()
    assert made.pending_reasons["small"].endswith("free: 0 on n (2 reserved for jobs that come first)")


def test_a_project_takes_back_what_it_deserves_and_not_a_device_more() -> None:
    running = [runs(f"b{n}", n, project="b", priority=9) for n in range(4)]
    accounts = Accounts(projects={"a": uses(0, deserved=2), "b": uses(4, deserved=2)})

    made = plan([waits(f"a{n}", since=n, priority=0) for n in range(4)], [node()], accounts, running=running)

    assert len(made.preemptions) == 2
    assert set(victims(made).values()) == {"a0", "a1"}
    assert "what the project a deserves and b had borrowed" in made.preemptions[0].reason


def test_nothing_is_taken_back_from_a_project_that_has_borrowed_nothing_or_by_one_that_deserves_nothing() -> None:
    running = [runs(f"b{n}", n, project="b") for n in range(4)]

    for accounts in (
        Accounts(projects={"a": uses(0, deserved=2), "b": uses(4, deserved=4)}),
        Accounts(projects={"a": uses(0), "b": uses(4)}),
        Accounts(projects={"a": uses(2, deserved=2), "b": uses(4)}),
    ):
        assert plan([waits()], [node()], accounts, running=running).preemptions == ()


def test_devices_of_stopping_jobs_count_as_given_back() -> None:
    running = [runs("b0", 0, project="b", is_stopping=True), *(runs(f"b{n}", n, project="b") for n in (1, 2, 3))]
    accounts = Accounts(projects={"a": uses(0, deserved=4), "b": uses(4, deserved=3)})

    assert plan([waits(count=2)], [node()], accounts, running=running).preemptions == ()


def test_a_project_at_its_limit_makes_room_with_its_own_jobs() -> None:
    running = [runs("x", 0), runs("y", 1)]
    accounts = Accounts(projects={"a": uses(2, limit=2)})

    made = plan([waits()], [node(free=2)], accounts, running=running)

    assert len(victims(made)) == 1
    assert "uses 2 of at most 2 CPU slots" in made.pending_reasons["j"]


def test_a_job_that_waited_long_gets_a_node_kept_and_short_ones_use_it_meanwhile() -> None:
    running = [
        runs("x", 0, on="n", may_be_preempted=False, ends_in=600.0),
        runs("y", 0, on="m", may_be_preempted=False, ends_in=60.0),
    ]
    nodes = [node("m", 4, free=3), node("n", 4, free=3)]
    line = [
        waits("big", 4),
        waits("open", 3, since=1),
        waits("late", 1, since=2, max_seconds=61),
        waits("short", 2, since=3, max_seconds=59),
    ]

    made = plan(line, nodes, running=running, policy=SchedulingPolicy(now=2000.0, reserve_after_seconds=1800.0))

    assert {placement.job_id: placement.node for placement in made.placements} == {"open": "n", "short": "m"}
    assert made.pending_reasons["big"].endswith("; m is reserved for it as running jobs end")


def test_nothing_is_reserved_before_that_wait() -> None:
    running = [runs("x", 0, may_be_preempted=False, ends_in=60.0)]

    made = plan(
        [waits("big", 4), waits("small", since=1)],
        [node(free=3)],
        running=running,
        policy=SchedulingPolicy(now=1000.0, reserve_after_seconds=1800.0),
    )

    assert [placement.job_id for placement in made.placements] == ["small"]


def test_a_stream_of_small_jobs_holds_a_large_one_back_no_longer_than_stated() -> None:
    """Each small job runs 300 s, and there are always more of the same priority, half of them older than the large."""
    draw, reserve_after, lasts = random.Random(3), 1800.0, 300.0
    running: dict[str, tuple[float, int]] = {f"first{n}": (draw.uniform(0, lasts), n) for n in range(4)}  # ends, device
    now, serial = 0.0, 0
    while now < 10 * reserve_after:
        running = {name: (ends, device) for name, (ends, device) in running.items() if ends > now}
        taken = {device for _, device in running.values()}
        line = [waits("large", 4, since=0.0)]
        for _ in range(4):
            serial += 1
            line.append(waits(f"s{serial}", since=1.0))
        devices = [
            runs(name, device, may_be_preempted=False, ends_in=ends - now) for name, (ends, device) in running.items()
        ]
        made = plan(
            line,
            [replace(node(), free=frozenset(range(4)) - taken)],
            running=devices,
            policy=SchedulingPolicy(now=now, reserve_after_seconds=reserve_after),
        )
        if "large" in [placement.job_id for placement in made.placements]:
            break
        for placement in made.placements:
            running[placement.job_id] = now + lasts, placement.devices[0].index
        now += 10.0

    assert reserve_after <= now <= reserve_after + lasts + 10.0


running_jobs = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.booleans(), st.booleans(), st.floats(0, 100)),
    min_size=8,
    max_size=8,
).map(
    lambda rows: [
        runs(
            f"r{n}",
            n % 4,
            on="mn"[n // 4],
            project=project,
            priority=priority,
            may_be_preempted=may,
            is_stopping=going,
            loss=loss,
        )
        for n, (project, priority, may, going, loss) in enumerate(rows)
    ]
)


@settings(max_examples=300)
@given(
    running_jobs,
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(1, 4)), max_size=6),
    st.integers(0, 8),
    st.integers(0, 8),
)
def test_every_preemption_is_needed_and_allowed(
    running: list[Running], wanted: list[tuple[str, int, int]], deserves_a: int, deserves_b: int
) -> None:
    line = [waits(f"j{n}", count, project=p, priority=priority) for n, (p, priority, count) in enumerate(wanted)]
    used = {project: sum(each.project == project for each in running) for project in "ab"}
    accounts = Accounts(projects={"a": uses(used["a"], deserved=deserves_a), "b": uses(used["b"], deserved=deserves_b)})

    made = plan(
        [replace(each, is_preemptible=True) for each in line], [node("m"), node("n")], accounts, running=running
    )

    by_id, waiting = {each.job_id: each for each in running}, {each.job_id: each for each in line}
    assert len({each.job_id for each in made.preemptions}) == len(made.preemptions)
    lost = {project: sum(each.is_stopping for each in running if each.project == project) for project in "ab"}
    for each in made.preemptions:
        victim, job = by_id[each.job_id], waiting[each.for_job]
        assert victim.may_be_preempted
        assert not victim.is_stopping
        lost[victim.project] += 1
        if victim.project == job.project:
            assert victim.priority < job.priority
        else:
            deserved = {"a": deserves_a, "b": deserves_b}
            assert used[victim.project] - lost[victim.project] >= deserved[victim.project], "took what it deserves"
    for name in {each.for_job for each in made.preemptions}:
        chosen = [by_id[each.job_id] for each in made.preemptions if each.for_job == name]
        assert len({each.node for each in chosen}) == 1
        assert len(chosen) <= waiting[name].request.device_count, "more than the job can use"
        coming = sum(each.is_stopping for each in running if each.node == chosen[0].node)
        assert len(chosen) + coming >= waiting[name].request.device_count, "the job would still not fit"


WAITED = SchedulingPolicy(now=5000.0, reserve_after_seconds=1800.0)


def kept(
    running: list[Running], nodes: list[NodeCapacity], *later: QueuedJob, accounts: Accounts | None = None
) -> Plan:
    """The next pass of one that needs all of node n, which is kept for it; who else waits comes after it."""
    planning = Planning(nodes, accounts or Accounts(), running, WAITED)
    planning.serve_reserved_jobs([waits(count=4, awaits=("n",))])
    planning.go_on(later)
    return planning.result()


def test_a_job_with_a_reserved_node_takes_it_as_soon_as_its_jobs_may_be_preempted() -> None:
    made = kept([runs("x", 0, 1, 2, 3)], [node()])

    assert victims(made) == {"x": "j"}
    assert made.pending_reasons["j"].endswith("; n is being cleared for it")


def test_a_reservation_moves_to_a_node_that_is_free_far_sooner() -> None:
    long = runs("x", 0, 1, 2, 3, ends_in=900.0, may_be_preempted=False)
    short = runs("y", 0, 1, 2, 3, on="m", ends_in=60.0, may_be_preempted=False)

    made = kept([long, short], [node(), node("m")])

    assert made.reservations == {"j": ("m",)}
    assert made.pending_reasons["j"].endswith("; m is reserved for it as running jobs end")
    assert kept([long, replace(short, ends_in=500.0)], [node(), node("m")]).reservations == {}


def test_quota_left_for_a_job_with_a_reservation_goes_to_no_other_of_its_project() -> None:
    running = [runs("x", 0, 1, 2, 3, project="b", may_be_preempted=False)]
    accounts = Accounts(projects={"a": uses(0, limit=4), "b": uses(4)})

    made = kept(running, [node(), node("m", free=2)], waits("k"), waits("other", project="b"), accounts=accounts)

    assert [placement.job_id for placement in made.placements] == ["other"]
    assert made.pending_reasons["k"] == "what the project a may use is reserved for an older job of it"


def test_small_jobs_take_what_the_quota_leaves_beside_what_is_kept_and_no_more() -> None:
    running = [runs("x", 0, 1, 2, 3, project="b", may_be_preempted=False)]
    accounts = Accounts(projects={"a": uses(0, limit=6), "b": uses(4)})

    made = kept(running, [node(), node("m", free=3)], *(waits(f"k{number}") for number in range(4)), accounts=accounts)

    assert [placement.job_id for placement in made.placements] == ["k0", "k1"]
    assert made.pending_reasons["k2"] == "what the project a may use is reserved for an older job of it"


def test_a_job_that_no_preemption_helps_uses_up_no_inspections_of_others() -> None:
    nodes = {f"n{number}": node(f"n{number}") for number in range(20)}
    running = [
        runs(f"{name}-{index}", index, on=name, may_be_preempted=index == 0) for name in nodes for index in range(4)
    ]
    running_index, ledger = RunningIndex(running, nodes, budget=20), PassAccounts(Accounts())
    all_of_them = CandidateNodes(nodes, could_hold=lambda _: True, avoided=(), few=None)

    assert running_index.room_by_preemption(waits("first", count=2), all_of_them, ledger) is None
    found = running_index.room_by_preemption(waits("second"), all_of_them, ledger)

    assert found is not None
    assert [victim.job_id for victim in found.victims] == ["n0-0"]


def on_two_nodes(project: str) -> list[Running]:
    """A job with four slots of n1 and of n2 each."""
    return [runs("gang", 0, 1, 2, 3, on=name, project=project, elsewhere=4.0) for name in ("n1", "n2")]


def test_what_a_preempted_gang_leaves_is_known_though_one_of_its_nodes_takes_no_jobs() -> None:
    nodes = {name: node(name) for name in ("n1", "n3")}
    gang = [runs("gang", 0, 1, 2, 3, on=name, elsewhere=8.0, ends_in=900.0) for name in ("n1", "n2", "n3")]
    running_index, ledger = RunningIndex(gang, nodes), PassAccounts(Accounts())
    assert running_index.soonest(1) == [(900.0, 1, "n1"), (900.0, 1, "n3")]

    room = running_index.room_by_preemption(
        waits(), CandidateNodes(nodes, nodes.__contains__, avoided=(), few=None), ledger
    )
    assert room is not None
    running_index.take(room)

    assert [(seconds, name) for seconds, _, name in running_index.soonest(1)] == [(0.0, "n1"), (0.0, "n3")]


def test_a_gang_returns_all_that_it_had_borrowed_so_no_other_job_has_to() -> None:
    running = [*on_two_nodes("b"), runs("other", 4, 5, 6, 7, on="n1", project="b")]
    accounts = Accounts(projects={"a": uses(0, deserved=8), "b": uses(12, deserved=4)})

    def asked(count: int) -> dict[str, str]:
        nodes = [node("n1", slots=8), node("n2", slots=4)]
        return victims(plan([waits(count=count)], nodes, accounts, running=running))

    # The other job's slots are what its project deserves, once the gang has returned its eight.
    assert asked(8) == {}
    assert len(asked(4)) == 1


def test_a_gang_makes_room_in_the_quota_with_all_its_nodes() -> None:
    accounts = Accounts(projects={"a": uses(8, limit=8)})

    made = plan([waits(count=8)], [node("n1", slots=8, free=4), node("n2")], accounts, running=on_two_nodes("a"))

    assert victims(made) == {"gang": "j"}
