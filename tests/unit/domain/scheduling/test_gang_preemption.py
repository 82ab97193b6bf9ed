"""Preemption for a gang: no more jobs than it needs, and none at all when the gang would still not fit."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.scheduling.fair_share import DeviceQuota, ProjectQuota, QuotaUsage
from app.domain.scheduling.gang_placement import candidates, choose
from app.domain.scheduling.planner import Plan, Planning, SchedulingPolicy, plan
from app.domain.scheduling.preemption import Running
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import Device, NodeCapacity, Request
from app.domain.scheduling.scoring import DEFAULT_WEIGHTS
from app.domain.scheduling.serving_order import Accounts

PAIR = Request(node_count=2, device_count=2)
SLOTS = 3


def nodes(running: Iterable[Running], *names: str, kinds: Sequence[str] = ()) -> list[NodeCapacity]:
    """Nodes on which every device is free that no running job holds."""
    taken = Counter((each.node, index) for each in running for index in each.devices)
    made = []
    for number, name in enumerate(names):
        kind = kinds[number] if kinds else "cpu"
        devices = tuple(Device(index=index, type=kind) for index in range(SLOTS))
        free = frozenset(index for index in range(SLOTS) if not taken[name, index])
        made.append(NodeCapacity(name=name, devices=devices, free=free, cpu_cores=8))
    return made


def runs(name: str, *devices: int, on: str, **more: Any) -> Running:
    values = {"project": "a", "priority": 1, "kind": "cpu", "may_be_preempted": True, **more}
    return Running(job_id=name, node=on, devices=frozenset(devices), **values)


def gang(name: str = "g", request: Request = PAIR, **more: Any) -> QueuedJob:
    return QueuedJob(job_id=name, request=request, **{"project": "a", "priority": 5, "since": 0.0, **more})


def accounts(used: dict[str, float], **quotas: DeviceQuota) -> Accounts:
    quota = {name: ProjectQuota(devices={"cpu": each}) for name, each in quotas.items()}
    standings = {
        name: QuotaUsage(quota=quota.get(name, ProjectQuota()), used={"cpu": amount}) for name, amount in used.items()
    }
    return Accounts(projects=standings)


def victims(made: Plan) -> set[str]:
    return {each.job_id for each in made.preemptions}


def test_its_nodes_are_cleared_together_and_its_pending_reason_names_them() -> None:
    running = [runs("x", 0, 1, 2, on="a"), runs("y", 0, 1, 2, on="b"), runs("z", 0, 1, 2, on="c", loss=9.0)]

    made = plan([gang()], nodes(running, "a", "b", "c"), running=running)

    assert victims(made) == {"x", "y"}
    assert made.reservations == {"g": ("a", "b")}
    assert made.pending_reasons["g"].endswith("; a, b are being cleared for it")
    assert {each.reason for each in made.preemptions} == {"its devices go to g, whose priority is 5, not 1"}


def test_nothing_is_preempted_where_a_part_could_start() -> None:
    running = [runs("x", 0, 1, on="a", loss=3.0), runs("y", 0, 1, on="b", loss=2.0), runs("z", 2, on="c")]

    made = plan([gang()], nodes(running, "a", "b", "c"), running=running)

    assert victims(made) == {"y"}
    assert made.reservations == {"g": ("b", "c")}


def test_nothing_is_preempted_when_the_gang_would_still_not_fit() -> None:
    fixed = runs("fixed", 0, 1, on="b", may_be_preempted=False)

    for running in (
        [runs("x", 0, 1, 2, on="a"), fixed],
        [runs("x", 0, 1, 2, on="a"), replace(fixed, may_be_preempted=True, priority=5)],
        [runs("x", 0, 1, 2, on="a"), replace(fixed, may_be_preempted=True, project="b")],
    ):
        assert victims(plan([gang()], nodes(running, "a", "b"), running=running)) == set()
    other = [runs("x", 0, 1, 2, on="a"), runs("y", 0, 1, 2, on="b")]
    unlike = nodes(other, "a", "b", kinds=("h100", "a100"))
    wanted = gang(request=replace(PAIR, device_kind="cuda"))
    gpus = [replace(each, kind="cuda") for each in other]
    assert victims(plan([wanted], unlike, running=gpus)) == set(), "of different types"


def test_a_gang_that_goes_from_one_of_its_nodes_goes_from_the_other() -> None:
    both = {"loss": 4.0, "elsewhere": 2.0}
    running = [
        *(runs("other", 0, 1, on=name, **both) for name in "ab"),
        runs("x", 0, 1, on="c", loss=3.0),
        runs("y", 0, 1, on="d", loss=3.0),
    ]

    made = plan([gang()], nodes(running, "a", "b", "c", "d"), running=running)

    assert victims(made) == {"other"}, "4 are lost, not 3 and 3"
    assert len(made.preemptions) == 1


def test_jobs_that_are_already_stopping_are_not_preempted_again() -> None:
    running = [runs("x", 0, 1, 2, on="a", is_stopping=True), runs("y", 0, 1, 2, on="b", is_stopping=True)]

    made = plan([gang()], nodes(running, "a", "b"), running=running)

    assert made.preemptions == ()
    assert made.pending_reasons["g"].endswith("; a, b are being cleared for it")


def test_a_project_takes_back_what_it_deserves_for_a_gang_and_no_more() -> None:
    running = [runs(f"b{n}", n % SLOTS, on="ab"[n // SLOTS], project="b", priority=9) for n in range(6)]

    for deserved, gone in ((4, 4), (3, 0)):
        quotas = {"a": DeviceQuota(deserved=deserved), "b": DeviceQuota(deserved=2)}
        made = plan([gang()], nodes(running, "a", "b"), accounts({"a": 0, "b": 6}, **quotas), running=running)
        assert len(victims(made)) == gone
    lent_too_little = accounts({"a": 0, "b": 6}, a=DeviceQuota(deserved=4), b=DeviceQuota(deserved=3))
    assert victims(plan([gang()], nodes(running, "a", "b"), lent_too_little, running=running)) == set()


def test_a_project_at_its_limit_makes_room_for_its_gang_wherever_its_jobs_run() -> None:
    running = [runs("x", 0, 1, on="a", loss=5.0), runs("y", 0, 1, on="b"), runs("w", 0, on="c", project="b")]
    at_limit = accounts({"a": 4, "b": 1}, a=DeviceQuota(limit=6))

    made = plan([gang()], nodes(running, "a", "b", "c", "d"), at_limit, running=running)

    assert victims(made) == {"y"}, "it owes two, and there is room on c and d"
    assert len(made.reservations["g"]) == 2
    assert "uses 4 of at most 6 CPU slots" in made.pending_reasons["g"]


def test_what_is_cleared_for_a_gang_is_its_until_it_starts() -> None:
    running = [runs("x", 0, 1, 2, on="a"), runs("y", 0, 1, 2, on="b")]
    quotas = accounts({"a": 6}, a=DeviceQuota(limit=6))
    asked = plan([gang()], nodes(running, "a", "b"), quotas, running=running)
    assert victims(asked) == {"x", "y"}
    waiting = gang(awaits=asked.reservations["g"])
    small = QueuedJob(job_id="small", project="b", priority=9, since=-1.0, request=Request(device_count=2))

    for left in ([replace(each, is_stopping=True) for each in running], [replace(running[1], is_stopping=True)]):
        used = accounts({"a": 3 * len(left), "b": 0}, a=DeviceQuota(limit=6))
        made = passed(waiting, small, left, used)
        assert (made.placements, made.preemptions) == ((), ())
        assert made.pending_reasons["g"].endswith("; a, b are being cleared for it")
        assert "g" not in made.reservations, "as before"
    made = passed(waiting, small, [], accounts({"a": 0, "b": 0}, a=DeviceQuota(limit=6)))
    assert [placement.job_id for placement in made.placements] == ["g"]


def passed(waiting: QueuedJob, small: QueuedJob, running: list[Running], used: Accounts) -> Plan:
    planning = Planning(nodes(running, "a", "b"), used, running, SchedulingPolicy())
    assert planning.serve_reserved_jobs([waiting]) == []
    planning.go_on([small])
    return planning.result()


def test_a_gang_that_lost_a_cleared_node_waits_like_all_others() -> None:
    running = [runs("x", 0, 1, 2, on="a", is_stopping=True)]
    planning = Planning(nodes(running, "a"), Accounts(), running, SchedulingPolicy())

    waiting = gang(awaits=("a", "b"))
    assert planning.serve_reserved_jobs([waiting]) == [waiting]
    assert planning.result().reservations == {"g": ()}


NAMES = "mnop"
held = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 9),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 2.5, 7.0]),
    st.sampled_from([None, None, *NAMES]),
)


def filled(rows: Sequence[tuple[str, int, bool, bool, float, str | None]]) -> list[Running]:
    """One job for each device, and of some a second part where that node's device of the same number is left."""
    made: list[Running] = []
    places = [(name, index) for name in NAMES for index in range(SLOTS)]
    taken: set[tuple[str, int]] = set()
    for (name, index), (project, priority, may, going, loss, second) in zip(places, rows, strict=False):
        if (name, index) in taken:
            continue
        parts = {(name, index)} | ({(second, index)} if second and (second, index) not in taken else set())
        taken |= parts
        more = {"project": project, "priority": priority, "may_be_preempted": may, "is_stopping": going, "loss": loss}
        made += [runs(f"r{name}{index}", index, on=on, elsewhere=len(parts) - 1.0, **more) for on, _ in sorted(parts)]
    return made


