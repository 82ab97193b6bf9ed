"""Affinity of roles: which instances share a node, with every packing checked against all ways of trying."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.errors import CannotFit
from app.domain.scheduling.feasibility import refuse_unfitting
from app.domain.scheduling.gang_placement import GangPart
from app.domain.scheduling.resources import Device, NodeCapacity, Request, RoleRequest
from app.domain.scheduling.roles.packing import can_pack, pack
from app.domain.scheduling.roles.reasons import explain
from app.domain.spec.image import Image
from app.domain.spec.roles import OTHER_NODES, SAME_NODE, Affinity


def node(name: str, count: int, free: int | None = None) -> NodeCapacity:
    devices = tuple(Device(index=index, type="h100", memory_mb=80_000) for index in range(count))
    open_ones = frozenset(range(count if free is None else free))
    return NodeCapacity(name=name, devices=devices, free=open_ones, cpu_cores=64, ram_mb=10**6, storage_mb=10**6)


def role(name: str, count: int, devices: int, *affinity: Affinity) -> RoleRequest:
    each = Request(device_count=devices, device_kind="cuda")
    return RoleRequest(role=name, count=count, each=each, affinity=affinity)


def request(*roles: RoleRequest) -> Request:
    return Request(roles=roles, device_kind="cuda")


def beside(name: str, *, required: bool = True) -> Affinity:
    return Affinity(role=name, where=SAME_NODE, required=required)


def apart(name: str, *, required: bool = True) -> Affinity:
    return Affinity(role=name, where=OTHER_NODES, required=required)


def counts(parts: Sequence[GangPart] | None) -> dict[str, dict[str, int]] | None:
    """How many instances of each role are on each node."""
    if parts is None:
        return None
    return {part.node: dict(Counter(each.role for each in part.instances)) for part in parts}


def test_each_instance_is_on_a_node_that_has_one_of_the_other_role() -> None:
    asked = request(role("trainer", 2, 4), role("reward", 2, 1, beside("trainer")))
    nodes = [node("a", 4), node("b", 6), node("c", 6)]
    assert counts(pack(asked, nodes)) == {"b": {"trainer": 1, "reward": 2}, "a": {"trainer": 1}}
    assert pack(asked, [node("a", 4), node("b", 4), node("c", 8, free=2)]) is None


def test_an_instance_leaves_room_for_the_one_that_must_be_beside_it() -> None:
    asked = request(role("big", 2, 4), role("small", 4, 1, beside("big")))
    assert counts(pack(asked, [node("a", 8), node("b", 8)])) == {"a": {"big": 1, "small": 4}, "b": {"big": 1}}


def test_roles_are_on_other_nodes_than_each_other() -> None:
    asked = request(role("trainer", 1, 2), role("rollout", 2, 1, apart("trainer")))
    assert counts(pack(asked, [node("a", 8), node("b", 8)])) == {"a": {"trainer": 1}, "b": {"rollout": 2}}
    assert pack(asked, [node("a", 8)]) is None


def test_a_role_has_each_instance_on_a_node_of_its_own_or_all_on_one() -> None:
    nodes = [node("a", 8), node("b", 8), node("c", 1)]
    assert counts(pack(request(role("server", 3, 1, apart("server"))), nodes)) == {
        name: {"server": 1} for name in ("a", "b", "c")
    }
    assert pack(request(role("server", 4, 1, apart("server"))), nodes) is None
    assert counts(pack(request(role("server", 4, 2, beside("server"))), nodes)) == {"a": {"server": 4}}
    assert pack(request(role("server", 5, 2, beside("server"))), nodes) is None


def test_a_preference_is_kept_where_it_can_be() -> None:
    roles = role("trainer", 1, 2), role("rollout", 2, 1, apart("trainer", required=False))
    assert counts(pack(request(*roles), [node("a", 8), node("b", 8)])) == {"a": {"trainer": 1}, "b": {"rollout": 2}}
    assert counts(pack(request(*roles), [node("a", 8)])) == {"a": {"trainer": 1, "rollout": 2}}


def test_of_several_preferences_the_first_ones_count_most() -> None:
    one = role("one", 1, 1, apart("trainer", required=False))
    two = role("two", 1, 1, beside("one", required=False), beside("trainer", required=False))
    found = counts(pack(request(role("trainer", 1, 3), one, two), [node("a", 8), node("b", 8)]))
    assert found is not None
    assert sorted(found.values(), key=len) == [{"trainer": 1}, {"one": 1, "two": 1}]


def test_reasons_name_the_affinity() -> None:
    asked = request(role("trainer", 1, 2), role("rollout", 1, 1, apart("trainer")))
    assert explain(asked, [node("a", 8)]).endswith(
        "could hold that, but not rollout on other nodes than trainer, even when nothing runs on them"
    )
    busy = explain(asked, [node("a", 8), node("b", 8, free=0)])
    assert busy.endswith(
        "free: devices for 1 of 1 trainer; devices for 1 of 1 rollout; and rollout on other nodes than trainer"
    )
    with pytest.raises(CannotFit, match="rollout on other nodes than trainer") as refused:
        refuse_unfitting(asked, [node("a", 8)])
    assert refused.value.field == "tasks.1.affinity"
    alone = request(role("trainer", 1, 2), role("rollout", 1, 7, apart("trainer", required=False)))
    with pytest.raises(CannotFit, match="all nodes together could not hold that") as refused:
        refuse_unfitting(alone, [node("a", 8)])
    assert refused.value.field == "tasks"


def test_sixty_four_instances_with_affinity_are_packed_at_once() -> None:
    asked = request(
        role("trainer", 8, 4, apart("trainer")),
        role("rollout", 32, 1, beside("trainer")),
        role("reward", 24, 1, apart("trainer")),
    )
    found = counts(pack(asked, [node(f"n{i:02}", 8) for i in range(16)]))
    assert found is not None
    trainers = [name for name, here in found.items() if "trainer" in here]
    assert len(trainers) == 8
    assert all("reward" not in found[name] and found[name]["rollout"] == 4 for name in trainers)


def test_small_groups_leave_the_nodes_with_more_room_to_large_ones() -> None:
    companion = [(beside(f"r{n + 1}"),) if n % 2 == 0 else () for n in range(16)]
    asked = request(*(role(f"r{n}", 4, 1 + n % 3, *companion[n]) for n in range(16)))
    assert pack(asked, [node(f"n{n:02}", 8, free=n * 3 % 9) for n in range(64)]) is not None


_affinities = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([SAME_NODE, OTHER_NODES])), max_size=3
)
_shapes = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)
_nodes = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=3).map(
    lambda given: [node(f"n{i}", count, min(free, count)) for i, (count, free) in enumerate(given)]
)


def _asked(shapes: list[tuple[int, int]], affinities: list[tuple[int, int, str]], *, required: bool = True) -> Request:
    """Affinities of roles that there are not are left out."""
    return request(
        *(
            role(
                f"r{i}",
                count,
                devices,
                *(
                    Affinity(role=f"r{other}", where=where, required=required)
                    for place, other, where in affinities
                    if place == i and other < len(shapes)
                ),
            )
            for i, (count, devices) in enumerate(shapes)
        )
    )


def _keeps(asked: Request, found: dict[str, dict[str, int]]) -> bool:
    return all(_keeps_one(each, affinity, found) for each in asked.roles for affinity in each.affinity)


def _keeps_one(each: RoleRequest, affinity: Affinity, found: dict[str, dict[str, int]]) -> bool:
    here = [instances for instances in found.values() if each.role in instances]
    if affinity.role == each.role:
        return len(here) == 1 if affinity.where == SAME_NODE else len(here) == each.count
    return all((affinity.role in instances) == (affinity.where == SAME_NODE) for instances in here)


@given(shapes=_shapes, affinities=_affinities, nodes=_nodes)
@settings(max_examples=400, deadline=None)
def test_a_job_with_affinity_is_packed_exactly_when_there_is_a_way(
    shapes: list[tuple[int, int]], affinities: list[tuple[int, int, str]], nodes: list[NodeCapacity]
) -> None:
    asked = _asked(shapes, affinities)
    found = counts(pack(asked, nodes))
    assert counts(pack(asked, list(reversed(nodes)))) == found, "the order of nodes does not matter"
    assert can_pack(asked, nodes) == (found is not None)
    if found is not None:
        _check(asked, found, nodes)
        assert _keeps(asked, found)
    elif sum(count for count, _ in shapes) <= 6:
        assert not any(_keeps(asked, way) for way in _ways(asked, nodes))


@given(shapes=_shapes, affinities=_affinities, nodes=_nodes)
@settings(max_examples=200, deadline=None)
def test_a_preference_never_keeps_a_job_from_starting(
    shapes: list[tuple[int, int]], affinities: list[tuple[int, int, str]], nodes: list[NodeCapacity]
) -> None:
    required, preferred = _asked(shapes, affinities), _asked(shapes, affinities, required=False)
    bare = replace(preferred, roles=tuple(replace(each, affinity=()) for each in preferred.roles))
    found = counts(pack(preferred, nodes))
    assert (found is None) == (pack(bare, nodes) is None)
    if found is not None:
        _check(preferred, found, nodes)
        assert pack(required, nodes) is None or _keeps(required, found)


def _check(asked: Request, found: dict[str, dict[str, int]], nodes: Sequence[NodeCapacity]) -> None:
    """All instances are placed, and no node has more than is free."""
    size = {each.role: each.each.device_count for each in asked.roles}
    free = {each.name: len(each.free) for each in nodes}
    assert sum((Counter(here) for here in found.values()), Counter()) == {each.role: each.count for each in asked.roles}
    assert all(sum(size[name] * count for name, count in here.items()) <= free[at] for at, here in found.items())


def _ways(asked: Request, nodes: Sequence[NodeCapacity]) -> list[dict[str, dict[str, int]]]:
    """Every assignment of instances to nodes that has the devices."""
    wanted = [(each.role, each.each.device_count) for each in asked.roles for _ in range(each.count)]
    found = []
    for places in product(nodes, repeat=len(wanted)):
        taken: Counter[str] = Counter()
        here: dict[str, Counter[str]] = {}
        for (name, devices), on in zip(wanted, places, strict=True):
            taken[on.name] += devices
            here.setdefault(on.name, Counter())[name] += 1
        if all(taken[on.name] <= len(on.free) for on in nodes):
            found.append({at: dict(of_node) for at, of_node in here.items()})
    return found


def in_image(asked: RoleRequest, reference: str) -> RoleRequest:
    return replace(asked, image=Image(reference=reference))


def test_roles_of_other_images_are_on_other_nodes() -> None:
    asked = request(role("trainer", 2, 2), in_image(role("judge", 1, 1), "b"), in_image(role("server", 2, 1), "b"))

    assert counts(pack(asked, [node("a", 8), node("b", 8)])) == {"a": {"trainer": 2}, "b": {"judge": 1, "server": 2}}
    assert pack(asked, [node("a", 8)]) is None
    assert "judge on other nodes than trainer" not in explain(asked, [node("a", 8)])
    assert "trainer on other nodes than judge, which has another image" in explain(asked, [node("a", 8)])
    with pytest.raises(CannotFit, match="or give the roles one image") as refused:
        refuse_unfitting(asked, [node("a", 8)])
    assert refused.value.field == "tasks.1.resource_config.image"


@pytest.mark.parametrize(
    ("affinity", "devices", "sizes", "field", "way_out"),
    [
        (beside("server"), 4, (8, 8, 8), "tasks.0.affinity", "or set required to false"),
        (apart("server"), 1, (8, 8), "tasks.2.resource_config.image", "or give the roles one image"),
        (apart("server"), 1, (8,), "tasks.0.affinity", "or set required to false and give the roles one image"),
    ],
)
def test_refusal_names_what_is_in_the_way_of_images_and_affinity(
    affinity: Affinity, devices: int, sizes: Sequence[int], field: str, way_out: str
) -> None:
    asked = request(role("trainer", 1, 5, affinity), role("server", 1, devices), in_image(role("judge", 1, 1), "b"))

    with pytest.raises(CannotFit) as refused:
        refuse_unfitting(asked, [node(f"n{number}", size) for number, size in enumerate(sizes)])

    assert refused.value.field == field
    assert refused.value.message.endswith(way_out)


def test_refusal_of_many_images_says_that_there_are_more() -> None:
    asked = request(*(in_image(role(f"r{number}", 1, 1), str(number)) for number in range(16)))

    with pytest.raises(CannotFit, match="r0 on other nodes than r3, which has another image and 117 more;"):
        refuse_unfitting(asked, [node("a", 16)])
