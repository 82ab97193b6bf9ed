"""Addresses and ports of the instances of roles: chosen by the node that runs them, and known to all ranks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from app.services.attempts.role_rendezvous import InstancePlace
from app.services.attempts.work_orders import WorkOrder
from trainyard.protocol.role_instance import RoleInstance
from workers.prepare.prepare import PreparedAttempt
from workers.run_dir.layout import write_atomically


def places_of(work: WorkOrder, address: str, free_port: Callable[[str], int]) -> list[InstancePlace]:
    """Places for the instances of this node, with two ports each that no other of them has. Raises AttemptFailed."""
    taken: set[int] = set()

    def port() -> int:
        while (found := free_port(address)) in taken:
            continue
        taken.add(found)
        return found

    return [
        InstancePlace(role=each.role, index=each.index, address=address, port=port(), rank_port=port())
        for each in work.instances
    ]


def with_places(prepared: PreparedAttempt, places: Sequence[InstancePlace]) -> PreparedAttempt:
    """What was prepared, where every instance knows the places of all; writes spec.json again."""
    plan, known = prepared.plan, {(each.role, each.index): each for each in places}

    def placed(instance: RoleInstance) -> RoleInstance:
        leader = known[instance.leader or instance.role, instance.leader_index]
        return replace(instance, address=leader.address, port=leader.rank_port)

    spec = replace(plan.spec, instances=tuple(map(placed, plan.spec.instances)), tasks=tasks_of(places))
    plan = replace(plan, spec=spec)
    write_atomically(plan.spec_path, spec.to_document())
    return replace(prepared, plan=plan)


def tasks_of(places: Sequence[InstancePlace]) -> dict[str, list[dict[str, Any]]]:
    """As TRAINYARD_TASKS says it: of every role the places of its instances, by index."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in sorted(places, key=lambda each: (each.role, each.index)):
        found.setdefault(each.role, []).append({"index": each.index, "address": each.address, "port": each.port})
    return found
