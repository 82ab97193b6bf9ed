"""The events that tell what an attempt runs with: its image, and the packages of its own."""

from collections.abc import Iterator

from app.domain.lifecycle.events import EventType
from app.domain.spec.model import JobDocument
from workers.prepare.packages.store import StoredEnvironment
from workers.prepare.prepare import Prepared
from workers.supervisor.recording.image_events import image_note
from workers.supervisor.recording.report_writer import Note

_MOST_NAMED, _LONGEST = 200, 1000


def environment_notes(document: JobDocument, prepared: Prepared) -> Iterator[Note]:
    if prepared.image is not None and prepared.image.stored is not None:
        yield image_note(document, prepared.image.stored)
    if prepared.packages is not None and prepared.packages.stored is not None:
        yield packages_note(prepared.packages.stored)


def packages_note(stored: StoredEnvironment) -> Note:
    took = f"installed in {stored.seconds:g} s" if stored.seconds else "which this node had"
    named = stored.packages[:_MOST_NAMED]
    return Note(
        kind=EventType.PACKAGES,
        message=f"{len(stored.packages)} packages of its own, {took}: {', '.join(named)}"[:_LONGEST],
        data={"packages": list(named), "environment": stored.key, "seconds": stored.seconds},
    )
