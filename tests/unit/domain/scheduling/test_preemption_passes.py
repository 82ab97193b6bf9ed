"""Consecutive planner passes: a cleared node goes to its job, and no job is preempted for it again and again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Quantities, Request
from app.domain.scheduling.serving_order import Accounts
from simulation.planners import planned
from simulation.site import Allocation, SimulatedCluster
from simulation.trace import ReplayCluster

NONE: Mapping[str, Any] = MappingProxyType({})


class Passes:
    """A site and its planner, pass by pass. A preempted job saves for some passes and then waits again."""

    def __init__(
        self,
        nodes: Sequence[NodeCapacity],
        *,
        deserved: Mapping[str, int] = NONE,
        limits: Mapping[str, int] = NONE,
        weights: Mapping[str, float] = NONE,
        saving_passes: int = 2,
    ) -> None:
        quotas = {
            name: ProjectQuota(devices={"cpu": DeviceQuota(deserved=deserved.get(name), limit=limits.get(name))})
            for name in {*deserved, *limits}
        }
        self.site = SimulatedCluster(ReplayCluster(nodes=nodes, quotas=quotas, queue_weights=weights))
        self.waiting, self.running = self.site.waiting, self.site.held
        self.saving_passes = saving_passes
        self.now = 0.0
        self.going: dict[str, int] = {}  # job → passes until its devices are free
        self.preempted: list[str] = []
        self.started: list[str] = []

    def add(self, name: str, *, kind: str = "cpu", count: int = 1, ram: int = 0, **more: Any) -> None:
        request = Request(device_kind=kind, device_count=count, ram_min_mb=ram)
        values = {"project": "a", "priority": 5, "since": self.now, "is_preemptible": True, **more}
        self.site.add(QueuedJob(job_id=name, request=request, **values))

    def run_pass(self) -> Plan:
        self.now += 1.0
        running = [self._running(name, held) for name, held in self.running.items()]
        made = planned(SchedulingPolicy(reserve_after_seconds=60.0)).decide(self.site.view(self.now, running))
        self._carry_out(made)
        return made

    def _running(self, name: str, held: Allocation) -> Running:
        job = held.job
        return Running(
            job_id=name,
            project=job.project,
            node=held.placement.node,
            priority=job.priority,
            kind=held.kind,
            devices=held.parts[held.placement.node],
            quantities=job.request.quantities,
            may_be_preempted=job.is_preemptible,
            loss=1.0,
            is_stopping=name in self.going,
        )

    def _carry_out(self, made: Plan) -> None:
        for placement in made.placements:
            self.site.start(placement)
            self.started.append(placement.job_id)
        for name, nodes in made.reservations.items():
            self.site.reserve(name, nodes)
        for name in list(self.going):
            self.going[name] -= 1
            if self.going[name] == 0:
                del self.going[name]
                self.site.add(replace(self.site.end(name).job, since=self.now))
        for preemption in made.preemptions:
            self.preempted.append(preemption.job_id)
            self.going[preemption.job_id] = self.saving_passes

    def passes(self, count: int, before_each: Callable[[], None] = lambda: None) -> None:
        for _ in range(count):
            before_each()
            self.run_pass()


def node(name: str = "n", *, slots: int = 2, gpus: int = 0, ram: int = 1000) -> NodeCapacity:
    devices = tuple(Device(index=i, type="cpu") for i in range(slots))
    devices += tuple(Device(index=slots + i, type="h100", memory_mb=80_000) for i in range(gpus))
    return NodeCapacity(name=name, devices=devices, free=frozenset(range(len(devices))), cpu_cores=64, ram_mb=ram)


def test_another_queue_that_has_less_than_its_weight_does_not_take_what_is_cleared() -> None:
    site = Passes([node()], weights={"q1": 1.0, "q2": 1.0})
    site.add("keeps", queue="q2", is_preemptible=False)
    site.add("goes", queue="q1", priority=0)
    site.run_pass()
    site.add("urgent", queue="q2", is_preemptible=False)

    site.passes(40)

    assert site.preempted == ["goes"]
    assert "urgent" in site.running


def test_no_job_on_devices_of_another_kind_is_preempted_for_its_memory() -> None:
    site = Passes([node(gpus=1)])
    site.add("on a gpu", kind="cuda", ram=1000, priority=0)
    site.run_pass()
    site.add("on a slot", ram=500)

    site.passes(20)

    assert site.preempted == []


def test_memory_that_is_cleared_is_kept_as_devices_are() -> None:
    site = Passes([node(slots=4)], saving_passes=6)
    site.add("goes", ram=900, priority=0)
    site.run_pass()
    site.add("urgent", ram=1000, is_preemptible=False)
    serial = iter(range(1000))

    site.passes(60, before_each=lambda: site.add(f"small{next(serial)}", ram=50, priority=1))

    assert site.preempted == ["goes"]
    assert site.started[:2] == ["goes", "urgent"]


def test_two_waiting_jobs_do_not_count_on_the_same_memory() -> None:
    site = Passes([node(slots=4)], saving_passes=3)
    site.add("goes", ram=900, priority=0)
    site.run_pass()
    for name in ("first", "second"):
        site.add(name, ram=600, is_preemptible=False)

    site.passes(20)

    assert site.preempted == ["goes"]
    assert ("first" in site.running, "second" in site.running) == (True, False)


def test_a_project_that_uses_less_does_not_take_what_is_cleared() -> None:
    site = Passes([node(slots=4)])
    for number in range(4):
        site.add(f"low{number}", priority=0)
    site.run_pass()
    site.add("urgent", is_preemptible=False)
    site.run_pass()
    site.add("of another project", project="b", is_preemptible=False)

    site.passes(30)

    assert len(site.preempted) == 1
    assert "urgent" in site.running


@pytest.mark.parametrize("deserved", [3, 4])
def test_what_is_deserved_comes_back_also_from_a_job_that_is_larger_than_what_it_borrowed(deserved: int) -> None:
    site = Passes([node(slots=8)], deserved={"a": 4, "b": deserved})
    site.add("large", project="b", count=8)
    site.run_pass()
    for number in range(4):
        site.add(f"own{number}", is_preemptible=False)

    site.passes(60)

    assert site.preempted == ["large"]
    assert sum(name.startswith("own") for name in site.running) == 4


def test_what_is_given_back_is_no_more_than_what_is_deserved() -> None:
    site = Passes([node(slots=6)], deserved={"a": 2})
    for number in range(6):
        site.add(f"b{number}", project="b")
    site.run_pass()
    for number in range(6):
        site.add(f"a{number}", priority=0)

    site.passes(60)

    assert len(site.preempted) == 2
    assert sum(held.job.project == "a" for held in site.running.values()) == 2


def test_the_preemption_that_loses_least_is_found_even_if_it_is_one_job() -> None:
    def holds(name: str, *devices: int, loss: float) -> Running:
        return Running(
            job_id=name,
            project="a",
            node="n",
            priority=0,
            kind="cpu",
            devices=frozenset(devices),
            may_be_preempted=True,
            loss=loss,
        )

    running = [*(holds(f"s{n}", n, loss=2.5) for n in range(4)), holds("one", 4, 5, 6, 7, loss=5.0)]
    planning = Planning([replace(node(slots=8), free=frozenset())], Accounts(), running, SchedulingPolicy())
    planning.go_on([QueuedJob(job_id="j", project="a", priority=5, since=0, request=Request(device_count=4))])

    assert [each.job_id for each in planning.result().preemptions] == ["one"]


def test_a_large_job_at_its_projects_limit_is_not_passed_for_ever() -> None:
    site = Passes([node(slots=16)], limits={"a": 4})
    for number in range(4):
        site.add(f"first{number}", priority=0, is_preemptible=False)
    site.run_pass()
    site.add("large", count=4, priority=5, is_preemptible=False)
    serial = iter(range(100_000))

    def one_ends_and_one_comes() -> None:
        if int(site.now) % 5 == 0 and site.running:
            site.site.end(next(iter(site.running)))
        site.add(f"small{next(serial)}", priority=0, is_preemptible=False)

    site.passes(120, before_each=one_ends_and_one_comes)

    assert "large" in site.started
    assert site.waiting[f"small{next(serial) - 1}"]


def test_jobs_that_can_never_start_do_not_use_up_what_is_kept_for_others() -> None:
    site = Passes([node(slots=2)])
    site.add("runs", is_preemptible=False)
    site.run_pass()
    for number in range(40):
        site.add(f"never{number}", count=3, is_preemptible=False)
    site.add("waits", count=2, priority=0, is_preemptible=False)
    site.now += 61.0
    site.add("small", priority=0, is_preemptible=False)

    made = site.run_pass()

    assert made.placements == ()
    assert made.pending_reasons["waits"].endswith("n is reserved for it as running jobs end")


def test_a_job_that_waits_for_one_that_never_ends_is_released() -> None:
    site = Passes([node(slots=1)])
    site.add("goes", priority=0)
    site.run_pass()
    site.add("urgent")
    site.run_pass()
    site.going.clear()  # it could not stop, and the preemption was given up

    made = site.run_pass()

    assert made.reservations["urgent"] in ((), ("n",))
    assert Quantities() == made.nodes[0].held


def test_two_jobs_that_wait_for_memory_on_one_node_clear_what_both_need() -> None:
    site = Passes([node(slots=8, ram=8 * 900 + 200)], saving_passes=6)
    for number in range(8):
        site.add(f"goes{number}", ram=900, priority=0)
    site.run_pass()
    for name in ("first", "second"):
        site.add(name, ram=1000, is_preemptible=False)

    site.passes(20)

    assert len(site.preempted) == 2
    assert {"first", "second"} <= site.running.keys()


def test_a_job_that_waits_for_its_quota_keeps_no_other_projects_jobs_from_free_devices() -> None:
    site = Passes([node("n1"), node("n2", slots=4)], limits={"a": 2}, saving_passes=6)
    for name in ("goes", "stays"):
        site.add(name, priority=0)
    site.run_pass()
    site.add("urgent", priority=9)
    site.run_pass()
    site.add("other", project="b")

    site.run_pass()

    assert "other" in site.running


def test_a_job_that_can_not_be_preempted_needs_none_of_its_own_to_go_where_devices_are_free() -> None:
    site = Passes([node(slots=8)], deserved={"a": 2}, saving_passes=3)
    for number in range(5):
        site.add(f"lent{number}", priority=0)
    site.run_pass()
    site.add("sure", is_preemptible=False, ram=1)

    site.passes(10)

    assert site.preempted == []
    assert "sure" in site.running


@pytest.mark.parametrize("count", [4, 12])
def test_a_job_that_its_quota_or_every_node_is_too_small_for_keeps_nothing_from_others(count: int) -> None:
    site = Passes([node(slots=8)], limits={"a": 2 if count == 4 else 16})
    site.add("large", count=count, priority=9)
    site.now += 100
    for number in range(4):
        site.add(f"small{number}")

    site.passes(3)

    assert len(site.running) == (2 if count == 4 else 4)


def test_of_two_for_whom_nodes_are_cleared_each_gets_its_own() -> None:
    site = Passes([node("n1", slots=1), node("n2", slots=1)])
    for name in ("slow", "quick"):
        site.add(name, priority=0)
    site.run_pass()
    site.add("older", is_preemptible=False)
    site.run_pass()
    site.going["slow" if "slow" in site.going else "quick"] = 9
    site.add("younger", is_preemptible=False)

    site.passes(20)

    assert len(site.preempted) == 2
    assert {"older", "younger"} <= site.running.keys()


def test_a_promise_holds_while_the_rest_of_the_quota_comes_back_from_elsewhere() -> None:
    site = Passes([node("n1"), node("n2")], limits={"a": 3}, saving_passes=2)
    for number in range(3):
        site.add(f"own{number}", priority=0)
    site.run_pass()
    elsewhere = next(name for name, held in site.running.items() if held.placement.node == "n2")
    site.going[elsewhere] = 9
    site.add("wide", count=2, priority=5, is_preemptible=False)
    site.run_pass()
    asked = list(site.preempted)
    for number in range(4):
        site.add(f"b{number}", project="b", since=site.now)

    site.passes(20)

    assert site.preempted == asked
    assert "wide" in site.running


def test_a_full_disk_of_one_job_does_not_keep_another_like_it_from_a_node() -> None:
    site = Passes([node("n1", slots=1)])
    site.add("goes", priority=0)
    site.run_pass()
    site.add("without room there", no_room_on=("n1",))
    site.add("with room", since=site.now + 1)

    site.run_pass()

    assert site.preempted == ["goes"]
    assert site.waiting["with room"].awaits == ("n1",)
