"""The event that tells which image an attempt runs in: a tag may name another one tomorrow."""

from app.domain.lifecycle.events import EventType
from workers.images.image_store import StoredImage
from workers.supervisor.recording.report_writer import Note


def image_note(reference: str, image: StoredImage) -> Note:
    took = f"fetched in {image.seconds:g} s" if image.seconds else "which this node had"
    return Note(
        kind=EventType.IMAGE,
        message=f"{reference} is the image sha256:{image.digest}, {took}",
        data={"reference": reference, "digest": f"sha256:{image.digest}", "seconds": image.seconds},
    )
