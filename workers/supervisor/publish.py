"""Publishes a stored model to the job's destinations while control requests are still applied."""

import time
from dataclasses import replace

from app.domain.errors import LeaseLost
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import Outcome, OutcomeKind
from workers.publishing.orders import PublishedFile, PublishOrder
from workers.publishing.runner import Publication, Published
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.recording.model_export import StoredModel
from workers.supervisor.recording.report_writer import Note

# An upload that ends within this time need not be repeated on another node. A drain waits for 30 s.
REQUEUE_PATIENCE_SECONDS = 20.0
KEPT = "the model is complete and kept among the job's artifacts, but it could not be published"


def deliver(attempt: FinishedAttempt, outcome: Outcome, model: StoredModel) -> tuple[Outcome, StoredModel]:
    """Upload the stored model to the job's destinations, and apply control requests meanwhile. Raises LeaseLost."""
    work = attempt.work
    order = PublishOrder(
        job_id=work.job_id,
        job_name=work.name,
        source=model.directory,
        files=tuple(PublishedFile(path=a.path, size_bytes=a.size_bytes, sha256=a.sha256) for a in model.artifacts),
        weight_files=model.weight_files,
    )
    publication = Publication(attempt.settings, work, order, on_done=attempt.loop.wake)
    patience = _Patience(attempt)
    publication.start()
    try:
        attempt.loop.run_until(lambda: publication.result is not None or patience.is_over())
    finally:
        publication.stop()
    if attempt.is_lost():
        raise LeaseLost("the lease was lost while the model was being published")
    if publication.result is None:
        kind: OutcomeKind = "cancelled" if attempt.observations.stopping == "cancel" else "requeued"
        return Outcome(kind=kind), model if kind == "cancelled" else StoredModel()
    return _delivered(attempt, publication.result, outcome, model)


def _delivered(
    attempt: FinishedAttempt, result: Published, outcome: Outcome, model: StoredModel
) -> tuple[Outcome, StoredModel]:
    size = sum(each.size_bytes for each in model.artifacts)
    size_of_all = {"files": len(model.artifacts), "size_bytes": size}
    if result.uri:
        why = " beside the files of others that lie in output_path" if result.beside else ""
        message = f"the model was copied to {result.uri}{why}"
        attempt.reporter.add(Note(kind=EventType.EXPORTED, message=message, data={"uri": result.uri, **size_of_all}))
        model = replace(model, model_uri=result.uri)
    if result.hub_url:
        message = f"the model was pushed to {result.hub_url}"
        attempt.reporter.add(
            Note(kind=EventType.EXPORTED, message=message, data={"hub_url": result.hub_url, **size_of_all})
        )
    problems = "; ".join(result.failures + result.passing)
    if not problems:
        return outcome, model
    return Outcome(kind="failed", cause="EXPORT_FAILED", message=f"{KEPT}: {problems}", exit_code=0), model


class _Patience:
    """How long an upload may continue after a control request."""

    def __init__(self, attempt: FinishedAttempt) -> None:
        self._attempt = attempt
        self._until: float | None = None

    def is_over(self) -> bool:
        stopping = self._attempt.observations.stopping
        if self._attempt.is_lost() or stopping == "cancel":
            return True
        if stopping in ("requeue", "preempt") and self._until is None:
            self._until = time.monotonic() + REQUEUE_PATIENCE_SECONDS
            self._attempt.loop.call_after(
                REQUEUE_PATIENCE_SECONDS, lambda: None
            )  # so that the condition is checked again
        return self._until is not None and time.monotonic() >= self._until
