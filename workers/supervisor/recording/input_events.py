"""The event that tells which model and data an attempt has read: their places may hold others tomorrow."""

from collections.abc import Iterator

from app.domain.lifecycle.events import EventType
from app.domain.model_cards.inputs import ReadInputs
from workers.supervisor.recording.report_writer import Note


def inputs_note(inputs: ReadInputs) -> Note:
    return Note(kind=EventType.INPUTS, message="; ".join(_parts(inputs)), data=inputs.to_json())


def _parts(inputs: ReadInputs) -> Iterator[str]:
    if inputs.base is not None:
        commit, sampled = inputs.base.commit, inputs.base.sampled_sha256
        yield f"base model: commit {commit}" if commit else f"base model: SHA-256 of samples {sampled}"
    if inputs.data:
        known = sum(source.sha256 is not None for source in inputs.data)
        yield f"data: digests of {known} of {len(inputs.data)} sources"
