"""Stores what the ranks on a node other than rank 0's wrote to their output.

It lies among the job's artifacts, in a folder that no other node and no other attempt writes to.
"""

import logging
import time
from dataclasses import replace

from app.database.transient_errors import is_transient
from app.domain.lifecycle.events import EventType
from app.services.attempts import node_outputs
from app.services.attempts.node_outputs import OutputSize
from app.storage.object_keys import node_output
from workers.attempt_failed import AttemptFailed
from workers.publishing.runner import publish_options
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.recording.model_export import (
    Output,
    OutputLimits,
    StoredModel,
    find_output,
    output_limits,
    store_model,
)
from workers.supervisor.recording.report_writer import Note
from workers.supervisor.recording.upload import Patience

log = logging.getLogger(__name__)
RETRY_SECONDS = 0.5


def store_node_output(attempt: FinishedAttempt, patience: Patience) -> StoredModel:
    """Hash the output of this part and move it to the storage. Raises AttemptFailed, LeaseLost.

    Hidden files at its top are notes of the platform's wrappers: where there is nothing else, nothing is stored.
    """
    work = attempt.work
    folder = node_output(work.attempt, work.part)
    limits = output_limits(work.document.output_config, attempt.settings.storage)
    output = find_output(attempt.context.run.output, limits, custom=attempt.observations.custom, folder=folder)
    output = replace(output, is_model=False)
    if all(path.startswith(".") for path in output.files):
        return StoredModel()
    refuse_too_much(attempt, output, limits)
    stored = store_model(attempt.context.storage, work.job_id, output, None, patience=patience)
    _say_where(attempt, stored, folder)
    return stored


def refuse_too_much(attempt: FinishedAttempt, output: Output, limits: OutputLimits) -> None:
    """Announce the output of this part. Raises AttemptFailed when those of all parts together exceed a limit, and
    LeaseLost.
    """
    total = _announced(attempt, OutputSize(files=len(output.files), size_bytes=output.size_bytes))
    if total.files > limits.files:
        raise AttemptFailed(
            "EXPORT_FAILED",
            f"the outputs of all nodes have more than {limits.files} files together, the most that "
            "TRAINYARD_STORAGE_MAX_OUTPUT_FILES allows; pack them into fewer, such as an archive, or ask the operator "
            "to raise it",
        )
    if total.size_bytes > limits.size_mb << 20:
        raise AttemptFailed(
            "EXPORT_FAILED",
            f"the outputs of all nodes together are larger than the {limits.size_mb} MB that {limits.size_rule} "
            "allows; keep less of them, or raise the limit",
        )


def _announced(attempt: FinishedAttempt, size: OutputSize) -> OutputSize:
    """What all parts together store. Waits until the database is back, as the outcome does. Raises LeaseLost."""
    while True:
        try:
            return node_outputs.announce(attempt.db, attempt.work, size)
        except Exception as error:
            if not is_transient(error) or attempt.is_lost():
                raise
            log.warning("the size of the output could not be written yet: %s", error)
            time.sleep(RETRY_SECONDS)


def _say_where(attempt: FinishedAttempt, stored: StoredModel, folder: str) -> None:
    work, count = attempt.work, len(stored.artifacts)
    named = ", ".join(f"{each.role} {each.index}" for each in work.instances)
    files = f"{count} file{'s' if count > 1 else ''} of {work.node}{f' ({named})' if named else ''}"
    data = {"node": work.node, "folder": folder, "files": count}
    size = sum(each.size_bytes for each in stored.artifacts)
    message = f"{files} are kept in {folder}/ among the job's artifacts"
    attempt.reporter.add(Note(kind=EventType.EXPORTED, message=message, data={**data, "size_bytes": size}))
    if publish_options(work):
        message = f"{files} are kept among the job's artifacts alone: only those of rank 0's node are published"
        attempt.reporter.add(Note(kind=EventType.WARNING, reason="OUTPUT_NOT_PUBLISHED", message=message, data=data))
