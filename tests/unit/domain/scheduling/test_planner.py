"""Which jobs start on which nodes, and the pending reasons of the others."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.nodes.project_demand import ProjectDemand, demanding
from app.domain.scheduling.filters import could_fit
from app.domain.scheduling.planner import held_back, plan
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request, RoleRequest, gpu_types_of
from app.domain.scheduling.serving_order import Accounts


def node(
    name: str,
    *,
    cpu: int = 0,
    gpus: tuple[str, ...] = (),
    memory_mb: int = 40_000,
    busy: int = 0,
    labels: frozenset[str] = frozenset(),
) -> NodeCapacity:
    devices = tuple(Device(index=i, type="cpu") for i in range(cpu))
    devices += tuple(Device(index=cpu + i, type=t, memory_mb=memory_mb) for i, t in enumerate(gpus))
    free = frozenset(d.index for d in devices[busy:])
    return NodeCapacity(
        name=name, devices=devices, free=free, cpu_cores=8, ram_mb=16_000, storage_mb=100_000, labels=labels
    )


def job(job_id: str, *, priority: int = 5, since: float = 0, queue: str = "default", **request: Any) -> QueuedJob:
    wanted = Request(**request)
    return QueuedJob(job_id=job_id, priority=priority, since=since, request=wanted, queue=queue)


def without_room_on(*nodes: str) -> list[QueuedJob]:
    return [replace(job("j"), no_room_on=nodes)]


def starts(jobs: list[QueuedJob], nodes: list[NodeCapacity]) -> list[tuple[str, str, list[int]]]:
    return [(p.job_id, p.node, [d.index for d in p.devices]) for p in plan(jobs, nodes).placements]


def test_the_more_urgent_job_goes_first_then_the_older() -> None:
    waiting = [job("late", since=2), job("early", since=1), job("urgent", priority=9, since=3)]

    assert starts(waiting, [node("n", cpu=2)]) == [("urgent", "n", [0]), ("early", "n", [1])]


def test_a_small_job_passes_one_that_does_not_fit_now() -> None:
    waiting = [job("big", since=1, device_count=4), job("small", since=2)]

    assert starts(waiting, [node("n", cpu=4, busy=1)]) == [("small", "n", [1])]


def test_devices_of_one_job_lie_on_one_node() -> None:
    nodes = [node("a", cpu=1), node("b", cpu=2)]

    assert starts([job("j", device_count=2)], nodes) == [("j", "b", [0, 1])]


def test_nodes_with_a_full_disk_come_last_and_the_one_that_was_longest_ago_before_the_others() -> None:
    nodes = [node("a", cpu=1), node("b", cpu=1), node("c", cpu=1)]

    assert starts(without_room_on("a"), nodes) == [("j", "b", [0])]
    assert starts(without_room_on("b", "a"), nodes) == [("j", "c", [0])]
    assert starts(without_room_on("b", "c", "a"), nodes) == [("j", "b", [0])]


def test_a_node_with_a_full_disk_is_taken_when_no_other_has_a_device() -> None:
    assert starts(without_room_on("a"), [node("a", cpu=1), node("b", cpu=1, busy=1)]) == [("j", "a", [0])]
    assert starts(without_room_on("a"), [node("a", cpu=1)]) == [("j", "a", [0])]


def test_gpu_type_and_memory_are_hard_conditions() -> None:
    nodes = [node("a", gpus=("t4",), memory_mb=16_000), node("b", gpus=("a100",), memory_mb=40_000)]

    assert starts([job("j", device_kind="cuda", gpu_types=gpu_types_of("a100"))], nodes) == [("j", "b", [0])]
    assert starts([job("j", device_kind="cuda", gpu_memory_min_mb=30_000)], nodes) == [("j", "b", [0])]
    assert starts([job("j", device_kind="cuda", gpu_memory_min_mb=80_000)], nodes) == []


def test_any_of_several_types_will_do_each_with_its_own_memory() -> None:
    nodes = [
        node("a", gpus=("t4",), memory_mb=81_920),
        node("b", gpus=("a100",), memory_mb=40_960),
        node("c", gpus=("h100",), memory_mb=40_960),
        node("d", gpus=("a100",), memory_mb=81_920),
    ]
    either = gpu_types_of(["A100-80GB", "NVIDIA H100"])

    jobs = [job(str(n), since=n, device_kind="cuda", gpu_types=either) for n in range(3)]

    assert starts(jobs, nodes) == [("0", "c", [0]), ("1", "d", [0])]
    assert plan(jobs, nodes).pending_reasons["2"] == "needs 1 a100 or h100 on one node; free: 0 on c, 0 on d"


def test_a_cpu_job_never_takes_a_gpu_and_a_gpu_job_never_a_slot() -> None:
    mixed = [node("n", cpu=1, gpus=("a100",))]

    placed = starts([job("c"), job("g", since=1, device_kind="cuda")], mixed)

    assert placed == [("g", "n", [1]), ("c", "n", [0])]


def test_a_pending_reason_has_counts_type_and_what_is_free() -> None:
    reasons = plan([job("j", device_count=2)], [node("n", cpu=2, busy=1)]).pending_reasons

    assert reasons == {"j": "needs 2 CPU slots on one node; free: 1 on n; gpu_count 1 would fit on n now"}


def test_a_job_that_no_ready_node_could_hold_gets_the_reason() -> None:
    nodes = [node("n", cpu=2)]

    def reason(**request: Any) -> str:
        return plan([job("j", **request)], nodes).pending_reasons["j"]

    assert "n has no h100" in reason(device_kind="cuda", gpu_types=gpu_types_of("h100"))
    assert "n has 8 of 64 CPU cores" in reason(cpu_cores=64)
    assert "n has 16000 of 99999 MB memory" in reason(ram_min_mb=99_999)
    assert "n has 100000 of 200000 MB storage" in reason(storage_min_mb=200_000)
    assert "n is not labelled rack-7 (required_node_labels)" in reason(required_labels=frozenset({"n", "rack-7"}))
    assert "n is not labelled rack-7 or rack-8 (required_node_labels)" in reason(
        required_labels=frozenset({"rack-7|rack-8"})
    )
    assert "n is n (forbidden_node_labels)" in reason(forbidden_labels=frozenset({"n"}))
    assert "n lacks the capabilities infiniband" in reason(required_capabilities=frozenset({"infiniband"}))


def test_reason_names_the_project_for_what_it_alone_demands() -> None:
    own = Request(required_capabilities=frozenset({"mounts", "limits"}))
    demand = ProjectDemand("nlp", frozenset({"limits", "sandbox:full"}))
    asked = demanding(own, demand)
    of_role = demanding(Request(roles=(RoleRequest(role="a", count=1, each=own),)), demand).roles[0].each

    said = "lacks the capabilities limits, mounts, sandbox:full (its project demands sandbox:full)"
    assert could_fit(asked, node("n", cpu=1)) == could_fit(of_role, node("n", cpu=1)) == said
    assert demanding(own, ProjectDemand("nlp", frozenset({"limits"}))) is own


def test_labels_and_names_call_for_nodes_and_keep_away_from_them() -> None:
    nodes = [
        node("a", cpu=4, labels=frozenset({"rack-1", "nvlink"})),
        node("b", cpu=4, labels=frozenset({"rack-2", "nvlink"})),
        node("c", cpu=4),
    ]

    def taken(**labels: set[str]) -> list[str]:
        request: dict[str, Any] = {name: frozenset(each) for name, each in labels.items()}
        jobs = [job(str(n), since=n, device_count=4, **request) for n in range(3)]
        return [placement.node for placement in plan(jobs, nodes).placements]

    assert taken(required_labels={"nvlink"}) == ["a", "b"]
    assert taken(required_labels={"nvlink", "rack-2"}) == ["b"]
    assert taken(required_labels={"c"}) == ["c"]
    assert taken(required_labels={"rack-9|c|rack-2"}) == ["b", "c"]
    assert taken(required_labels={"rack-9|c", "rack-2"}) == []
    assert taken(forbidden_labels={"rack-1"}) == ["b", "c"]
    assert taken(forbidden_labels={"nvlink", "c"}) == []
    assert taken(required_labels={"nvlink"}, forbidden_labels={"rack-1"}) == ["b"]


def test_preferred_nodes_are_taken_first_and_avoided_ones_last() -> None:
    nodes = [
        node("a", cpu=4, labels=frozenset({"rack-1"})),
        node("b", cpu=4, labels=frozenset({"rack-2"})),
        replace(node("c", cpu=4, labels=frozenset({"rack-2", "nvlink"})), active_jobs=9, reputation=0.1),
    ]

    def order(**labels: set[str]) -> str:
        request: dict[str, Any] = {name: frozenset(each) for name, each in labels.items()}
        jobs = [job(str(n), since=n, device_count=4, **request) for n in range(3)]
        return "".join(placement.node for placement in plan(jobs, nodes).placements)

    assert order() == "abc"
    assert order(preferred_labels={"nvlink"}) == "cab"
    assert order(preferred_labels={"nvlink", "rack-2"}) == "cba"
    assert order(preferred_labels={"nowhere"}) == "abc"
    assert order(preferred_labels={"rack-9|b"}) == "bac"
    assert order(avoided_labels={"rack-1"}) == "bca"
    assert order(avoided_labels={"a", "b"}) == "cab"
    assert order(preferred_labels={"rack-2"}, avoided_labels={"b"}) == "cab"
    assert order(preferred_labels={"c"}, required_labels={"rack-2"}) == "cb"
    assert order(preferred_labels={"c"}, forbidden_labels={"c"}) == "ab"


def test_several_nodes_of_a_job_are_those_that_it_prefers() -> None:
    rack = frozenset({"switch=1"})
    nodes = [node("a", cpu=2, labels=rack), node("b", cpu=2, labels=rack), node("c", cpu=2), node("d", cpu=2)]

    def taken(**labels: Any) -> list[str]:
        (placement,) = plan([job("gang", node_count=2, device_count=2, **labels)], nodes).placements
        return [placement.node, *(part.node for part in placement.others)]

    assert taken() == ["a", "b"]
    assert taken(preferred_labels=frozenset({"c|d"})) == ["c", "d"]
    assert taken(avoided_labels=frozenset({"a"})) == ["b", "c"]


def test_without_nodes_the_reason_says_so() -> None:
    assert plan([job("j")], []).pending_reasons == {"j": "needs 1 CPU slot; no node is ready"}


def test_an_explanation_of_gpus_names_the_type() -> None:
    reasons = plan(
        [job("j", device_count=2, device_kind="cuda", gpu_types=gpu_types_of("a100"))],
        [node("n", gpus=("a100", "a100"), busy=1)],
    ).pending_reasons

    assert reasons == {"j": "needs 2 a100 on one node; free: 1 on n; gpu_count 1 would fit on n now"}


def test_a_queue_starts_no_more_than_it_has_room_for_and_others_pass() -> None:
    waiting = [
        job("n1", since=1, queue="night"),
        job("n2", since=2, queue="night"),
        job("p1", since=3, queue="paused"),
        job("d1", since=4, queue="day"),
    ]

    decided = plan(waiting, [node("n", cpu=4)], Accounts(room={"night": 1, "paused": 0}))

    assert [placement.job_id for placement in decided.placements] == ["n1", "d1"]
    assert decided.accounts.room == {"night": 0, "paused": 0}
    assert decided.pending_reasons == {}


def test_a_job_that_does_not_fit_takes_no_room() -> None:
    waiting = [job("big", since=1, queue="night", device_count=9), job("small", since=2, queue="night")]

    decided = plan(waiting, [node("n", cpu=4)], Accounts(room={"night": 1}))

    assert [placement.job_id for placement in decided.placements] == ["small"]
    assert list(decided.pending_reasons) == ["big"]


@pytest.mark.parametrize(
    ("is_paused", "limit", "running", "said"),
    [
        pytest.param(False, None, 100, "", id="neither paused nor limited"),
        pytest.param(False, 2, 1, "", id="below its limit"),
        pytest.param(False, 2, 2, "the queue night runs 2 of at most 2 jobs (max_running_jobs)", id="at it"),
        pytest.param(False, 2, 3, "the queue night runs 3 of at most 2 jobs (max_running_jobs)", id="limited later"),
        pytest.param(
            True, 2, 2, "the queue night is paused: it takes jobs and starts none until it is resumed", id="paused"
        ),
    ],
)
def test_a_queue_that_starts_no_jobs_says_why(*, is_paused: bool, limit: int | None, running: int, said: str) -> None:
    assert held_back("night", is_paused=is_paused, limit=limit, running=running) == said


def test_a_node_is_given_no_more_jobs_than_it_may_run() -> None:
    limited = replace(node("a", cpu=4), max_jobs=2, active_jobs=1)
    jobs = [job("first"), job("second", since=1)]

    plan_ = plan(jobs, [limited])

    assert [placement.job_id for placement in plan_.placements] == ["first"]
    full = "needs 1 CPU slot on one node; free: 3 on a, which runs 2 of at most 2 jobs (max_concurrent in node.toml)"
    assert plan_.pending_reasons == {"second": full}
