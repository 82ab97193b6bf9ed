"""Why a job with roles does not start now, in words for users. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from app.domain.scheduling.filters import NAMED, could_fit, describe
from app.domain.scheduling.filters import excluded as not_there
from app.domain.scheduling.gang_placement import may_differ
from app.domain.scheduling.resources import NodeCapacity, Request, RoleRequest
from app.domain.scheduling.roles.neighbours import of_other_images
from app.domain.scheduling.roles.packing import can_pack, emptied
from app.domain.spec.image import NO_IMAGE
from app.domain.spec.roles import SAME_NODE, Affinity


def asked_for(request: Request) -> str:
    """In words: ``trainer 2 × 4 GPUs (all of one type) and rollout 2 × 1 GPU, all at once``."""
    *first, last = map(_asked_for, request.roles)
    return f"{', '.join(first)} and {last}, all at once" if first else last


def _asked_for(role: RoleRequest) -> str:
    of_one_type = " (all of one type)" if role.alike and role.count > 1 and may_differ(role.each) else ""
    return f"{role.role} {role.count} × {describe(role.each)}{of_one_type}"


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
    empty = [emptied(node) for node in nodes]
    if not can_pack(request, empty):
        if can_pack(without_affinity(request), empty):
            return f"the ready nodes could hold that, but not {affinity_of(request)}, even when nothing runs on them"
        return "the ready nodes together are too small for that, even when nothing runs on them"
    where = f"; and {asked}" if (asked := affinity_of(request)) else ""
    return f"free: {'; '.join(_free(role, nodes) for role in request.roles)}{where}"


def with_one_image(request: Request) -> Request:
    return replace(request, roles=tuple(replace(role, image=NO_IMAGE) for role in request.roles))


def without_affinity(request: Request, *, keeps_images: bool = False) -> Request:
    """As if all roles could be on any node: without affinity, and with one image unless they keep theirs."""
    bare = replace(request, roles=tuple(replace(role, affinity=()) for role in request.roles))
    return bare if keeps_images else with_one_image(bare)


def affinity_of(request: Request) -> str:
    """In words, what is required: ``reward on nodes of trainer, each rollout on a node of its own``."""
    words = [_in_words(role.role, each) for role in request.roles for each in role.affinity if each.required]
    words += [
        f"{request.roles[one].role} on other nodes than {request.roles[other].role}, which has another image"
        for one, other in of_other_images(request)
        if one < other
    ]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def _in_words(role: str, affinity: Affinity) -> str:
    if affinity.role == role:
        return f"all {role} on one node" if affinity.where == SAME_NODE else f"each {role} on a node of its own"
    return f"{role} on {'nodes of' if affinity.where == SAME_NODE else 'other nodes than'} {affinity.role}"


def _free(role: RoleRequest, nodes: Sequence[NodeCapacity]) -> str:
    """How many instances of this role alone could start now."""
    least, most = 0, role.count
    while least < most:
        middle = (least + most + 1) // 2
        some = Request(roles=(replace(role, count=middle),))
        least, most = (middle, most) if can_pack(some, nodes) else (least, middle - 1)
    return f"devices for {least} of {role.count} {role.role}"
