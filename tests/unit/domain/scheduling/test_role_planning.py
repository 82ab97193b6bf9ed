"""Jobs with roles in a planner pass: placement, quotas by kind, preemption for them and of them, reservations."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from app.domain.errors import CannotFit
from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota, QuotaUsage
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy, plan
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request, RoleRequest
from app.domain.scheduling.serving_order import Accounts
from app.domain.scheduling.start_estimates import DeviceRelease, starts
from app.domain.spec.roles import OTHER_NODES, Affinity

WAITED = SchedulingPolicy(now=100.0, reserve_after_seconds=50.0)


def node(name: str, gpus: int = 4, *, slots: int = 0, running: Iterable[Running] = ()) -> NodeCapacity:
    kinds = ["h100"] * gpus + ["cpu"] * slots
    devices = tuple(Device(index=index, type=kind, memory_mb=80_000) for index, kind in enumerate(kinds))
    taken = {index for each in running if each.node == name for index in each.devices}
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(len(kinds))) - taken, cpu_cores=64)


def role(name: str, count: int, devices: int, kind: str = "cuda", **more: Any) -> RoleRequest:
    return RoleRequest(role=name, count=count, each=Request(device_count=devices, device_kind=kind, **more))


def request(*roles: RoleRequest) -> Request:
    kind = "cuda" if any(each.each.device_kind == "cuda" for each in roles) else "cpu"
    devices = sum(each.count * each.each.device_count for each in roles if each.each.device_kind == kind)
    return Request(roles=roles, device_kind=kind, device_count=devices)


TWO = request(role("trainer", 1, 4), role("rollout", 2, 2))
MIXED = request(role("trainer", 1, 2), role("reward", 1, 3, "cpu"))


def job(name: str = "g", asked: Request = TWO, **more: Any) -> QueuedJob:
    return QueuedJob(job_id=name, request=asked, **{"project": "a", "priority": 5, "since": 0.0, **more})


def runs(name: str, *devices: int, on: str, **more: Any) -> Running:
    values = {"project": "a", "priority": 1, "kind": "cuda", "may_be_preempted": True, **more}
    return Running(job_id=name, node=on, devices=frozenset(devices), **values)


def accounts(quota: dict[str, DeviceQuota], **used: float) -> Accounts:
    return Accounts(projects={"a": QuotaUsage(quota=ProjectQuota(devices=quota), used=used)})


def victims(made: Plan) -> set[str]:
    return {each.job_id for each in made.preemptions}


def reserved(made: Plan) -> tuple[str, ...]:
    return made.reservations.get("g", ())


def test_all_instances_start_at_once_or_none() -> None:
    made = plan([job()], [node("a"), node("b")])
    (placement,) = made.placements
    assert [(part.node, [each.role for each in part.instances]) for part in placement.parts] == [
        ("a", ["trainer"]),
        ("b", ["rollout", "rollout"]),
    ]
    assert [len(each.free) for each in made.nodes] == [0, 0]
    assert plan([job()], [node("a"), node("b", 3)]).placements == ()


def test_amounts_are_taken_where_the_instances_are() -> None:
    asked = request(role("trainer", 1, 4, cpu_cores=10), role("rollout", 1, 4, cpu_cores=3))
    made = plan([job(asked=asked)], [node("a"), node("b")])
    assert {each.name: each.held.cpu_cores for each in made.nodes} == {"a": 10, "b": 3}


def test_a_second_job_gets_what_the_first_leaves() -> None:
    made = plan([job("first"), job("second", since=1.0), job("third", since=2.0)], [node("a", 8), node("b", 8)])
    assert {each.job_id for each in made.placements} == {"first", "second"}
    assert "too small" not in made.pending_reasons["third"]


def test_quotas_count_each_kind() -> None:
    nodes = [node("a"), node("b", 0, slots=4)]
    assert len(plan([job(asked=MIXED)], nodes, accounts({})).placements) == 1
    gpus = plan([job(asked=MIXED)], nodes, accounts({"cuda": DeviceQuota(limit=1)}))
    assert gpus.pending_reasons["g"] == "the project a uses 0 of at most 1 GPUs, and the job needs 2"
    slots = plan([job(asked=MIXED)], nodes, accounts({"cpu": DeviceQuota(limit=2)}))
    assert slots.pending_reasons["g"] == "the project a uses 0 of at most 2 CPU slots, and the job needs 3"


def test_its_devices_of_every_kind_count_as_used() -> None:
    made = plan([job(asked=MIXED)], [node("a"), node("b", 0, slots=4)], accounts({}))
    usage = made.accounts.projects["a"]
    assert (usage.used, usage.running) == ({"cuda": 2, "cpu": 3}, 1)
    assert usage.with_one_less("cuda", 2, preemptible=False, others={"cpu": 3}).used == {"cuda": 0, "cpu": 0}


def test_jobs_of_lower_priority_are_preempted_for_all_of_its_nodes() -> None:
    running = [runs("x", 0, 1, 2, 3, on="a"), runs("y", 2, 3, on="b"), runs("z", 0, 1, on="c", loss=9.0)]
    nodes = [node("a", running=running), node("b", running=running), node("c", 2, running=running)]
    made = plan([job()], nodes, running=running)
    assert victims(made) == {"x", "y"}
    assert reserved(made) == ("a", "b")
    assert made.pending_reasons["g"].endswith("; a, b are being cleared for it")


def test_no_job_is_preempted_when_that_would_not_be_enough() -> None:
    running = [runs("x", 0, 1, 2, 3, on="a"), runs("y", 2, 3, on="b", may_be_preempted=False)]
    made = plan([job()], [node("a", running=running), node("b", running=running)], running=running)
    assert victims(made) == set()


def test_no_victim_is_needless() -> None:
    running = [runs("small", 0, on="a", loss=1.0), runs("large", 0, 1, 2, 3, on="b", loss=5.0)]
    made = plan([job()], [node("a", running=running), node("b", running=running), node("c", 4)], running=running)
    assert victims(made) == {"small"}


def test_what_is_cleared_is_not_cleared_again() -> None:
    running = [runs("x", 0, 1, 2, 3, on="a", is_stopping=True)]
    planning = Planning([node("a", running=running), node("b")], Accounts(), running, SchedulingPolicy())
    planning.serve_reserved_jobs([job(awaits=("a", "b"))])
    made = planning.result()
    assert victims(made) == set()
    assert made.pending_reasons["g"].endswith("; a, b are being cleared for it")
    assert [each.reserved for each in made.nodes] == [frozenset(), frozenset({0, 1, 2, 3})]


def test_it_starts_on_what_was_cleared() -> None:
    planning = Planning([node("a"), node("b")], Accounts(), [], SchedulingPolicy())
    planning.serve_reserved_jobs([job(awaits=("a", "b"))])
    assert len(planning.result().placements) == 1


def test_a_job_that_has_waited_gets_the_nodes_that_are_free_soonest() -> None:
    running = [
        runs("x", 0, 1, 2, 3, on="a", ends_in=50.0, may_be_preempted=False),
        runs("y", 0, 1, 2, 3, on="b", ends_in=900.0, may_be_preempted=False),
        runs("z", 0, 1, 2, 3, on="c", ends_in=60.0, may_be_preempted=False),
    ]
    nodes = [node(name, running=running) for name in ("a", "b", "c")]
    made = plan([job()], nodes, running=running, policy=WAITED)
    assert reserved(made) == ("a", "c")
    assert made.pending_reasons["g"].endswith("; a, c are reserved for it as running jobs end")


def test_an_instance_of_a_job_with_roles_is_preempted_with_all_others() -> None:
    running = [
        runs("roles", 0, 1, on="a", elsewhere=1.0, by_kind={"cuda": 3.0}),
        runs("roles", 0, on="b", elsewhere=2.0, by_kind={"cuda": 3.0}),
    ]
    one = QueuedJob(job_id="g", request=Request(device_count=4, device_kind="cuda"), project="a", priority=5, since=0.0)
    made = plan([one], [node("a", running=running), node("b", 1, running=running)], running=running)
    assert victims(made) == {"roles"}


def test_an_estimate_knows_when_all_its_nodes_are_free() -> None:
    running = [runs("x", 0, 1, 2, 3, on="a"), runs("y", 0, 1, 2, 3, on="b")]
    nodes = [node(name, running=running) for name in ("a", "b")]
    ends = [
        DeviceRelease(seconds=seconds, node=each.node, devices=each.devices, quantities=each.quantities)
        for each, seconds in zip(running, (10.0, 30.0), strict=True)
    ]
    assert starts([TWO], nodes, ends) == [30.0]


@pytest.mark.parametrize(
    ("asked", "nodes", "field", "message"),
    [
        (TWO, [node("a", 3)], "tasks.0.resource_config.gpu_count", "the largest gpu_count that would fit is 3"),
        (MIXED, [node("a")], "tasks.1.resource_config", "needs 3 CPU slots on one node"),
        (TWO, [node("a"), node("b", 3)], "tasks", "all nodes together could not hold that"),
    ],
)
def test_what_no_nodes_could_hold_is_refused(
    asked: Request, nodes: Sequence[NodeCapacity], field: str, message: str
) -> None:
    with pytest.raises(CannotFit, match=message) as refused:
        refuse_unfitting(asked, nodes)
    assert refused.value.field == field


def test_what_the_nodes_could_hold_together_is_accepted() -> None:
    refuse_unfitting(TWO, [node("a"), node("b")])
    refuse_unfitting(MIXED, [node("a"), node("b", 0, slots=4)])


def test_a_hundred_jobs_may_end_for_one_and_none_of_them_needlessly() -> None:
    running = [runs(f"n{n:02}-{d}", d, on=f"n{n:02}", loss=float(n)) for n in range(20) for d in range(8)]
    nodes = [node(f"n{n:02}", 8, running=running) for n in range(20)]
    made = plan([job(asked=request(role("trainer", 12, 8)))], nodes, running=running)
    assert victims(made) == {each.job_id for each in running if each.node < "n12"}


def test_affinity_counts_for_what_is_preempted_and_reserved() -> None:
    apart = Affinity(role="one", where=OTHER_NODES)
    one = RoleRequest(role="one", count=1, each=Request(device_count=2, device_kind="cuda"))
    asked = request(one, RoleRequest(role="two", count=1, each=one.each, affinity=(apart,)))
    running = [runs("x", 0, 1, on="b", loss=9.0), runs("y", 2, 3, on="b", loss=5.0)]
    nodes = [node("a"), node("b", running=running)]
    assert plan([job(asked=asked)], nodes).placements == ()
    assert victims(plan([job(asked=asked)], nodes, running=running)) == {"y"}
    keep = [runs("x", 0, 1, on="b", ends_in=60.0, may_be_preempted=False), runs("y", 2, 3, on="b", ends_in=10.0)]
    waiting = job(asked=asked, priority=1)
    assert sorted(reserved(plan([waiting], nodes, running=keep, policy=WAITED))) == ["a", "b"]
