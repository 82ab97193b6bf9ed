"""The instances of an attempt of a job with roles: which of its ranks and devices each has."""

from typing import Any

from app.domain.errors import InvalidRequest
from app.domain.scheduling.placement import Placement
from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.model import JobDocument
from app.domain.spec.role_documents import document_of


def ranks_of_role(document: JobDocument, name: str) -> range:
    """The ranks of a role, which follow each other in every attempt. Raises InvalidRequest for an unknown role."""
    first = 0
    for role in document.tasks:
        devices = role.resource_config.gpu_count
        ranks = role.count * processes_per_node(document_of(document, role), devices=devices)
        if role.role == name:
            return range(first, first + ranks)
        first += ranks
    known = ", ".join(role.role for role in document.tasks)
    raise InvalidRequest(
        f"the job has no role {name}; known: {known}" if known else "the job has no roles; omit role", field="role"
    )


def ranks_by_instance(document: JobDocument) -> dict[tuple[str, int], range]:
    """(role, index) → the ranks of each instance, in their order; empty for a job without roles."""
    found = {}
    for role in document.tasks:
        ranks = ranks_of_role(document, role.role)
        each = len(ranks) // role.count
        for index in range(role.count):
            found[role.role, index] = ranks[index * each : (index + 1) * each]
    return found


def of(document: JobDocument, placement: Placement) -> list[dict[str, Any]]:
    """As ``Attempt.instances`` stores them: by role in the order of the document, and by index.

    Ranks are numbered in this order, over all nodes.
    """
    places = {role.role: place for place, role in enumerate(document.tasks)}
    placed = [
        (instance, number, part.node) for number, part in enumerate(placement.parts) for instance in part.instances
    ]
    found: list[dict[str, Any]] = []
    first_rank = 0
    for instance, part, node in sorted(placed, key=lambda each: (places[each[0].role], each[0].index)):
        program = document_of(document, document.tasks[places[instance.role]])
        ranks = processes_per_node(program, devices=len(instance.devices))
        found.append(
            {
                "role": instance.role,
                "index": instance.index,
                "node": node,
                "part": part,
                "devices": [device.index for device in instance.devices],
                "first_rank": first_rank,
                "ranks": ranks,
            }
        )
        first_rank += ranks
    return found
