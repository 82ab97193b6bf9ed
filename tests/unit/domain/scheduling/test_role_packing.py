"""Roles of a job: their instances are packed onto few nodes, all of them or none, and the same for the same input."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.scheduling.gang_placement import GangPart
from app.domain.scheduling.resources import NOTHING, Device, GpuType, NodeCapacity, Quantities, Request, RoleRequest
from app.domain.scheduling.roles.packing import emptied, excluded, pack
from app.domain.scheduling.roles.reasons import asked_for, explain


def _types(*names: str) -> tuple[GpuType, ...]:
    return tuple(map(GpuType, names))


def node(name: str, *kinds: str, free: Sequence[int] | None = None, cores: int = 64, **more: Any) -> NodeCapacity:
    devices = tuple(Device(index=index, type=kind, memory_mb=80_000) for index, kind in enumerate(kinds))
    open_ones = frozenset(range(len(kinds)) if free is None else free)
    return NodeCapacity(
        name=name, devices=devices, free=open_ones, cpu_cores=cores, ram_mb=10**6, storage_mb=10**6, **more
    )


def role(name: str, count: int, devices: int, kind: str = "cuda", **more: Any) -> RoleRequest:
    return RoleRequest(role=name, count=count, each=Request(device_count=devices, device_kind=kind, **more))


def request(*roles: RoleRequest) -> Request:
    return Request(roles=roles, device_kind="cuda")


def placed(parts: Sequence[GangPart] | None) -> dict[str, list[tuple[str, int, list[int]]]] | None:
    if parts is None:
        return None
    return {
        part.node: [(each.role, each.index, [device.index for device in each.devices]) for each in part.instances]
        for part in parts
    }


def test_a_job_that_fits_on_one_node_is_placed_on_one_node() -> None:
    asked = request(role("trainer", 1, 4), role("rollout", 2, 2))
    nodes = [node("a", *["h100"] * 4), node("b", *["h100"] * 8), node("c", *["h100"] * 8)]
    assert placed(pack(asked, nodes)) == {
        "b": [("trainer", 0, [0, 1, 2, 3]), ("rollout", 0, [4, 5]), ("rollout", 1, [6, 7])]
    }


def test_the_first_instance_of_the_first_role_is_on_the_first_part() -> None:
    asked = request(role("reward", 1, 1, "cpu"), role("trainer", 1, 2))
    found = pack(asked, [node("a", "h100", "h100"), node("z", "cpu", "cpu")])
    assert placed(found) == {"z": [("reward", 0, [0])], "a": [("trainer", 0, [0, 1])]}
    assert list(placed(found) or ()) == ["z", "a"]


def test_devices_of_an_instance_are_of_one_type() -> None:
    mixed = node("a", "a100", "h100", "a100", "h100")
    assert pack(request(role("trainer", 1, 3)), [mixed]) is None
    assert placed(pack(request(role("trainer", 2, 2)), [mixed])) == {
        "a": [("trainer", 0, [0, 2]), ("trainer", 1, [1, 3])]
    }


def test_instances_of_a_training_have_gpus_of_one_type() -> None:
    """Its ranks compute the same, and wait for each other in every step."""
    nodes = [node("a", "a100", "h100"), node("b", "h100", "cpu")]
    trainer, rollout = role("trainer", 2, 1), role("rollout", 1, 1)
    alike = replace(trainer, alike=True)

    assert placed(pack(request(alike, rollout), nodes)) == {
        "a": [("trainer", 0, [1]), ("rollout", 0, [0])],
        "b": [("trainer", 1, [0])],
    }
    assert pack(request(replace(alike, count=3)), nodes) is None
    assert pack(request(replace(trainer, count=3)), nodes) is not None
    named = replace(alike, each=replace(alike.each, gpu_types=_types("a100", "h100")))
    assert list(placed(pack(request(named), nodes)) or ()) == ["a", "b"]
    large = replace(alike, each=replace(alike.each, gpu_types=(GpuType("", 90_000),)))
    assert pack(request(large), nodes) is None
    assert placed(pack(request(replace(role("trainer", 1, 1, "cpu"), alike=True)), nodes)) == {
        "b": [("trainer", 0, [1])]
    }


def test_a_training_gets_gpus_of_the_type_that_is_best_for_it() -> None:
    alike = replace(role("trainer", 2, 1), alike=True)
    apart, together = [node("a", "a100"), node("b", "a100")], node("c", "h100", "h100")

    assert list(placed(pack(request(alike), [*apart, together])) or ()) == ["c"], "on the fewest nodes"
    near = [replace(each, labels=frozenset({"near"})) for each in apart]
    preferring = replace(request(alike), preferred_labels=frozenset({"near"}))
    assert list(placed(pack(preferring, [*near, together])) or ()) == ["a", "b"], "on those that it prefers"
    others = node("d", "a100", "a100")
    assert list(placed(pack(request(alike), [together, others])) or ()) == ["d"], "equal ones by the name of the type"
    assert list(placed(pack(request(alike), [together, replace(others, reputation=0.5)])) or ()) == ["c"]


def test_an_instance_that_takes_any_device_leaves_the_rare_ones_to_others() -> None:
    asked = request(role("any", 1, 1), role("only", 1, 1, gpu_types=_types("a100")))
    found = placed(pack(asked, [node("a", "a100", "h100")]))
    assert found == {"a": [("any", 0, [1]), ("only", 0, [0])]}


def test_amounts_are_summed_by_node() -> None:
    asked = request(role("trainer", 3, 1, cpu_cores=20))
    found = pack(asked, [node("a", *["h100"] * 8, cores=50), node("b", *["h100"] * 8, cores=50)])
    assert found is not None
    assert [part.quantities(asked).cpu_cores for part in found] == [40, 20]


def test_a_node_that_runs_all_jobs_it_may_takes_no_instance() -> None:
    full = node("a", "h100", "h100", active_jobs=1, max_jobs=1)
    assert pack(request(role("trainer", 1, 1)), [full]) is None
    both = pack(request(role("trainer", 2, 1)), [node("b", "h100", "h100", active_jobs=0, max_jobs=1)])
    assert both is not None, "instances of a job count as one job of the node"


def test_labels_count_for_each_role() -> None:
    asked = request(role("trainer", 1, 1, required_labels=frozenset({"fast"})), role("rollout", 1, 1))
    nodes = [node("a", "h100"), node("b", "h100", labels=frozenset({"fast"}))]
    assert placed(pack(asked, nodes)) == {"b": [("trainer", 0, [0])], "a": [("rollout", 0, [0])]}


def test_a_node_that_was_full_for_the_job_comes_last() -> None:
    asked = request(role("trainer", 1, 1))
    nodes = [node("a", "h100"), node("b", "h100")]
    assert list(placed(pack(asked, nodes, last=("a",))) or ()) == ["b"]
    assert list(placed(pack(asked, nodes[:1], last=("a",))) or ()) == ["a"]


def test_nodes_where_it_failed_are_avoided_while_the_others_could_hold_it() -> None:
    asked, nodes = request(role("trainer", 2, 1)), [node("a", "h100"), node("b", "h100", "h100")]
    assert excluded(asked, frozenset({"a"}), nodes) == {"a"}
    assert excluded(asked, frozenset({"b"}), nodes) == frozenset()


def test_a_preferred_node_is_taken_where_nodes_are_equal_otherwise() -> None:
    asked = Request(roles=(role("trainer", 1, 1),), device_kind="cuda", preferred_labels=frozenset({"near"}))
    nodes = [node("a", "h100"), node("b", "h100", labels=frozenset({"near"}))]
    assert list(placed(pack(asked, nodes)) or ()) == ["b"]


def test_a_reason_says_what_is_asked_for_and_what_is_missing() -> None:
    asked = request(role("trainer", 1, 4), role("rollout", 2, 1))
    assert asked_for(asked) == "trainer 1 × 4 GPUs and rollout 2 × 1 GPU, all at once"
    alike = replace(role("trainer", 2, 4), alike=True)
    of_one_type = "trainer 2 × 4 GPUs (all of one type) and rollout 2 × 1 GPU, all at once"
    assert asked_for(request(alike, role("rollout", 2, 1))) == of_one_type
    settled = replace(role("trainer", 2, 4, gpu_types=_types("h100")), alike=True)
    assert asked_for(request(settled)) == "trainer 2 × 4 h100"
    assert asked_for(request(replace(role("trainer", 2, 1, "cpu"), alike=True))) == "trainer 2 × 1 CPU slot"
    assert explain(asked, []).endswith("; no node is ready")
    small = explain(asked, [node("a", "h100")])
    assert small.endswith("no ready node could hold an instance of trainer: a has 1 of 4 such devices")
    two = [node("a", *["h100"] * 4), node("b", "h100")]
    assert "too small for that" in explain(asked, two)
    busy = explain(asked, [node("a", *["h100"] * 8, free=[0, 1])])
    assert busy.endswith("free: devices for 0 of 1 trainer; devices for 2 of 2 rollout")


_roles = st.lists(
    st.builds(
        lambda count, devices, kind, cores, types: (count, devices, kind, cores, types),
        st.integers(1, 3),
        st.integers(1, 3),
        st.sampled_from(["cuda", "cuda", "cpu"]),
        st.sampled_from([0, 0, 8, 24]),
        st.sampled_from([(), (), ("a100",)]),
    ),
    min_size=1,
    max_size=3,
).map(
    lambda given: request(
        *(
            role(f"r{i}", count, devices, kind, cpu_cores=cores, gpu_types=_types(*types) if kind == "cuda" else ())
            for i, (count, devices, kind, cores, types) in enumerate(given)
        )
    )
)
_nodes = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["h100", "h100", "a100", "cpu"]), min_size=1, max_size=5),
        st.sets(st.integers(0, 4)),
        st.sampled_from([0, 16, 64]),
        st.sampled_from([None, 0, 1]),
    ),
    max_size=4,
).map(
    lambda given: [
        node(f"n{i}", *sorted(kinds), free=[index for index in free if index < len(kinds)], cores=cores, max_jobs=most)
        for i, (kinds, free, cores, most) in enumerate(given)
    ]
)


@given(asked=_roles, nodes=_nodes)
@settings(max_examples=400, deadline=None)
def test_no_packing_takes_more_than_is_free_or_only_some_instances(asked: Request, nodes: list[NodeCapacity]) -> None:
    found = pack(asked, nodes)
    assert placed(pack(asked, list(reversed(nodes)))) == placed(found), "the order of nodes does not matter"
    if found is None:
        return
    by_name = {each.name: each for each in nodes}
    assert len({part.node for part in found}) == len(found)
    assert any(each.role == asked.roles[0].role and each.index == 0 for each in found[0].instances)
    seen = sorted((each.role, each.index) for part in found for each in part.instances)
    assert seen == sorted((role.role, index) for role in asked.roles for index in range(role.count))
    for part in found:
        _check_part(asked, part, by_name[part.node])


def _check_part(asked: Request, part: GangPart, on: NodeCapacity) -> None:
    indices = [device.index for each in part.instances for device in each.devices]
    assert sorted(indices) == [device.index for device in part.devices]
    assert len(set(indices)) == len(indices)
    assert set(indices) <= on.free
    assert on.max_jobs is None or on.active_jobs < on.max_jobs
    capacity = Quantities(cpu_cores=on.cpu_cores, ram_mb=on.ram_mb, storage_mb=on.storage_mb)
    assert (on.held + part.quantities(asked)).beyond(capacity) == NOTHING
    each_of = {role.role: role.each for role in asked.roles}
    for each in part.instances:
        wanted = each_of[each.role]
        assert len(each.devices) == wanted.device_count
        assert len({device.type for device in each.devices}) == 1
        assert all(device.is_cpu == (wanted.device_kind == "cpu") for device in each.devices)
        assert not wanted.gpu_types or each.devices[0].type in wanted.gpu_type_names


@given(asked=_roles, nodes=_nodes)
@settings(max_examples=150, deadline=None)
def test_a_small_job_is_packed_whenever_there_is_a_way(asked: Request, nodes: list[NodeCapacity]) -> None:
    if sum(role.count for role in asked.roles) <= 5 and len(nodes) <= 3 and pack(asked, nodes) is None:
        assert not _any_way(asked, nodes)


def _any_way(asked: Request, nodes: Sequence[NodeCapacity]) -> bool:
    """By trying every type of device on every node for every instance."""
    wanted = [role.each for role in asked.roles for _ in range(role.count)]
    places = [(each.name, kind) for each in nodes for kind in ("h100", "a100", "cpu")]
    by_name = {each.name: each for each in nodes}
    return any(_holds(wanted, way, by_name) for way in product(places, repeat=len(wanted)))


def _holds(wanted: Sequence[Request], way: Sequence[tuple[str, str]], nodes: dict[str, NodeCapacity]) -> bool:
    needed: dict[tuple[str, str], int] = {}
    cores: dict[str, int] = {}
    for each, (name, kind) in zip(wanted, way, strict=True):
        on = nodes[name]
        if on.max_jobs is not None and on.active_jobs >= on.max_jobs:
            return False
        if (kind == "cpu") != (each.device_kind == "cpu") or (each.gpu_types and kind not in each.gpu_type_names):
            return False
        needed[name, kind] = needed.get((name, kind), 0) + each.device_count
        cores[name] = cores.get(name, 0) + each.cpu_cores
    free = {
        (name, kind): sum(device.type == kind and device.index in on.free for device in on.devices)
        for name, on in nodes.items()
        for kind in ("h100", "a100", "cpu")
    }
    return all(count <= free[key] for key, count in needed.items()) and all(
        count <= nodes[name].cpu_cores for name, count in cores.items()
    )


def test_an_emptied_node_keeps_what_is_out_of_service() -> None:
    broken = node("a", "h100", "h100", free=[], out_of_service=frozenset({1}), active_jobs=3)
    assert emptied(broken).free == {0}
    assert emptied(broken).active_jobs == 0
