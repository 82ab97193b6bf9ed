"""The index of node classes gives the same answers as an inspection of every node."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.scheduling import data_locality, node_classes
from app.domain.scheduling.data_locality import NOT_CACHED, CachedInput, cached
from app.domain.scheduling.filters import avoided, choose_devices, could_fit, explain, share_on
from app.domain.scheduling.node_index import NodeIndex
from app.domain.scheduling.placement import Placement
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, GpuType, NodeCapacity, Quantities, Request
from app.domain.scheduling.scoring import CACHED, DEFAULT_WEIGHTS, score_node

NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
LABELS = ("ssd", "rack-1", "a")  # one of them is also the name of a node
WEIGHTS = {**DEFAULT_WEIGHTS, "pack": 7.0, CACHED: 20.0}
CHIPS = (
    Device(index=0, type="a100", memory_mb=40_960),
    Device(index=0, type="h100", memory_mb=81_920),
    Device(index=0, type="h100-mig-1g.10gb", memory_mb=10_240),
    Device(index=0, type="cpu"),
)


@st.composite
def capacities(draw: st.DrawFn, name: str) -> NodeCapacity:
    chips = draw(st.lists(st.sampled_from(CHIPS), min_size=1, max_size=3))
    devices = tuple(replace(chip, index=index) for index, chip in enumerate(chips))
    free = draw(st.sets(st.sampled_from(range(len(devices)))))
    shared = draw(st.sets(st.sampled_from(range(len(devices))))) - free
    return NodeCapacity(
        name=name,
        devices=devices,
        free=frozenset(free),
        cpu_cores=8,
        ram_mb=draw(st.sampled_from((1000, 2000))),
        parts={index: draw(st.sampled_from((25, 50))) for index in shared},
        held=Quantities(ram_mb=draw(st.sampled_from((0, 800)))),
        labels=frozenset(draw(st.sets(st.sampled_from(LABELS)))),
        active_jobs=draw(st.integers(0, 3)),
        max_jobs=draw(st.sampled_from((None, None, 2))),
        reputation=draw(st.sampled_from((1.0, 0.5))),
        accepts_training=draw(st.sampled_from((True, True, True, False))),
        accepts_inference=draw(st.sampled_from((True, True, True, False))),
        out_of_service=frozenset(draw(st.sets(st.sampled_from(range(len(devices))))) - free - shared),
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeCapacity]:
    return [draw(capacities(name)) for name in draw(st.lists(st.sampled_from(NAMES), unique=True))]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    kind = draw(st.sampled_from(("cpu", "cuda", "cuda")))
    words = st.sampled_from((*LABELS, *NAMES[:3]))
    label_sets = st.frozensets(words, max_size=1)
    either = st.frozensets(st.lists(words, min_size=1, max_size=2).map("|".join), max_size=2)
    request = Request(
        device_kind=kind,
        device_count=draw(st.integers(1, 2)),
        ram_min_mb=draw(st.sampled_from((0, 500, 1500))),
        required_labels=draw(either),
        forbidden_labels=draw(label_sets),
        preferred_labels=draw(either),
        avoided_labels=draw(label_sets),
        trains=draw(st.sampled_from((True, True, False))),
    )
    if kind == "cpu":
        return request
    more: Any = draw(
        st.sampled_from(
            [
                {},
                {"gpu_types": (GpuType("h100"),)},
                {"gpu_types": (GpuType("a100"), GpuType("h100", 81_920))},
                {"gpu_share": 25, "device_count": 1},
                {"gpu_memory_request_mb": 20_000, "device_count": 1},
                {"mig_profile": "1g.10gb", "device_count": 1},
                {"gpu_memory_min_mb": 80_000},
            ]
        )
    )
    return replace(request, **more)


@st.composite
def lines(draw: st.DrawFn) -> list[QueuedJob]:
    shapes = draw(st.lists(requests(), min_size=1, max_size=4))
    some = st.lists(st.sampled_from(NAMES[:4]), unique=True, max_size=2)
    held = st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0.5, 1.0)))
    sources = draw(st.lists(st.builds(CachedInput, size_bytes=st.sampled_from((1, 4)), held=held), max_size=3))
    read = [cached(sources[:count]) for count in range(len(sources) + 1)]
    return [
        QueuedJob(
            job_id=f"j{number}",
            priority=5,
            since=number,
            request=draw(st.sampled_from(shapes)),
            avoids=frozenset(draw(some)),
            no_room_on=tuple(draw(some)),
            cached=draw(st.sampled_from(read)),
        )
        for number in range(draw(st.integers(1, 8)))
    ]


def place(job: QueuedJob, nodes: dict[str, NodeCapacity]) -> Placement | str:
    """The reference: places the job by inspecting every node."""
    excluded = avoided(job.request, job.avoids, nodes)
    late = {name: number for number, name in enumerate(job.no_room_on, start=1)}
    able = [
        node
        for node in nodes.values()
        if node.name not in excluded and not could_fit(job.request, node) and choose_devices(job.request, node)
    ]
    if not able:
        return explain(job.request, list(nodes.values()), excluded)

    def score(node: NodeCapacity) -> float:
        return score_node(job.request, node, WEIGHTS) + WEIGHTS[CACHED] * job.cached.on(node.name)

    # Nodes that had no room come last whatever they score, the least recent one first.
    best = min(able, key=lambda n: (late.get(n.name, 0), -score(n), n.name))
    devices = choose_devices(job.request, best) or ()
    return Placement(job_id=job.job_id, node=best.name, devices=devices, share=share_on(job.request, devices[0]))


def taken(node: NodeCapacity, job: QueuedJob, placement: Placement) -> NodeCapacity:
    given_away = node.given((device.index for device in placement.devices), placement.share)
    return replace(given_away, held=node.held + job.request.quantities, active_jobs=node.active_jobs + 1)


@st.composite
def alike_clusters(draw: st.DrawFn) -> list[NodeCapacity]:
    """Nodes that differ only in their labels."""
    return [
        NodeCapacity(
            name=name,
            devices=(Device(index=0, type="cpu"), Device(index=1, type="cpu")),
            free=frozenset({0, 1}),
            labels=frozenset(draw(st.sets(st.sampled_from(LABELS)))),
        )
        for name in NAMES[: draw(st.integers(2, 8))]
    ]


@st.composite
def choosy_lines(draw: st.DrawFn) -> list[QueuedJob]:
    words = st.sampled_from((*LABELS, *NAMES[:3]))
    label_sets = st.frozensets(words, max_size=2)
    some = draw(st.lists(st.tuples(label_sets, label_sets), min_size=1, max_size=3))
    required, forbidden = draw(st.frozensets(words, max_size=1)), draw(st.frozensets(words, max_size=1))
    read = cached([CachedInput(size_bytes=1, held=draw(st.dictionaries(st.sampled_from(NAMES), st.just(1.0))))])
    requests_ = [
        Request(
            preferred_labels=preferred,
            avoided_labels=draw(st.sampled_from((avoided_, frozenset[str]()))),
            required_labels=required,
            forbidden_labels=forbidden,
        )
        for preferred, avoided_ in some
    ]
    return [
        QueuedJob(
            job_id=f"j{number}",
            priority=5,
            since=number,
            request=draw(st.sampled_from(requests_)),
            cached=draw(st.sampled_from((NOT_CACHED, read))),
        )
        for number in range(draw(st.integers(2, 8)))
    ]


@pytest.mark.long
@given(alike_clusters(), choosy_lines(), st.sampled_from((node_classes.FEW, 0.3, 0.6)), st.sampled_from((0, 8)))
@settings(max_examples=80)
def test_every_job_gets_the_node_that_it_prefers(
    cluster: list[NodeCapacity], line: list[QueuedJob], few: float, few_holders: int
) -> None:
    nodes = {node.name: node for node in cluster}

    with patch.object(node_classes, "FEW", few), patch.object(data_locality, "FEW_HOLDERS", few_holders):
        choices = NodeIndex(cluster, WEIGHTS)
        for job in line:
            expected, found = place(job, nodes), choices.place(job)
            if isinstance(expected, str):
                assert isinstance(found, str)
                continue
            assert found == expected
            nodes[expected.node] = taken(nodes[expected.node], job, expected)
            choices.change(nodes[expected.node])


@pytest.mark.long
@given(clusters(), lines(), st.sampled_from((node_classes.FEW, 0.3, 0.6, 1.0)), st.sampled_from((0, 1, 8)))
@settings(max_examples=80)
def test_every_job_gets_what_a_look_at_every_node_would_give_it(
    cluster: list[NodeCapacity], line: list[QueuedJob], few: float, few_holders: int
) -> None:
    nodes = {node.name: node for node in sorted(cluster, key=lambda node: node.name)}
    explained: dict[tuple[Request, frozenset[str]], str] = {}

    with patch.object(node_classes, "FEW", few), patch.object(data_locality, "FEW_HOLDERS", few_holders):
        choices = NodeIndex(cluster, WEIGHTS)
        for job in line:
            expected, found = place(job, nodes), choices.place(job)
            if isinstance(expected, str):
                # The explanation is cached: it shows what was free when the first such request failed.
                assert found == explained.setdefault((job.request, job.avoids), expected)
                continue
            assert found == expected
            nodes[expected.node] = taken(nodes[expected.node], job, expected)
            choices.change(nodes[expected.node])

        assert choices.is_full == (not any(node.has_room for node in nodes.values()))
        for job in line:
            could = {node.name for node in nodes.values() if not could_fit(job.request, node)}
            given_to = could - avoided(job.request, job.avoids, nodes)
            assert {name for name in NAMES if choices.candidates(job)(name) is not None} == given_to
            assert choices.could_hold(job) == bool(given_to)
