"""Finalizes an attempt: stores checkpoints, model and last reports, and writes the outcome in one transaction."""

import logging
import math
import time
from dataclasses import replace

from app.database.engine import Database
from app.database.transient_errors import is_transient
from app.domain.errors import LeaseLost, StaleJob, TrainyardError
from app.domain.json_numbers import json_number
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import Outcome
from app.domain.lifecycle.retry_policy import Backoff
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.inference import BATCH, EVALUATION, FEATURES, REPLICA, TRAINING
from app.services.attempts import checkpoints, gang_parts, outcome_errors, work_orders
from app.services.attempts.work_orders import Ending, WorkOrder
from app.services.files import result_files
from app.services.telemetry import evaluated_points
from app.storage.object_keys import shards_key
from config.settings import Settings
from trainyard.protocol.messages import MAX_MESSAGE, MAX_TEXT, RankExit, clean_text
from workers.attempt_failed import AttemptFailed
from workers.publishing.runner import publish_options
from workers.supervisor.finished_attempt import FinishedAttempt
from workers.supervisor.node_output import refuse_too_much, store_node_output
from workers.supervisor.offline_run import store_offline_run
from workers.supervisor.publish import deliver
from workers.supervisor.publish_logs import deliver_logs
from workers.supervisor.ranks.verdict import is_consequence, judge, judge_part
from workers.supervisor.recording import disk_space
from workers.supervisor.recording.evaluation_results import read_results
from workers.supervisor.recording.model_export import StoredModel, find_output, output_limits, store_model
from workers.supervisor.recording.report_writer import Note
from workers.supervisor.recording.upload import Patience

log = logging.getLogger(__name__)

# A cancelled job's checkpoints stay, but the wait for one in progress is short; also for one whose storing is the hang.
SHORT_DRAIN_SECONDS = 10.0
LOG_SECONDS = 10.0
RETRY_SECONDS = 0.5
# Of progress.
_UNITS = {TRAINING: "step", BATCH: "record", FEATURES: "record", EVALUATION: "benchmark", REPLICA: "request"}


def conclude(attempt: FinishedAttempt) -> Ending | None:
    """Store the results, write the outcome, and return its consequence. No rank runs any more.

    None when this was one of several nodes and the attempt has not ended on all.

    The lease is renewed and fenced until everything is stored. Raises LeaseLost; nothing was concluded then.
    """
    try:
        outcome = _store(attempt)
    except LeaseLost:
        raise
    except Exception as error:
        if is_transient(error) and not isinstance(error, OSError):
            raise
        log.exception("the results of the attempt can't be stored")
        outcome = _unstored(attempt, error)
    _write_result_file(attempt, outcome)
    attempt.renewal.unfence()
    attempt.ranks.roles.record_ends()
    ending = _finish(attempt, outcome)
    _delete_shards(attempt, ending)
    _release_checkpoint(attempt, ending)
    return ending


def _store(attempt: FinishedAttempt) -> Outcome:
    """Store checkpoints, model, reports and logs; returns the outcome."""
    attempt.observations.disk_error = attempt.disk.last_error
    outcome = judge(attempt.observations) if attempt.work.part == 0 else judge_part(attempt.observations)
    hurries = outcome.kind == "cancelled" or outcome.cause == "HANG"
    attempt.recorders.checkpoints.drain(SHORT_DRAIN_SECONDS if hurries else None)
    model = StoredModel()
    if outcome.kind == "completed" and _has_output(attempt.work):
        try:
            model = store_node_output(attempt, _patience(attempt)) if attempt.work.part else _export(attempt)
        except AttemptFailed as error:
            error = disk_space.named(error)
            outcome = Outcome(kind="failed", cause=error.error_type, message=error.message)
    if model.artifacts and attempt.work.part == 0 and publish_options(attempt.work):
        outcome, model = deliver(attempt, outcome, model)
    _report_the_last(attempt, outcome, finished=outcome.kind == "completed" or bool(model.artifacts))
    attempt.reporter.flush()
    attempt.trackers.finish(outcome.kind)
    attempt.reporter.flush()
    if lost := attempt.recorders.logs.close(LOG_SECONDS):
        what = f"the last {lost} log lines could not be stored within {LOG_SECONDS:g} s"
        attempt.reporter.add(Note(kind=EventType.WARNING, message=what))
        attempt.reporter.flush()
    deliver_logs(attempt)
    attempt.reporter.flush()
    attempt.recorders.events.close(LOG_SECONDS)
    store_offline_run(attempt, outcome)  # last: it says how the attempt ended
    attempt.reporter.flush()
    return _completed(attempt, outcome, model)


def _has_output(work: WorkOrder) -> bool:
    return work.is_training if work.part else not work.is_replica


