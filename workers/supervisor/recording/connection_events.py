"""Connections of a job through its gate, as lines of its history."""

from collections.abc import Mapping
from typing import Any

from app.domain.lifecycle.events import EventType
from workers.supervisor.recording.report_writer import Note

_MOST_CHARACTERS = 300


def connection_event(note: Mapping[str, Any]) -> Note:
    """From a note of the gate's process; its texts come from the job."""
    service = f"{note['host']}:{note['port']}" if note["port"] else str(note["host"] or "no host")
    count, sent, received = note["connections"], note["sent_bytes"], note["received_bytes"]
    if note["refused"]:
        message = f"{count} connections to {service} were refused: {note['refused']}"
    else:
        message = f"{count} connections to {service}, {sent} bytes sent, {received} bytes received"
    return Note(kind=EventType.CONNECTION, message=message[:_MOST_CHARACTERS], data=dict(note))
