"""What a job's project demands of its node: capabilities, and that no other project has a part of its device. Pure."""

from dataclasses import replace
from typing import NamedTuple

from app.domain.scheduling.resources import Request


class ProjectDemand(NamedTuple):
    """Capabilities that a project demands of the nodes of its jobs."""

    project: str
    words: frozenset[str]


NO_DEMAND = ProjectDemand("", frozenset())


def demanding(request: Request, demand: ProjectDemand) -> Request:
    """The request of a job whose project demands these capabilities of its nodes."""
    words = demand.words
    if words <= request.required_capabilities and all(
        words <= role.each.required_capabilities for role in request.roles
    ):
        return request
    return replace(
        request,
        required_capabilities=request.required_capabilities | words,
        demanded=words - request.required_capabilities,
        roles=tuple(replace(role, each=demanding(role.each, demand)) for role in request.roles),
    )


def sharing(request: Request, project: str) -> Request:
    """The request of a job of this project, which shares a device with others of it alone."""
    return replace(request, tenant=project) if request.takes_part else request