def _write_result_file(attempt: FinishedAttempt, outcome: Outcome) -> None:
    """Before the job is COMPLETED, so that clients which wait for that find it; a failure does not fail the job."""
    if outcome.kind != "completed" or not attempt.work.is_training or attempt.work.part > 0:
        return
    try:
        result_files.write(attempt.db, attempt.context.storage, attempt.work.job_id, fence=attempt.work.fence)
    except Exception:
        log.warning("the result file could not be written", exc_info=True)


def _unstored(attempt: FinishedAttempt, error: Exception) -> Outcome:
    """The outcome when storing raised an unexpected error, at worst one of our own."""
    outcome = outcome_errors.outcome_of("of the attempt", error, left_behind=attempt.ranks.left_behind)
    ran_seconds = round(time.monotonic() - attempt.began, 3)
    if isinstance(error, OSError):
        outcome = replace(outcome, cause="DISK_FULL" if disk_space.is_full(error) else "STORAGE_ERROR")
    return replace(outcome, ran_seconds=ran_seconds, end_step=attempt.ranks.reports.last_step)


def _export(attempt: FinishedAttempt) -> StoredModel:
    """Move the output, if any, to the storage; the job is EXPORTING meanwhile. Raises AttemptFailed."""
    limits = output_limits(attempt.work.document.output_config, attempt.settings.storage)
    output = find_output(attempt.context.run.output, limits, custom=attempt.observations.custom)
    output = replace(output, is_model=attempt.work.is_training)
    if attempt.work.is_gang and output.files:
        refuse_too_much(attempt, output, limits)
    attempt.ranks.reports.enter(JobState.EXPORTING if output.files else attempt.ranks.reports.working)
    publishes = bool(publish_options(attempt.work))
    if publishes and not output.files:
        attempt.reporter.add(Note(kind=EventType.WARNING, message="the job wrote no output, so nothing is published"))
    # Before it is moved.
    measured = read_results(output, attempt.work.document) if attempt.work.kind == EVALUATION else {}
    stored = store_model(
        attempt.context.storage,
        attempt.work.job_id,
        output,
        attempt.observations.result,
        keep=publishes,
        patience=_patience(attempt),
    )
    return replace(stored, benchmarks=measured)


def _patience(attempt: FinishedAttempt) -> Patience:
    """Applies control requests while it waits for disk space."""

    def goes_on() -> bool:
        return not attempt.is_lost() and attempt.observations.stopping != "cancel"

    def serve(seconds: float) -> bool:
        due = time.monotonic() + seconds
        attempt.loop.call_after(seconds, lambda: None)
        attempt.loop.run_until(lambda: time.monotonic() >= due or not goes_on())
        return goes_on()

    return Patience(rest=serve, waits=lambda error: attempt.disk.full("the finished model", error))


def _report_the_last(attempt: FinishedAttempt, outcome: Outcome, *, finished: bool) -> None:
    result, reporter = attempt.observations.result, attempt.reporter
    if result is not None and result.stopped is None and finished:
        attempt.ranks.reports.end(result)
    for gone in attempt.observations.exits:
        if gone.exit_code != 0 and outcome.kind == "failed":
            how = gone.signal or f"exit code {gone.exit_code}"
            data = {"rank": gone.rank, "exit_code": gone.exit_code, "signal": gone.signal}
            reporter.add(
                Note(
                    kind=EventType.RANK_EXITED,
                    message=f"{attempt.observations.named(gone.rank)} ended: {how}",
                    data={**data, **_task(attempt, gone)},
                )
            )


def _task(attempt: FinishedAttempt, gone: RankExit) -> dict[str, str | int]:
    """The instance of a role that the rank belongs to, if it has one."""
    for each in attempt.work.instances:
        if each.first_rank <= gone.rank < each.first_rank + each.ranks:
            return {"role": each.role, "index": each.index}
    return {}


def _delete_shards(attempt: FinishedAttempt, ending: Ending | None) -> None:
    """Delete the files of the shards of a job that is COMPLETED: its result has them. Their rows stay.

    Orphan clean-up deletes what is left, and the shards of jobs that ended otherwise.
    """
    work = attempt.work
    if work.is_training or work.is_replica or ending is None or ending.state is not JobState.COMPLETED:
        return
    try:
        attempt.context.storage.delete_tree(shards_key(attempt.work.job_id))
    except TrainyardError:
        log.warning("the shards could not be deleted; housekeeping will", exc_info=True)


def _release_checkpoint(attempt: FinishedAttempt, ending: Ending | None) -> None:
    """Let retention have the checkpoint that the ended job has kept as its model."""
    section = attempt.work.document.inference
    if section is None or section.model.job_id is None or ending is None or ending.state not in TERMINAL:
        return
    try:
        checkpoints.retire_released(attempt.db, section.model.job_id)
    except Exception:
        log.warning("the checkpoint was not released; housekeeping will do it", exc_info=True)


