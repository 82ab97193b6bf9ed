"""The end of an attempt: checkpoints and model to the storage, the last reports, and the outcome in one transaction."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from app.domain.errors import LeaseLost, StaleJob
from app.domain.events import EventType
from app.domain.job_state import JobState
from app.domain.json_numbers import json_number
from app.domain.retry import Backoff
from app.extensions import Database
from app.services import attempts
from app.services.attempts import Outcome, Work
from app.storage.storage import Storage
from config.redaction import Redaction
from config.settings import Settings
from workers.checkpoint_store import CheckpointStore
from workers.database_errors import passes
from workers.event_store import EventStore
from workers.failures import AttemptFailed
from workers.log_store import LogStore
from workers.main_loop import MainLoop
from workers.messages import MAX_SAID, MAX_TEXT, clean_text
from workers.outcomes import Sightings, Verdict, judge
from workers.publishing.delivering import deliver
from workers.publishing.publication import wishes_of
from workers.ranks import Ranks
from workers.renewal import Renewal
from workers.reports import Note, Reporter
from workers.results import StoredModel, find_output, store_model
from workers.run_directory import RunDirectory

log = logging.getLogger(__name__)

# A cancelled job's checkpoints stay, but nobody waits long for one that was under way.
CANCELLED_DRAIN_SECONDS = 10.0
LOG_SECONDS = 10.0
RETRY_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A finished attempt's parts, as the supervisor held them."""

    settings: Settings
    db: Database
    storage: Storage
    work: Work
    run: RunDirectory
    seen: Sightings
    ranks: Ranks
    reporter: Reporter
    checkpoints: CheckpointStore
    logs: LogStore
    events: EventStore
    renewal: Renewal
    loop: MainLoop
    lost: Callable[[], bool]
    began: float
    redaction: Redaction


def conclude(attempt: Attempt) -> JobState:
    """Store what is left, write the outcome, and return the job's new state. No rank runs any more.

    The lease is renewed and fenced until everything is stored. Raises LeaseLost; nothing was concluded then.
    """
    verdict = judge(attempt.seen)
    attempt.checkpoints.drain(CANCELLED_DRAIN_SECONDS if verdict.kind == "cancelled" else None)
    model = StoredModel()
    if verdict.kind == "completed":
        try:
            model = _export(attempt)
        except AttemptFailed as error:
            verdict = Verdict(kind="failed", cause=error.error_type, message=error.message)
    if model.artifacts and wishes_of(attempt.work):
        verdict, model = deliver(attempt, verdict, model)
    _report_the_last(attempt, verdict, finished=verdict.kind == "completed" or bool(model.artifacts))
    attempt.reporter.flush()
    attempt.logs.close(LOG_SECONDS)
    attempt.events.close(LOG_SECONDS)
    attempt.renewal.unfence()
    return _finish(attempt, verdict, model)


def _export(attempt: Attempt) -> StoredModel:
    """Move the output to the storage; the job is EXPORTING meanwhile, if there is any. Raises AttemptFailed."""
    seen = attempt.seen
    output = find_output(attempt.run.output, custom=seen.custom)
    attempt.ranks.enter(JobState.EXPORTING if output.files else JobState.TRAINING)
    wished = bool(wishes_of(attempt.work))
    if wished and not output.files:
        attempt.reporter.add(Note(kind=EventType.WARNING, message="the job wrote no output, so nothing is published"))
    return store_model(attempt.storage, attempt.work.job_id, output, seen.result, keep=wished)


def _report_the_last(attempt: Attempt, verdict: Verdict, *, finished: bool) -> None:
    result, reporter = attempt.seen.result, attempt.reporter
    if result is not None and result.stopped is None and finished:
        attempt.ranks.report_end(result)
    for gone in attempt.seen.exits:
        if gone.exit_code != 0 and verdict.kind == "failed":
            how = gone.signal or f"exit code {gone.exit_code}"
            reporter.add(
                Note(
                    kind=EventType.RANK_EXITED,
                    message=f"rank {gone.rank} ended: {how}",
                    data={"rank": gone.rank, "exit_code": gone.exit_code, "signal": gone.signal},
                )
            )


def _finish(attempt: Attempt, verdict: Verdict, model: StoredModel) -> JobState:
    """Write the outcome, however long the database is away. Raises LeaseLost."""
    outcome = _outcome(attempt, verdict, model)
    scheduler = attempt.settings.scheduler
    backoff = Backoff(base_seconds=scheduler.retry_base_seconds, max_seconds=scheduler.retry_max_seconds)
    while True:
        try:
            return attempts.finish(attempt.db, attempt.work, outcome, backoff)
        except LeaseLost:
            raise
        except Exception as error:
            if passes(error) or isinstance(error, StaleJob):
                log.warning("the outcome could not be written yet: %s", error)
                time.sleep(RETRY_SECONDS)
                continue
            if outcome.cause == "INTERNAL":
                raise
            log.exception("the outcome %s can't be written", outcome.kind)
            message = f"the outcome {outcome.kind} could not be written: {type(error).__name__}"
            outcome = replace(
                outcome, kind="failed", cause="INTERNAL", message=message, stack="", artifacts=(), report={}
            )


def _outcome(attempt: Attempt, verdict: Verdict, model: StoredModel) -> Outcome:
    result = attempt.seen.result
    final = dict(result.final_metrics) if result is not None and result.final_metrics else attempt.ranks.final_metrics
    written = {name: json_number(value) for name, value in final.items()}
    return Outcome(
        kind=verdict.kind,
        cause=verdict.cause,
        # Part of it may be a file's name or a rank's word: it must not make the outcome unwritable, nor tell a secret.
        message=clean_text(attempt.redaction.bounded(verdict.message, MAX_SAID)),
        stack=clean_text(attempt.redaction.bounded(verdict.stack, MAX_TEXT)),
        exit_code=verdict.exit_code,
        related_task=verdict.related_task,
        end_step=attempt.ranks.last_step if result is None or result.step is None else result.step,
        ran_seconds=round(time.monotonic() - attempt.began, 3),
        report=model.report(written) if verdict.kind == "completed" or model.artifacts else {},
        artifacts=model.artifacts,
    )
