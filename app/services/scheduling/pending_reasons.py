"""Names, in why a job waits, the lost node that could hold it when no ready node could."""

from collections.abc import MutableMapping, Sequence
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.scheduling.filters import NAMED, could_fit
from app.domain.scheduling.queue_order import QueuedJob
from app.domain.scheduling.resources import NodeCapacity, Request
from app.domain.scheduling.roles.packing import can_pack, emptied
from app.models import Node
from app.services.nodes import registry


def complete(
    session: Session, reasons: MutableMapping[str, str], jobs: Sequence[QueuedJob], ready: Sequence[NodeCapacity]
) -> None:
    """Complete the reasons of the jobs that only a lost node could hold."""
    names = session.scalars(select(Node.name).where(Node.state == "lost")).all()
    if not names or not reasons:
        return
    lost = registry.capacities(session, only_ready=False, names=names)
    notes: dict[tuple[Request, bool], str] = {}
    for job in jobs:
        if job.job_id in reasons:
            key = (job.request, job.is_auto)
            if key not in notes:
                notes[key] = note(job.request, ready, lost, is_auto=job.is_auto)
            reasons[job.job_id] += notes[key]


def note(request: Request, ready: Sequence[NodeCapacity], lost: Sequence[NodeCapacity], *, is_auto: bool) -> str:
    """Which lost nodes could hold the job, and what to do about them; empty when enough ready nodes could.

    A job with `auto` that now takes CPU slots could also have been accepted for the GPUs of a lost node.
    """
    if request.roles:
        return _named(_for_roles(request, ready, lost), "")
    if sum(not could_fit(request, node) for node in ready) >= request.node_count:
        return ""
    could, how = [node.name for node in lost if not could_fit(request, node)], ""
    if not could and is_auto and request.device_kind == "cpu":
        on_gpus = replace(request, device_kind="cuda")
        could, how = [node.name for node in lost if not could_fit(on_gpus, node)], " on GPUs"
    return _named(could, how)


def _for_roles(request: Request, ready: Sequence[NodeCapacity], lost: Sequence[NodeCapacity]) -> list[str]:
    """The lost nodes that could hold an instance, where the ready ones could not hold all, and together they could."""
    if can_pack(request, map(emptied, ready)) or not can_pack(request, map(emptied, [*ready, *lost])):
        return []
    return [node.name for node in lost if any(not could_fit(role.each, node) for role in request.roles)]


def _named(could: Sequence[str], how: str) -> str:
    if not could:
        return ""
    more = f" and {len(could) - NAMED} more" if len(could) > NAMED else ""
    named, verb = ", ".join(could[:NAMED]) + more, "are" if len(could) > 1 else "is"
    return (
        f"; {named} could hold it{how} but {verb} lost: start its worker, or remove it with "
        f"`trainyard nodes remove {could[0]}`"
    )
