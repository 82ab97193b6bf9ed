"""Why a job with roles does not start now, in words for users. Pure."""

from collections.abc import Collection, Sequence

from app.domain.scheduling.filters import NAMED, could_fit, describe
from app.domain.scheduling.filters import excluded as not_there
from app.domain.scheduling.resources import NodeCapacity, Request, RoleRequest
from app.domain.scheduling.roles.packing import emptied, pack


def asked_for(request: Request) -> str:
    """In words: ``trainer 1 × 4 GPUs and rollout 2 × 1 GPU, all at once``."""
    *first, last = (f"{role.role} {role.count} × {describe(role.each)}" for role in request.roles)
    return f"{', '.join(first)} and {last}, all at once" if first else last


def explain(request: Request, nodes: Sequence[NodeCapacity], avoided: Collection[str] = ()) -> str:
    """Why its instances do not start now: which role no node could hold, or what is free."""
    given = [node for node in nodes if node.name not in avoided]
    return f"needs {asked_for(request)}; {_why(request, given)}{not_there(avoided)}"


def lacking(request: Request, nodes: Sequence[NodeCapacity]) -> tuple[int, str] | None:
    """(number of the role, why) of the first role of which no node could hold an instance, even empty."""
    for number, role in enumerate(request.roles):
        reasons = [f"{node.name} {reason}" for node in nodes if (reason := could_fit(role.each, node))]
        if len(reasons) == len(nodes):
            return number, "; ".join(reasons[:NAMED])
    return None


def _why(request: Request, nodes: Sequence[NodeCapacity]) -> str:
    if not nodes:
        return "no node is ready"
    if (lacks := lacking(request, nodes)) is not None:
        return f"no ready node could hold an instance of {request.roles[lacks[0]].role}: {lacks[1]}"
    if pack(request, [emptied(node) for node in nodes]) is None:
        return "the ready nodes together are too small for that, even when nothing runs on them"
    return f"free: {'; '.join(_free(role, nodes) for role in request.roles)}"


def _free(role: RoleRequest, nodes: Sequence[NodeCapacity]) -> str:
    """How many instances of this role alone could start now."""
    least, most = 0, role.count
    while least < most:
        middle = (least + most + 1) // 2
        some = Request(roles=(RoleRequest(role=role.role, count=middle, each=role.each),))
        least, most = (middle, most) if pack(some, nodes) is not None else (least, middle - 1)
    return f"devices for {least} of {role.count} {role.role}"
