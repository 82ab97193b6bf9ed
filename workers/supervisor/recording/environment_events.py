"""The events that tell what an attempt runs with: its inputs, its image, and the packages and cores of its own."""

from collections.abc import Iterator

from app.domain.lifecycle.events import EventType
from app.domain.spec.role_documents import image_of_role
from app.services.attempts.work_orders import WorkOrder
from workers.prepare.packages.store import StoredEnvironment
from workers.prepare.prepare import PreparedAttempt
from workers.sandbox.cores import ranges
from workers.sandbox.launcher import LaunchPlan
from workers.supervisor.recording.image_events import image_note
from workers.supervisor.recording.input_events import inputs_note
from workers.supervisor.recording.report_writer import Note

_MOST_NAMED, _LONGEST = 200, 1000


def environment_notes(work: WorkOrder, prepared: PreparedAttempt) -> Iterator[Note]:
    """Of the first node of an attempt; of another the image, if that is the first with this one."""
    if prepared.image is not None and prepared.image.stored is not None and _is_first_with_image(work):
        yield image_note(work.document_here.resource_config.image.reference, prepared.image.stored)
    if work.part != 0:
        return
    if prepared.inputs is not None and prepared.inputs.is_known:
        yield inputs_note(prepared.inputs)
    if prepared.packages is not None and prepared.packages.stored is not None:
        yield packages_note(prepared.packages.stored)
    if prepared.plan.cores.wanted:
        yield cores_note(prepared.plan)


def _is_first_with_image(work: WorkOrder) -> bool:
    if not work.document.tasks:
        return work.part == 0
    mine = work.document_here.resource_config.image
    having = {role.role for role in work.document.tasks if image_of_role(work.document, role) == mine}
    return work.part == min(each.part for each in work.all_instances if each.role in having)


def cores_note(plan: LaunchPlan) -> Note:
    own = plan.cores
    is_held = bool(own.numbers) and plan.groups.cores is not None
    shares = f"no cores of its own: {own.wanted} of {own.of} were not free, so that it shares them with other jobs"
    held = "held there by a control group" if is_held else "without a control group that holds it there"
    return Note(
        kind=EventType.CORES,
        message=f"cores of its own: {ranges(own.numbers)}, {held}" if own.numbers else shares,
        data={"cores": list(own.numbers), "wanted": own.wanted, "held": is_held},
    )


def packages_note(stored: StoredEnvironment) -> Note:
    took = f"installed in {stored.seconds:g} s" if stored.seconds else "which this node had"
    named = stored.packages[:_MOST_NAMED]
    return Note(
        kind=EventType.PACKAGES,
        message=f"{len(stored.packages)} packages of its own, {took}: {', '.join(named)}"[:_LONGEST],
        data={"packages": list(named), "environment": stored.key, "seconds": stored.seconds},
    )
