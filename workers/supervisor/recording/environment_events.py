"""The events that tell what an attempt runs with: its image, and the packages and cores of its own."""

from collections.abc import Iterator

from app.domain.lifecycle.events import EventType
from app.domain.spec.model import JobDocument
from workers.prepare.packages.store import StoredEnvironment
from workers.prepare.prepare import Prepared
from workers.sandbox.cores import ranges
from workers.sandbox.launcher import LaunchPlan
from workers.supervisor.recording.image_events import image_note
from workers.supervisor.recording.report_writer import Note

_MOST_NAMED, _LONGEST = 200, 1000


def environment_notes(document: JobDocument, prepared: Prepared) -> Iterator[Note]:
    if prepared.image is not None and prepared.image.stored is not None:
        yield image_note(document, prepared.image.stored)
    if prepared.packages is not None and prepared.packages.stored is not None:
        yield packages_note(prepared.packages.stored)
    if prepared.plan.cores.wanted:
        yield cores_note(prepared.plan)


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
