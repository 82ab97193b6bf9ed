"""GPU fractions: which jobs share a device, and what pending reasons say about it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import CannotFit
from app.domain.nodes.project_demand import sharing
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.filters import choose_devices, describe, examine, share_on
from app.domain.scheduling.planner import plan
from app.domain.scheduling.preemption import Running, room_after
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Quantities, Request, gpu_types_of, request_of
from app.domain.scheduling.start_estimates import DeviceRelease, starts
from app.domain.spec.model import JobDocument, ResourceConfig
from app.domain.units import WHOLE


def node(name: str = "n", *, gpus: int = 4, memory_mb: int = 80_000, **more: Any) -> NodeCapacity:
    devices = tuple(Device(index=i, type="h100", memory_mb=memory_mb) for i in range(gpus))
    return NodeCapacity(name=name, devices=devices, free=more.pop("free", frozenset(range(gpus))), cpu_cores=8, **more)


def part(share: int = 50, **more: Any) -> Request:
    return Request(device_kind="cuda", gpu_share=share, **more)


ONE_WHOLE = Request(device_kind="cuda")
BY_MEMORY = Request(device_kind="cuda", gpu_memory_request_mb=20_000)


def placed(requests: list[Request], nodes: list[NodeCapacity]) -> list[tuple[str, int, int]]:
    line = [QueuedJob(job_id=str(n), priority=5, since=n, request=request) for n, request in enumerate(requests)]
    return [(p.node, p.devices[0].index, p.share) for p in plan(line, nodes).placements]


def waits(request: Request, *nodes: NodeCapacity) -> str:
    return plan([QueuedJob(job_id="j", priority=5, since=0, request=request)], nodes).pending_reasons["j"]


def test_parts_share_a_device_until_it_is_full() -> None:
    assert placed([part(50), part(30), part(50), part(20)], [node(gpus=2)]) == [
        ("n", 0, 50),
        ("n", 0, 30),
        ("n", 1, 50),
        ("n", 0, 20),
    ]


def test_a_part_goes_where_it_leaves_least_and_whole_devices_stay_whole() -> None:
    shared = node(gpus=4, free=frozenset({0}), parts={1: 20, 2: 60, 3: 80})

    assert [choose_devices(part(share), shared) for share in (20, 30, 60)] == [
        (shared.devices[3],),
        (shared.devices[2],),
        (shared.devices[1],),
    ]
    assert choose_devices(part(90), shared) == (shared.devices[0],)


def test_a_node_with_a_device_that_is_shared_already_comes_before_one_without_work() -> None:
    busy = node("b", free=frozenset({1, 2, 3}), parts={0: 50}, active_jobs=9)

    assert placed([part(10), ONE_WHOLE, part(60)], [node("a"), busy]) == [("b", 0, 10), ("a", 0, 100), ("a", 1, 60)]


def test_a_device_with_a_fraction_in_use_is_not_free_as_a_whole() -> None:
    shared = node(gpus=2, free=frozenset(), parts={0: 1, 1: 1})

    assert placed([ONE_WHOLE], [shared]) == []
    assert waits(ONE_WHOLE, shared) == "needs 1 GPU on one node; free: 0 on n"


def test_what_is_out_of_service_or_full_has_no_part_left() -> None:
    none = node(gpus=2, free=frozenset(), out_of_service=frozenset({0}))

    assert placed([part(1)], [none]) == []
    assert waits(part(1), none) == "needs 0.01 of 1 GPU on one node; free: nothing on n (1 out of service)"


def test_a_waiting_fraction_names_the_largest_free_part_of_each_node() -> None:
    crowded = node("a", gpus=3, free=frozenset(), parts={1: 80, 2: 70})

    assert waits(part(50), crowded, node("b", gpus=1, free=frozenset())) == (
        "needs 0.5 of 1 GPU on one node; free: 0.3 of device 2 on a, nothing on b"
    )
    said = {each.filter: each.reason for each in examine(part(50), crowded)}
    assert said["free_devices"] == "0.3 of device 2 is free"
    assert said["devices"] == ""


def test_by_memory_the_part_is_that_of_the_device_it_lands_on() -> None:
    small, large = node(memory_mb=40_000), node(memory_mb=80_000)

    assert [share_on(BY_MEMORY, each.devices[0]) for each in (small, large)] == [50, 25]
    assert share_on(replace(BY_MEMORY, gpu_memory_request_mb=20_001), small.devices[0]) == 51
    assert placed([BY_MEMORY] * 5, [node(gpus=2)]) == [("n", 0, 25)] * 4 + [("n", 1, 25)]
    assert describe(BY_MEMORY) == "20000 MB of 1 GPU"


def test_a_size_by_name_is_met_by_a_device_that_has_a_little_less() -> None:
    device = node(memory_mb=81_559)
    asked = replace(BY_MEMORY, gpu_memory_request_mb=81_920)

    assert placed([asked], [device]) == [("n", 0, WHOLE)]
    assert placed([replace(asked, gpu_memory_request_mb=90_000)], [device]) == []
    assert placed([BY_MEMORY], [node(memory_mb=0)]) == []


def test_the_memory_asked_for_is_that_of_the_part() -> None:
    assert placed([part(50, gpu_memory_min_mb=40_000)], [node()]) == [("n", 0, 50)]
    assert placed([part(50, gpu_memory_min_mb=60_000)], [node()]) == []
    with pytest.raises(CannotFit, match="the largest gpu_memory_min_mb that would fit is 40000 MB, on node n"):
        refuse_unfitting(part(50, gpu_memory_min_mb=60_000), [node()])
    with pytest.raises(CannotFit, match="the largest gpu_memory_request_mb that would fit is 80000 MB, on node n"):
        refuse_unfitting(replace(BY_MEMORY, gpu_memory_request_mb=99_000), [node()])


@pytest.mark.parametrize(
    ("asked", "share", "memory_mb"),
    [
        ({}, 100, 0),
        ({"gpu_fraction": 0.29}, 29, 0),
        ({"gpu_fraction": 1}, 100, 0),
        ({"gpu_memory_request_mb": 5}, 100, 5),
    ],
)
def test_share_and_memory_are_read_from_the_document(asked: dict[str, float], share: int, memory_mb: int) -> None:
    request = request_of(JobDocument.from_json({"resource_config": asked}), has_gpus=False)

    assert (request.gpu_share, request.gpu_memory_request_mb) == (share, memory_mb)
    assert request.device_kind == ("cuda" if asked else "cpu")


def test_an_ended_job_gives_back_only_its_share() -> None:
    full = node(gpus=1, free=frozenset())
    ends = [
        DeviceRelease(seconds=10, node="n", devices=frozenset({0}), quantities=Quantities(), share=30),
        DeviceRelease(seconds=20, node="n", devices=frozenset({0}), quantities=Quantities(), share=70),
    ]

    assert starts([part(30)], [full], ends) == [10]
    assert starts([part(40)], [full], ends) == [20]
    assert starts([ONE_WHOLE], [full], ends) == [20]
    assert starts([part(30), ONE_WHOLE], [full], ends) == [10, None]


requests = st.one_of(
    st.integers(1, 100).map(part),
    st.integers(1, 90_000).map(lambda mb: replace(BY_MEMORY, gpu_memory_request_mb=mb)),
    st.integers(1, 3).map(lambda count: replace(ONE_WHOLE, device_count=count)),
)
in_use = st.dictionaries(st.integers(0, 3), st.integers(1, 100))


@given(st.lists(requests, max_size=25), in_use, in_use)
def test_no_device_is_ever_given_out_beyond_the_whole(
    line: list[Request], one: dict[int, int], other: dict[int, int]
) -> None:
    nodes = [
        node(name, free=frozenset(range(4)) - used.keys(), parts={i: n for i, n in used.items() if n < WHOLE})
        for name, used in (("a", one), ("b", other))
    ]
    jobs = [QueuedJob(job_id=str(n), priority=5, since=n, request=request) for n, request in enumerate(line)]
    held = {("a", i): [n] for i, n in one.items()} | {("b", i): [n] for i, n in other.items()}

    decided = plan(jobs, nodes)

    for placement in decided.placements:
        for device in placement.devices:
            held.setdefault((placement.node, device.index), []).append(placement.share)
    assert all(sum(shares) <= WHOLE for shares in held.values())
    assert all(len(shares) == 1 for shares in held.values() if WHOLE in shares)
    left = {(n.name, d.index): n.left(d.index) for n in decided.nodes for d in n.devices}
    assert left == {place: WHOLE - sum(held.get(place, [])) for place in left}
    assert plan(jobs, list(reversed(nodes))).placements == decided.placements


@given(in_use, st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), max_size=8))
def test_what_is_given_out_and_back_leaves_a_node_as_it_was(used: dict[int, int], gifts: list[tuple[int, int]]) -> None:
    before = node(free=frozenset(range(4)) - used.keys(), parts={i: n for i, n in used.items() if n < WHOLE})
    after, given_out = before, []
    for index, share in gifts:
        if after.left(index) >= share:
            after = after.given([index], share)
            given_out.append((index, share))

    for index, share in given_out:
        after = after.given([index], -share)

    assert after == before


@given(line=st.lists(st.tuples(requests, st.sampled_from("ab")), max_size=25), mixes=st.booleans())
def test_jobs_of_two_projects_share_a_device_only_where_the_operator_lets_them(
    *, line: list[tuple[Request, str]], mixes: bool
) -> None:
    jobs = [
        QueuedJob(job_id=f"{n:03}", priority=5, since=n, request=sharing(request, project), project=project)
        for n, (request, project) in enumerate(line)
    ]
    nodes = [node("a", gpus=2, mixes_projects=mixes), node("b", gpus=2)]

    decided = plan(jobs, nodes)

    held: dict[tuple[str, int], set[str]] = {}
    for placement in decided.placements:
        for device in placement.devices:
            held.setdefault((placement.node, device.index), set()).add(line[int(placement.job_id)][1])
    assert all(len(projects) == 1 for (name, _), projects in held.items() if name == "b" or not mixes)


def test_part_of_a_device_that_another_project_shares_is_not_offered() -> None:
    shared = node(gpus=2, free=frozenset(), parts={0: 20, 1: 60}, tenants={0: "b", 1: "a"})
    mine, theirs = sharing(part(30), "a"), sharing(part(30), "b")

    assert placed([mine, theirs], [shared]) == [("n", 1, 30), ("n", 0, 30)]
    assert waits(sharing(part(50), "a"), shared) == (
        "needs 0.5 of 1 GPU on one node; free: 0.4 of device 1 on n (1 shared by jobs of other projects)"
    )
    assert waits(sharing(part(1), "c"), shared) == (
        "needs 0.01 of 1 GPU on one node; free: nothing on n (2 shared by jobs of other projects)"
    )
    assert placed([sharing(ONE_WHOLE, "a")], [shared]) == []


def test_device_of_several_projects_takes_no_more_jobs_until_it_is_free() -> None:
    mixed = node(gpus=1, free=frozenset(), parts={0: 60}, tenants={0: ""})

    assert placed([sharing(part(10), "a"), sharing(part(10), "b")], [mixed]) == []
    assert placed([sharing(part(10), "a")], [mixed.given([0], -60)]) == [("n", 0, 10)]


def test_full_device_goes_back_to_the_project_that_shares_it() -> None:
    full = node(gpus=1).given([0], 60, "a").given([0], 40, "a")

    half = full.given([0], -60)

    assert placed([sharing(part(10), "b"), sharing(part(10), "a")], [half]) == [("n", 0, 10)]
    assert half.given([0], -40) == node(gpus=1)


@pytest.mark.parametrize(("victim", "fits"), [("a", True), ("b", False)])
def test_part_is_cleared_only_on_a_device_of_its_own_project(victim: str, *, fits: bool) -> None:
    shared = node(gpus=1, free=frozenset(), parts={}, tenants={0: victim})
    running = Running(job_id="r", project=victim, node="n", priority=1, kind="cuda", devices=frozenset({0}), share=40)
    job = QueuedJob(job_id="j", priority=5, since=0, request=sharing(part(30), "a"), project="a")

    assert (room_after(job, shared, [running]) is not None) is fits
    assert room_after(job, shared, [replace(running, share=100)]) is not None


SLICES = NodeCapacity(
    name="n",
    devices=(
        Device(index=0, type="h100", memory_mb=80_000),
        Device(index=2000, type="h100-mig-1g.10gb", memory_mb=9_728, uuid="MIG-a"),
        Device(index=2001, type="h100-mig-3g.40gb", memory_mb=40_000, uuid="MIG-b"),
    ),
    free=frozenset({0, 2000, 2001}),
)
SLICE = Request(device_kind="cuda", mig_profile="1g.10gb")


def test_a_slice_goes_only_to_jobs_that_request_one() -> None:
    of_h100 = replace(SLICE, gpu_types=gpu_types_of("H100"))
    of_a100 = replace(SLICE, gpu_types=gpu_types_of("A100"))

    assert placed([SLICE], [SLICES]) == placed([of_h100], [SLICES]) == [("n", 2000, 100)]
    assert placed([of_a100], [SLICES]) == []
    assert placed([ONE_WHOLE, ONE_WHOLE, part(10)], [SLICES]) == [("n", 0, 100)]
    assert waits(of_h100, replace(SLICES, free=frozenset({0}))) == (
        "needs 1 slice 1g.10gb of h100 on one node; free: 0 on n"
    )


def test_a_slice_that_no_gpu_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(CannotFit, match=r"slice 7g\.80gb; known: 1g\.10gb, 3g\.40gb") as raised:
        refuse_unfitting(replace(SLICE, mig_profile="7g.80gb"), [SLICES])
    assert raised.value.field == "resource_config.mig_profile"


def test_a_document_that_asks_for_a_slice_asks_for_a_gpu() -> None:
    request = request_of(JobDocument(resource_config=ResourceConfig(mig_profile="1g.10gb")), has_gpus=False)

    assert (request.mig_profile, request.device_kind, request.takes_part) == ("1g.10gb", "cuda", False)
