"""Gangs: all their nodes at once or none, of one type and near each other, and not starved by small jobs."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import CannotFit
from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota, QuotaUsage
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.filters import could_fit
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy, plan
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Request
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS, closeness
from app.domain.scheduling.serving_order import Accounts
from app.domain.scheduling.start_estimates import DeviceRelease, starts

PAIR = Request(node_count=2, device_count=2, device_kind="cuda")
WAITED = SchedulingPolicy(now=100.0, reserve_after_seconds=50.0)


def node(
    name: str, *, gpus: int = 4, free: Sequence[int] | None = None, kind: str = "h100", labels: Sequence[str] = ()
) -> NodeCapacity:
    devices = tuple(Device(index=index, type=kind, memory_mb=80_000) for index in range(gpus))
    open_ones = frozenset(range(gpus) if free is None else free)
    return NodeCapacity(name=name, devices=devices, free=open_ones, cpu_cores=64, labels=frozenset(labels))


def job(name: str, request: Request = PAIR, *, since: float = 0.0, **more: object) -> QueuedJob:
    return QueuedJob(job_id=name, priority=5, since=since, request=request, **more)  # type: ignore[arg-type]


def single(gpus: int) -> Request:
    return Request(device_count=gpus, device_kind="cuda")


def running(name: str, on: str, devices: Sequence[int], *, ends_in: float | None = None) -> Running:
    return Running(
        job_id=name, project="", node=on, priority=0, kind="cuda", devices=frozenset(devices), ends_in=ends_in
    )


def places(made: Plan) -> list[list[tuple[str, int]]]:
    return [[(part.node, len(part.devices)) for part in placement.parts] for placement in made.placements]


def why(jobs: list[QueuedJob], nodes: list[NodeCapacity]) -> str:
    return plan(jobs, nodes).pending_reasons["g"]


def test_a_gang_gets_its_part_of_every_node() -> None:
    made = plan([job("g")], [node("b"), node("a"), node("c", free=[0])])

    assert places(made) == [[("a", 2), ("b", 2)]]
    assert {each.name: len(each.free) for each in made.nodes} == {"a": 2, "b": 2, "c": 1}


def test_a_gang_gets_nothing_when_one_node_is_missing() -> None:
    made = plan([job("g")], [node("a"), node("b", free=[0])])

    assert made.placements == ()
    assert made.pending_reasons["g"] == (
        "needs 2 GPUs on each of 2 nodes, all of one type; "
        "only 1 ready node could give that now; elsewhere free: 1 on b"
    )


def test_nodes_of_a_gang_are_alike_in_type() -> None:
    mixed = [node("a"), node("b", kind="a100"), node("c", kind="a100")]

    assert places(plan([job("g")], mixed)) == [[("b", 2), ("c", 2)]]
    assert plan([job("g")], mixed[:2]).placements == ()


def test_nodes_behind_one_switch_are_preferred() -> None:
    line = [node("a", labels=["switch=1"]), node("b", labels=["switch=2"]), node("c", labels=["switch=2"])]

    assert places(plan([job("g")], line)) == [[("b", 2), ("c", 2)]]
    indifferent = SchedulingPolicy(weights={**DEFAULT_WEIGHTS, "same_switch": 0.0})
    assert places(plan([job("g")], line, policy=indifferent)) == [[("a", 2), ("b", 2)]]


def test_closeness_is_the_part_behind_one_switch_and_half_of_it_in_one_rack() -> None:
    here, there = node("a", labels=["switch=1", "rack=1"]), node("b", labels=["switch=2", "rack=1"])

    assert closeness([here, here, there]) == pytest.approx(2 / 3)
    assert closeness([here, there]) == 0.5
    assert closeness([node("a"), node("b")]) == 0.0


def test_a_node_without_room_for_it_comes_last() -> None:
    nodes = [node("a"), node("b"), node("c")]

    assert places(plan([job("g", no_room_on=("a",))], nodes)) == [[("b", 2), ("c", 2)]]
    assert places(plan([job("g", no_room_on=("a",))], nodes[:2])) == [[("a", 2), ("b", 2)]]


def test_a_node_it_avoids_is_given_only_where_too_few_are_left() -> None:
    nodes = [node("a"), node("b"), node("c")]

    assert places(plan([job("g", avoids=frozenset({"a"}))], nodes)) == [[("b", 2), ("c", 2)]]
    assert places(plan([job("g", avoids=frozenset({"a"}))], nodes[:2])) == [[("a", 2), ("b", 2)]]


def test_the_quota_counts_all_parts() -> None:
    quota = ProjectQuota(devices={"cuda": DeviceQuota(limit=3)})
    accounts = Accounts(projects={"": QuotaUsage(quota=quota)})

    made = plan([job("g")], [node("a"), node("b")], accounts)

    assert made.placements == ()
    assert "4" in made.pending_reasons["g"]


def test_a_gang_that_has_waited_has_nodes_kept_for_it() -> None:
    nodes = [node("a", free=[0, 1]), node("b", free=[]), node("c", free=[])]
    held = [running("x", "b", [0, 1, 2, 3], ends_in=30.0), running("y", "c", [0, 1, 2, 3])]
    line = [job("g"), job("small", single(1), since=1.0)]

    made = plan(line, nodes, running=held, policy=WAITED)

    assert made.placements == ()
    assert made.pending_reasons["g"].endswith("; a, b are reserved for it as running jobs end")
    assert "2 reserved for jobs that come first" in made.pending_reasons["small"]


def test_jobs_that_end_in_time_may_use_nodes_reserved_for_a_gang() -> None:
    nodes = [node("a", free=[0, 1]), node("b", free=[])]
    held = [running("x", "b", [0, 1, 2, 3], ends_in=30.0)]
    short = job("short", single(1), since=1.0, max_seconds=20.0)
    long = job("long", single(1), since=1.0, max_seconds=40.0)

    made = plan([job("g"), short, long], nodes, running=held, policy=WAITED)

    assert [placement.job_id for placement in made.placements] == ["short"]


def test_nothing_is_kept_for_a_gang_that_would_still_not_fit() -> None:
    nodes = [node("a", free=[0, 1]), node("b", free=[])]

    made = plan([job("g"), job("small", single(1), since=1.0)], nodes, policy=WAITED)

    assert [placement.job_id for placement in made.placements] == ["small"]


def test_nodes_of_the_type_that_is_free_soonest_are_kept_not_those_of_which_there_are_most() -> None:
    many = [node(name, free=[]) for name in ("a", "b", "c")]
    few = [node(name, free=[], kind="a100") for name in ("x", "y")]
    held = [running(each.name, each.name, [0, 1, 2, 3], ends_in=900.0) for each in many]
    held += [running(each.name, each.name, [0, 1, 2, 3], ends_in=30.0) for each in few]

    made = plan([job("g")], [*many, *few], running=held, policy=WAITED)

    assert made.reservations == {"g": ("x", "y")}


def test_nodes_stay_kept_unless_others_are_free_far_sooner() -> None:
    def kept(ends: dict[str, float]) -> dict[str, tuple[str, ...]]:
        planning = Planning(
            [node(name, free=[]) for name in ends],
            Accounts(),
            [running(name, name, [0, 1, 2, 3], ends_in=seconds) for name, seconds in ends.items()],
            WAITED,
        )
        released = planning.serve_reserved_jobs([job("g", awaits=("a", "b"))])
        assert released == []
        return dict(planning.result().reservations)

    assert kept({"a": 10.0, "b": 900.0, "c": 600.0}) == {}
    assert kept({"a": 10.0, "b": 900.0, "c": 400.0}) == {"g": ("a", "c")}
    assert kept({"b": 900.0, "c": 900.0, "d": 950.0}) == {"g": ("b", "c")}


def test_nothing_stays_kept_for_a_gang_that_its_quota_holds_back_or_that_fits_nowhere_any_more() -> None:
    quota = Accounts(projects={"": QuotaUsage(quota=ProjectQuota(devices={"cuda": DeviceQuota(limit=3)}))})
    promised = job("g", awaits=("a", "b"))

    for nodes, accounts in (([node("a"), node("b")], quota), ([node("a", free=[])], Accounts())):
        planning = Planning(nodes, accounts, [], WAITED)
        assert planning.serve_reserved_jobs([promised]) == [promised]
        assert planning.result().reservations == {"g": ()}


def test_what_would_fit_is_said_at_submission() -> None:
    nodes = [node("a"), node("b"), node("c", kind="a100")]
    refuse_unfitting(PAIR, nodes)
    three = Request(node_count=3, device_count=2, device_kind="cuda")

    said = "needs 2 GPUs on each of 3 nodes, all of one type; the largest node_count that would fit is 2"
    with pytest.raises(CannotFit, match=said) as refused:
        refuse_unfitting(three, nodes)
    assert refused.value.field == "resource_config.node_count"
    with pytest.raises(CannotFit, match="the largest gpu_count that would fit is 4"):
        refuse_unfitting(Request(node_count=2, device_count=9, device_kind="cuda"), nodes)


def test_it_says_when_too_few_nodes_are_ready() -> None:
    typed = Request(node_count=2, device_count=4, device_kind="cuda", gpu_types=(GpuType("h100"),))
    wanted = "needs 4 h100 on each of 2 nodes; "

    assert why([job("g", typed)], []) == wanted + "no node is ready"
    assert why([job("g", typed)], [node("a"), node("b", gpus=2)]) == (
        wanted + "only 1 ready node could hold that; b has 2 of 4 such devices"
    )
    assert why([job("g", typed)], [node("a", kind="a100")]) == (wanted + "no ready node could hold that; a has no h100")


def test_it_says_when_the_nodes_differ_in_type() -> None:
    nodes = [node("a"), node("b", kind="a100"), node("c", gpus=1)]

    assert why([job("g")], nodes) == (
        "needs 2 GPUs on each of 2 nodes, all of one type; "
        "the ready nodes that could hold that are of different types, at most 1 of each"
    )


def test_it_says_what_is_free_on_the_nodes_with_most_of_it() -> None:
    wanted = "needs 2 GPUs on each of 2 nodes, all of one type; "
    busy = [node(name, free=free) for name, free in (("a", []), ("b", []), ("c", [0]), ("d", [3]), ("e", []))]

    assert why([job("g")], busy) == wanted + "no ready node could give that now; free: 1 on c, 1 on d, 0 on a"
    assert why([job("g")], [*busy[:2], node("f")]) == (
        wanted + "only 1 ready node could give that now; elsewhere free: 0 on a, 0 on b"
    )
    three = Request(node_count=3, device_count=1, device_kind="cpu")
    slots = [node(name, kind="cpu", free=free) for name, free in (("a", [0]), ("b", [1]), ("c", []))]
    assert why([job("g", three)], slots) == (
        "needs 1 CPU slot on each of 3 nodes; only 2 ready nodes could give that now; elsewhere free: 0 on c"
    )


def test_it_says_where_it_is_not_given_room_because_it_failed_there() -> None:
    nodes = [node("a"), node("b", free=[]), node("c")]

    assert why([job("g", avoids=frozenset({"a"}))], nodes).endswith(
        "elsewhere free: 0 on b; not on a, where it failed repeatedly"
    )


def test_waiting_times_know_gangs() -> None:
    nodes = [node("a", free=[0, 1]), node("b", free=[])]
    ends = [DeviceRelease(seconds=30.0, node="b", devices=frozenset({0, 1}), quantities=PAIR.quantities)]

    assert starts([PAIR], nodes, ends) == [30.0]
    assert starts([PAIR], nodes, []) == [None]
    assert starts([PAIR, single(2)], [node("a"), node("b")], []) == [0.0, 0.0]
    assert starts([single(2), PAIR, single(2)], nodes, ends) == [0.0, None, 30.0]


sizes = st.integers(1, 4)
requests = st.builds(
    Request,
    node_count=sizes,
    device_count=sizes,
    device_kind=st.just("cuda"),
    gpu_types=st.sampled_from([(), (GpuType("h100"),), (GpuType("a100"),)]),
    cpu_cores=st.integers(0, 40),
)


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeCapacity]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        gpus = draw(sizes)
        found.append(
            node(
                f"n{number}",
                gpus=gpus,
                free=draw(st.lists(st.integers(0, gpus - 1), unique=True)),
                kind=draw(st.sampled_from(["h100", "a100"])),
                labels=[f"switch={draw(st.integers(0, 2))}"],
            )
        )
    return found


@pytest.mark.long
@given(nodes=clusters(), wanted=st.lists(requests, max_size=8), waited=st.booleans())
def test_never_half_a_gang_and_never_more_than_there_is(
    nodes: list[NodeCapacity], wanted: list[Request], *, waited: bool
) -> None:
    line = [job(f"j{number}", request, since=float(number)) for number, request in enumerate(wanted)]
    asked, known = {each.job_id: each.request for each in line}, {each.name: each for each in nodes}
    held = [running(f"r{each.name}", each.name, sorted({d.index for d in each.devices} - each.free)) for each in nodes]

    made = plan(line, nodes, running=held, policy=WAITED if waited else SchedulingPolicy())

    given_out: set[tuple[str, int]] = set()
    for placement in made.placements:
        request = asked[placement.job_id]
        assert len({part.node for part in placement.parts}) == request.node_count, "half a gang"
        assert [part.node for part in placement.parts] == sorted(part.node for part in placement.parts)
        if request.is_gang:
            assert len({device.type for part in placement.parts for device in part.devices}) == 1
        for part in placement.parts:
            assert len(part.devices) == request.device_count, "half a part"
            assert not could_fit(request, known[part.node])
            mine = {(part.node, device.index) for device in part.devices}
            assert mine.isdisjoint(given_out)
            assert {index for _, index in mine} <= known[part.node].free
            given_out |= mine
    for name in known:
        cores = sum(asked[p.job_id].cpu_cores for p in made.placements for part in p.parts if part.node == name)
        assert cores <= 64, "more cores than the node has"
    for waiting in set(asked) - {placement.job_id for placement in made.placements}:
        assert made.pending_reasons[waiting]
    again = plan(line, list(reversed(nodes)), running=held, policy=WAITED if waited else SchedulingPolicy())
    assert again.placements == made.placements, "the order of the nodes decides"


def test_a_gang_that_is_preempted_on_one_node_leaves_all() -> None:
    def part(on: str) -> Running:
        return Running(
            job_id="v",
            project="",
            node=on,
            priority=0,
            kind="cuda",
            devices=frozenset(range(4)),
            may_be_preempted=True,
            loss=1.0,
        )

    urgent = [job("u1", single(4)), job("u2", single(4), since=1.0)]

    made = plan(urgent, [node("a", free=[]), node("b", free=[])], running=[part("a"), part("b")])

    assert [(each.job_id, each.for_job) for each in made.preemptions] == [("v", "u1")]
    assert all("is being cleared for it" in made.pending_reasons[each.job_id] for each in urgent)
