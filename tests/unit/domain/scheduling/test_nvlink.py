"""Which devices of a node a job gets where NVLink connects some of them."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.scheduling.filters import choose_devices
from app.domain.scheduling.node_index import NodeIndex
from app.domain.scheduling.planner import plan
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS, score_node

EIGHT = (0,) * 8
PAIRS = (0, 0, 1, 1, 2, 2, 3, 3)


def node(groups: Sequence[int | None], taken: Collection[int] = (), **parts: int) -> NodeCapacity:
    devices = tuple(Device(index=i, type="h100", memory_mb=80_000, link_group=group) for i, group in enumerate(groups))
    shared = {int(name.removeprefix("gpu")): share for name, share in parts.items()}
    free = frozenset(range(len(groups))) - {*taken, *shared}
    return NodeCapacity(name="n", devices=devices, free=free, parts=shared)


def gpus(count: int = 1, share: int = 100) -> Request:
    return Request(device_kind="cuda", device_count=count, gpu_share=share)


def chosen(request: Request, capacity: NodeCapacity) -> list[int] | None:
    devices = choose_devices(request, capacity)
    return None if devices is None else [device.index for device in devices]


@pytest.mark.parametrize(
    ("count", "capacity", "expected"),
    [
        (2, node((None, 0, 1, 1, 0)), [1, 4]),
        (2, node(PAIRS, taken=(0, 3)), [4, 5]),  # not one of each broken pair
        (2, node((*EIGHT, 1, 1)), [8, 9]),  # the smaller group
        (2, node((0, 0, 0, 0, 1, 1, 1, 1), taken=(0, 4, 5)), [6, 7]),  # where least is left
        (2, node((0, 0, 0, 1, 1, 1, 1, 1), taken=(3,)), [4, 5]),  # what is broken already, though more is left there
        (3, node((0, 0, 0, 0, 1, 1, 1, 1, None)), [0, 1, 2]),
        (4, node((0, 0, 0, 0, None, None, None, None), taken=(0,)), [1, 2, 3, 4]),  # most of it together
        (6, node((None, None, 0, 0, 0, 0, 1, 1, 1, 1)), [2, 3, 4, 5, 6, 7]),
        (1, node((*EIGHT, None)), [8]),
        (1, node((0, 0, 0, 0, 1, 1), taken=(0,)), [1]),
        (1, node((0, 0, 0, 0, 1, 1)), [4]),
    ],
)
def test_devices_of_one_group_and_of_the_smallest_that_will_do(
    count: int, capacity: NodeCapacity, expected: list[int]
) -> None:
    assert chosen(gpus(count), capacity) == expected


def test_a_part_is_taken_of_what_is_shared_else_of_a_device_without_links() -> None:
    assert chosen(gpus(share=50), node((0, 0, None))) == [2]
    assert chosen(gpus(share=50), node((0, 0, None), gpu1=50)) == [1]
    assert chosen(gpus(share=60), node((0, 0, 1, 1, 1), taken=(2,), gpu0=50)) == [1]


def test_jobs_one_after_the_other_leave_groups_whole() -> None:
    line = [QueuedJob(job_id=str(n), priority=5, since=n, request=gpus(count)) for n, count in enumerate((1, 2, 1, 4))]

    placements = plan(line, [node((0, 0, 0, 0, 1, 1, 2, 2))]).placements

    assert [[device.index for device in each.devices] for each in placements] == [[4], [6, 7], [5], [0, 1, 2, 3]]


def test_a_gang_gets_linked_devices_of_each_node() -> None:
    nodes = [replace(node(PAIRS, taken=(0,)), name="a"), replace(node(PAIRS, taken=(1, 2)), name="b")]
    gang = QueuedJob(job_id="j", priority=5, since=0, request=replace(gpus(2), node_count=2))

    (placement,) = plan([gang], nodes).placements

    given_ = {part.node: [device.index for device in part.devices] for part in placement.parts}
    assert given_ == {"a": [2, 3], "b": [4, 5]}


def test_the_group_that_a_job_will_get_is_kept_from_other_jobs() -> None:
    going = Running(
        job_id="r", project="p", node="n", priority=5, kind="cuda", devices=frozenset({3, 4}), is_stopping=True
    )
    line = [
        QueuedJob(job_id="four", priority=9, since=0, request=gpus(4), project="p", awaits=("n",)),
        QueuedJob(job_id="two", priority=5, since=1, request=gpus(2), project="p"),
        QueuedJob(job_id="one", priority=1, since=2, request=gpus(1), project="p"),
    ]

    made = plan(line, [node((None, 0, 0, 0, 0), taken=(3, 4))], running=[going])

    assert [(each.job_id, [device.index for device in each.devices]) for each in made.placements] == [("one", [0])]


@st.composite
def capacities(draw: st.DrawFn) -> NodeCapacity:
    """Of two types, with parts taken; a group may have devices of both."""
    groups = draw(st.lists(st.sampled_from((None, 0, 1, 2)), min_size=1, max_size=10))
    types = draw(st.lists(st.sampled_from(("h100", "h100", "a100")), min_size=len(groups), max_size=len(groups)))
    devices = tuple(
        Device(index=2 * index, type=kind, memory_mb=80_000, link_group=group)
        for index, (kind, group) in enumerate(zip(types, groups, strict=True))
    )
    indices = [device.index for device in devices]
    free = draw(st.sets(st.sampled_from(indices)))
    shared = draw(st.sets(st.sampled_from(indices))) - free
    parts = {index: draw(st.sampled_from((25, 50))) for index in shared}
    return NodeCapacity(name="n", devices=devices, free=frozenset(free), parts=parts)


requests = st.builds(gpus, st.integers(1, 6)) | st.builds(gpus, share=st.sampled_from((25, 60)))


@given(requests, capacities())
def test_no_more_and_no_other_devices_are_given_than_are_free(request: Request, capacity: NodeCapacity) -> None:
    without_links = replace(capacity, devices=tuple(replace(d, link_group=None) for d in capacity.devices))
    found, before = chosen(request, capacity), chosen(request, without_links)

    assert (found is None) == (before is None)
    if found is not None:
        assert len(found) == request.device_count
        assert found == sorted(set(found))
        assert all(capacity.left(index) >= request.gpu_share for index in found)
        assert found == chosen(request, replace(capacity, free=frozenset(sorted(capacity.free, reverse=True))))


@given(st.integers(2, 6), capacities())
def test_devices_are_of_one_group_whenever_one_has_enough_free(count: int, capacity: NodeCapacity) -> None:
    found = choose_devices(gpus(count), capacity)
    free = Counter(d.link_group for d in capacity.devices if d.index in capacity.free and d.link_group is not None)

    if max(free.values(), default=0) >= count:
        assert found is not None
        assert len({device.link_group for device in found}) == 1
        assert found[0].link_group is not None


@given(requests, capacities(), st.sampled_from((None, 0)))
def test_of_devices_that_are_all_linked_or_none_the_first_are_given(
    request: Request, capacity: NodeCapacity, group: int | None
) -> None:
    alike = replace(capacity, devices=tuple(replace(d, link_group=group) for d in capacity.devices))
    open_now = [d.index for d in alike.devices if alike.left(d.index) >= request.gpu_share]
    open_now.sort(key=lambda index: (index in alike.free, alike.left(index), index) if request.takes_part else (index,))

    assert (chosen(request, alike) or []) == (
        open_now[: request.device_count] if len(open_now) >= request.device_count else []
    )


def test_a_node_that_can_give_linked_devices_comes_first() -> None:
    nodes = [
        replace(node((None,) * 4), name="a"),
        replace(node(PAIRS, taken=(1, 3, 5, 7)), name="b"),
        replace(node(PAIRS, taken=(0, 1, 2, 3)), name="c", active_jobs=3),
    ]

    def given_to(count: int) -> str:
        line = [QueuedJob(job_id="j", priority=5, since=0, request=gpus(count))]
        return plan(line, nodes).placements[0].node

    assert [given_to(count) for count in (1, 2, 3)] == ["a", "c", "a"]


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeCapacity]:
    """Nodes in pairs, in fours, or partly linked, differently full."""
    layouts = st.sampled_from([(0, 0, 1, 1), (0, 0, 0, 0), (None, 0, 0, None), (None, None, None, None)])
    taken = st.sets(st.integers(0, 3), max_size=3)
    count = draw(st.integers(1, 6))
    return [replace(node(draw(layouts), draw(taken)), name=f"n{number}") for number in range(count)]


@given(clusters(), st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_every_job_gets_the_node_that_scores_highest(cluster: list[NodeCapacity], line: list[int]) -> None:
    nodes, choices = {each.name: each for each in cluster}, NodeIndex(cluster, DEFAULT_WEIGHTS)
    for number, count in enumerate(line):
        request = gpus(count)
        able = [each for each in nodes.values() if choose_devices(request, each) is not None]
        found = choices.place(QueuedJob(job_id=str(number), priority=5, since=number, request=request))
        if not able:
            assert isinstance(found, str)
            continue
        best = min(able, key=lambda each: (-score_node(request, each), each.name))
        assert not isinstance(found, str)
        assert (found.node, found.devices) == (best.name, choose_devices(request, best))
        indices = [device.index for device in found.devices]
        nodes[best.name] = best.with_job(indices, found.share, request.quantities)
        choices.change(nodes[best.name])
