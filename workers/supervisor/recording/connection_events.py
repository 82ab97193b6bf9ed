"""Connections of a job through its gate, as lines of its history."""

from collections.abc import Mapping
from typing import Any

from app.domain.lifecycle.events import EventType
from config.redaction import Redaction
from trainyard.protocol.messages import MAX_MESSAGE
from workers.supervisor.recording.report_writer import Note


def connection_event(note: Mapping[str, Any], redaction: Redaction) -> Note:
    """From a note of the gate's process. Its texts come from the job: names of hosts may hold secrets."""
    service = f"{note['host']}:{note['port']}" if note["port"] else str(note["host"] or "no host")
    count, sent, received = note["connections"], note["sent_bytes"], note["received_bytes"]
    connections = "1 connection" if count == 1 else f"{count} connections"
    if note["refused"]:
        message = f"{connections} to {service} refused: {note['refused']}"
    else:
        message = f"{connections} to {service}, {sent} bytes sent, {received} bytes received"
    texts = {name: redaction.bounded(str(note[name]), MAX_MESSAGE) for name in ("host", "refused")}
    return Note(
        kind=EventType.CONNECTION, message=redaction.bounded(message, MAX_MESSAGE), data={**dict(note), **texts}
    )