def fits_without(gone: set[str], running: Sequence[Running], request: Request, names: Sequence[str] = NAMES) -> bool:
    left = [each for each in running if each.job_id not in gone]
    found = [each for node in nodes(left, *names) for each in candidates(request, node, DEFAULT_WEIGHTS)]
    return choose(request, found, DEFAULT_WEIGHTS) is not None


@pytest.mark.long
@settings(max_examples=300)
@given(
    st.lists(held, min_size=6, max_size=12).map(filled),
    st.integers(2, 3),
    st.integers(1, 3),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_no_preemption_for_a_gang_is_needless_or_not_allowed_or_forgotten(
    running: list[Running], count: int, devices: int, priority: int, deserves_a: int, deserves_b: int
) -> None:
    request = Request(node_count=count, device_count=devices)
    used = {name: float(sum(each.project == name for each in running)) for name in "ab"}
    quotas = {"a": DeviceQuota(deserved=deserves_a), "b": DeviceQuota(deserved=deserves_b)}
    waiting = gang(request=request, priority=priority, is_preemptible=True)

    made = plan([waiting], nodes(running, *NAMES), accounts(used, **quotas), running=running)

    by_id = {each.job_id: each for each in running}
    going = {each.job_id for each in running if each.is_stopping}
    asked, lent = victims(made), used["b"] - deserves_b - sum(e.project == "b" for e in running if e.is_stopping)
    may_take_back = used["a"] + request.amount <= deserves_a and lent > 0
    allowed = {
        each.job_id
        for each in running
        if each.may_be_preempted
        and not each.is_stopping
        and (each.priority < priority if each.project == "a" else may_take_back)
    }
    assert len(made.preemptions) == len(asked)
    assert asked <= allowed
    if asked:
        assert fits_without(going | asked, running, request, made.reservations["g"]), "it would still not fit"
        for each in asked:
            assert not fits_without(going | (asked - {each}), running, request, made.reservations["g"]), "needless"
        for each in asked:
            assert not fits_without(going | (asked - {each}), running, request) or len(asked) > 1
        taken = [by_id[each].released_devices for each in asked if by_id[each].project == "b"]
        assert sum(taken) - max(taken, default=0.0) < lent or not taken, "more than was lent"
    elif not made.placements and not fits_without(going, running, request):
        own = {name for name in allowed if by_id[name].project == "a"}
        assert not fits_without(going | own, running, request), "there was a way"


def test_among_few_nodes_the_preemption_that_loses_least_is_found() -> None:
    """Every pair of six nodes with one job each, against the plan."""
    losses = dict(zip("abcdef", (5.0, 2.0, 8.0, 1.0, 9.0, 4.0), strict=True))
    running = [runs(f"on {name}", 0, 1, 2, on=name, loss=loss) for name, loss in losses.items()]

    made = plan([gang()], nodes(running, *losses), running=running)

    least = min(combinations(losses, 2), key=lambda pair: sum(losses[name] for name in pair))
    assert victims(made) == {f"on {name}" for name in least}
