"""Which node a job is given of those that can hold it."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.scheduling.planner import SchedulingPolicy, plan
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Quantities, Request
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS, SCORES, points_of, score_node
from config.scheduling import ScoreSettings

CPU_JOB = Request()
GPU_JOB = Request(device_kind="cuda", gpu_types=(GpuType("a100"),), gpu_memory_min_mb=40_000)


def node(name: str = "n", *, kind: str = "cpu", count: int = 4, memory_mb: int = 40_000, **more: Any) -> NodeCapacity:
    devices = tuple(Device(index=i, type=kind, memory_mb=0 if kind == "cpu" else memory_mb) for i in range(count))
    whole = NodeCapacity(name=name, devices=devices, free=frozenset(range(count)), ram_mb=1000)
    return replace(whole, **more)


def chosen(nodes: list[NodeCapacity], jobs: int = 1, **weights: float) -> list[str]:
    line = [QueuedJob(job_id=f"j{n}", priority=5, since=n, request=CPU_JOB) for n in range(jobs)]
    return [
        p.node for p in plan(line, nodes, policy=SchedulingPolicy(weights={**DEFAULT_WEIGHTS, **weights})).placements
    ]


@pytest.mark.parametrize(
    ("request_", "given_node", "expected"),
    [
        # device + memory + reputation - active jobs, as the source computes it
        (GPU_JOB, node(kind="a100"), 180.0),
        (GPU_JOB, node(kind="a100", reputation=0.5, active_jobs=3), 100.0 + 50.0 + 15.0 - 30.0),
        (GPU_JOB, node(kind="t4"), 50.0 + 30.0),
        (GPU_JOB, node(kind="a100", memory_mb=16_000), 30.0),
        (GPU_JOB, node(kind="a100", free=frozenset(), active_jobs=4), 100.0 + 30.0 - 40.0),
        (CPU_JOB, node(), 180.0),
        (replace(CPU_JOB, ram_min_mb=600), node(held=Quantities(ram_mb=500)), 130.0),
        (replace(CPU_JOB, device_count=5), node(), 80.0),
    ],
)
def test_default_policy_is_that_of_the_source(request_: Request, given_node: NodeCapacity, expected: float) -> None:
    assert score_node(request_, given_node) == expected
    assert sum(each.points for each in points_of(request_, given_node)) == expected


def test_jobs_are_spread_over_nodes_that_are_alike() -> None:
    assert chosen([node("a"), node("b")], jobs=4) == ["a", "b", "a", "b"]


def test_pack_fills_one_node_before_the_next() -> None:
    nodes = [node("a"), node("b", free=frozenset({0, 1}), active_jobs=2)]

    assert chosen(nodes, jobs=4, pack=100.0, active_jobs=0.0) == ["b", "b", "a", "a"]


def test_a_node_that_failed_is_worth_three_jobs_less() -> None:
    nodes = [node("a", reputation=0.05), node("b", active_jobs=2)]

    assert chosen(nodes) == ["b"]
    assert chosen(nodes, reputation=10.0) == ["a"]


def test_a_node_without_room_comes_last_whatever_it_scores() -> None:
    line = [QueuedJob(job_id="j", priority=5, since=0, request=CPU_JOB, no_room_on=("a",))]

    (placement,) = plan(line, [node("a"), node("b", active_jobs=9, reputation=0.0)]).placements

    assert placement.node == "b"


def test_each_score_has_a_setting_of_its_name_with_its_weight() -> None:
    assert {each.name: each.default for each in fields(ScoreSettings)} == DEFAULT_WEIGHTS
    assert all(each.meaning for each in SCORES.values())


capacities = st.builds(
    node,
    st.sampled_from("abc"),
    count=st.integers(1, 4),
    active_jobs=st.integers(0, 9),
    reputation=st.floats(0, 1),
    held=st.builds(Quantities, ram_mb=st.integers(0, 1000)),
)


@given(nodes=st.lists(capacities, min_size=1, unique_by=lambda n: n.name), asked=st.integers(1, 5))
def test_the_best_of_those_where_it_can_start_is_taken(nodes: list[NodeCapacity], asked: int) -> None:
    request = Request(device_count=asked, ram_min_mb=400)
    line = [QueuedJob(job_id="j", priority=5, since=0, request=request)]

    placements = plan(line, nodes).placements

    able = [n for n in nodes if len(n.free) >= asked and n.ram_mb - n.held.ram_mb >= 400]
    assert bool(placements) == bool(able)
    if able:
        best = max(score_node(request, each) for each in able)
        (taken,) = [each for each in nodes if each.name == placements[0].node]
        assert taken in able
        assert score_node(request, taken) == best
    assert plan(line, list(reversed(nodes))).placements == placements
