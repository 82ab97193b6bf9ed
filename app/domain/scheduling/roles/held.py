"""What a placed job with roles takes of a node, from the instances that its attempt stores. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.scheduling.resources import NOTHING, Quantities, Request


def held_on(node: str, request: Request, instances: Sequence[Mapping[str, Any]] | None) -> Quantities:
    """The amounts of the instances on the node; of a job without roles those that it has on each node."""
    if not request.roles or instances is None:
        return request.quantities
    each = {role.role: role.each.quantities for role in request.roles}
    return sum((each[placed["role"]] for placed in instances if placed["node"] == node), NOTHING)