def _finish(attempt: FinishedAttempt, outcome: Outcome) -> Ending | None:
    """Write the outcome, with retries until the database is back; the first of several nodes after all others.

    An error of our own while writing is no fault of the node: the attempt then ends with OUTCOME_ERROR, at last by a
    minimal write. Raises LeaseLost.
    """
    backoff = _backoff(attempt.settings)
    others_end_by = time.monotonic() + attempt.settings.watch.stuck_seconds
    while True:
        try:
            ending = _end(attempt, outcome, backoff)
            if ending is not None or attempt.work.part > 0:
                return ending
            if time.monotonic() >= others_end_by:
                gang_parts.end_others(attempt.db, attempt.work, outcome)  # one of their ranks hangs in its exit
                others_end_by = math.inf  # it is said once
            time.sleep(RETRY_SECONDS)
        except LeaseLost:
            raise
        except Exception as error:
            if is_transient(error) or isinstance(error, StaleJob):
                log.warning("the outcome could not be written yet: %s", error)
                time.sleep(RETRY_SECONDS)
                continue
            log.exception("the outcome %s can't be written", outcome.kind)
            instead = replace(
                outcome_errors.outcome_of(outcome.kind, error, left_behind=outcome.left_behind),
                ran_seconds=outcome.ran_seconds,
                end_step=outcome.end_step,
            )
            if outcome.cause == outcome_errors.CAUSE:
                return outcome_errors.finish(attempt.db, attempt.work, instead, backoff)
            outcome = instead


def _end(attempt: FinishedAttempt, outcome: Outcome, backoff: Backoff) -> Ending | None:
    if attempt.work.kind == EVALUATION and outcome.kind == "completed":
        values = {name: float(value) for name, value in outcome.report.get("final_metrics", {}).items()}
        job_id, fence = attempt.work.job_id, attempt.work.fence
        evaluated_points.store(attempt.db, evaluation_id=job_id, fence=fence, values=values)
    if attempt.work.is_gang:
        return gang_parts.finish(attempt.db, attempt.work, outcome, backoff)
    may_restart = not attempt.machine_stops() and not attempt.ranks.left_behind
    return work_orders.finish(attempt.db, attempt.work, outcome, backoff, may_restart=may_restart)


def _completed(attempt: FinishedAttempt, outcome: Outcome, model: StoredModel) -> Outcome:
    """Add what is known only now that everything is stored."""
    result, noticed = attempt.observations.result, attempt.observations.detect_seconds
    reports = attempt.ranks.reports
    final = dict(result.final_metrics) if result is not None and result.final_metrics else reports.final_metrics
    end_step = reports.last_step if result is None or result.step is None else result.step
    # The other parts' outputs are no result of the job, not even of one that has none because rank 0's node was lost.
    has_result = attempt.work.part == 0 and (outcome.kind == "completed" or bool(model.artifacts))
    written = {name: json_number(value) for name, value in final.items()}
    return replace(
        outcome,
        # Parts come from ranks and file names: they must neither make the outcome unwritable nor reveal a secret.
        message=clean_text(attempt.context.redaction.bounded(_message(attempt, outcome, end_step), MAX_MESSAGE)),
        stack=clean_text(attempt.context.redaction.bounded(outcome.stack, MAX_TEXT)),
        end_step=end_step,
        detect_seconds=None if noticed is None or outcome.kind != "failed" else round(noticed, 3),
        ran_seconds=round(time.monotonic() - attempt.began, 3),
        report=model.report(written) if has_result else {},
        artifacts=model.artifacts,
        left_behind=attempt.ranks.left_behind,
        ends_since=attempt.observations.ends_since,
        is_consequence=is_consequence(attempt.observations, outcome),
    )


def _message(attempt: FinishedAttempt, outcome: Outcome, end_step: int) -> str:
    """The message, with the number of unsaved steps after a stop."""
    saved = max(attempt.ranks.reports.start_step, attempt.recorders.checkpoints.newest_step)
    if end_step <= saved or attempt.work.is_replica:
        return outcome.message
    unit = _UNITS[attempt.work.kind]
    lost = f"the {end_step - saved} {unit}s after {unit} {saved} were not saved"
    if outcome.cause == "MAX_RUNTIME_EXCEEDED":
        return f"{outcome.message}; {lost} and are lost"
    if outcome.kind not in ("paused", "requeued", "preempted"):
        return outcome.message
    return f"{lost} and are done again: {outcome.message}" if outcome.message else f"{lost} and are done again"


def _backoff(settings: Settings) -> Backoff:
    scheduler = settings.scheduler
    return Backoff(base_seconds=scheduler.retry_base_seconds, max_seconds=scheduler.retry_max_seconds)


def give_up(settings: Settings, db: Database, work: WorkOrder, failure: AttemptFailed) -> None:
    """End an attempt that could not even begin. Raises LeaseLost."""
    outcome = Outcome(kind="failed", cause=failure.error_type, message=failure.message)
    if work.is_gang:
        gang_parts.finish(db, work, outcome, _backoff(settings), waits=False)
    else:
        work_orders.finish(db, work, outcome, _backoff(settings))
