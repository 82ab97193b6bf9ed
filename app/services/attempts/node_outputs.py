"""Outputs of an attempt's nodes other than the first one's: how much they have, and which of them are stored.

Each part says in the attempt's row what it is about to store, so that the limits hold for all outputs together and the
loss of a node meanwhile is noticed, and, in the transaction that ends the part, that all of it is stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import NewArtifact
from app.models import Attempt
from app.services.attempts import artifact_rows, rendezvous
from app.services.attempts.work_orders import WorkOrder
from app.services.lifecycle import transitions
from app.storage.object_keys import node_output

OUTPUTS = "outputs"  # a key of Attempt.rendezvous, with one entry for a part
_NOT_KEPT = "OUTPUT_NOT_KEPT"


@dataclass(frozen=True, kw_only=True)
class OutputSize:
    files: int
    size_bytes: int


def announce(db: Database, work: WorkOrder, size: OutputSize) -> OutputSize:
    """Write what this part is about to store; returns the sum over all parts that have written it. Idempotent.

    Raises LeaseLost when the attempt is no longer current.
    """
    written: dict[str, Any] = {}

    def changed(state: dict[str, Any]) -> dict[str, Any]:
        written.update(state.get(OUTPUTS, {}), **{str(work.part): vars(size)})
        return {**state, OUTPUTS: dict(written)}

    rendezvous.change(db, work, changed)
    return OutputSize(
        files=sum(each["files"] for each in written.values()),
        size_bytes=sum(each["size_bytes"] for each in written.values()),
    )


def record_stored(session: Session, work: WorkOrder, artifacts: Sequence[NewArtifact]) -> None:
    """Record, in the transaction that ends this part, that its output is stored. Its job is locked."""
    artifact_rows.hide(session, work.job_id, artifacts)
    attempt = session.get_one(Attempt, (work.job_id, work.attempt))
    part, said = str(work.part), _said(attempt)
    entry = {**_NOTHING, **said.get(part, {}), "stored": True}
    attempt.rendezvous = {**(attempt.rendezvous or {}), OUTPUTS: {**said, part: entry}}


def is_one_lost(attempt: Attempt) -> bool:
    """Whether a part was about to store an output, and ended before it was stored."""
    return any(part != "0" and not each.get("stored") for part, each in _said(attempt).items())


def stored_folders(attempt: Attempt) -> list[str]:
    """The folders, among the job's artifacts, of the outputs that are stored."""
    return [node_output(attempt.number, int(part)) for part, each in _said(attempt).items() if each.get("stored")]


def note_missing(session: Session, attempt: Attempt, *, actor: str) -> None:
    """Write to the history of a job that is COMPLETED which nodes ended before their output was looked at."""
    said = _said(attempt)
    for part, node in enumerate(attempt.node_names):
        if part == 0 or said.get(str(part), {}).get("stored"):
            continue
        transitions.record_event(
            session,
            attempt.job_id,
            EventType.WARNING,
            actor=actor,
            reason=_NOT_KEPT,
            message=f"what the ranks on {node} wrote to TRAINYARD_OUTPUT_DIR was not kept: after rank 0 ended, the "
            "node was lost or its ranks had to be killed; let rank 0 wait for the other ranks before it ends",
            data={"node": node, "attempt": attempt.number},
        )


_NOTHING: Mapping[str, Any] = {"files": 0, "size_bytes": 0}


def _said(attempt: Attempt) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = (attempt.rendezvous or {}).get(OUTPUTS, {})
    return found
