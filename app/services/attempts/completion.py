"""Completion of an attempt: close its record, release or hand over its devices, and move the job on."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.orm import Session

from app.domain.errors import what_to_do
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.halts import halted_at
from app.domain.lifecycle.outcomes import Decision, Outcome, at_halt, decide
from app.domain.lifecycle.retry_policy import CLOCKS_DIFFER, Backoff
from app.domain.lifecycle.states import JobState
from app.domain.nodes.reliability import effect_on_node
from app.domain.units import WHOLE
from app.models import Attempt, Job, Lease, Reservation
from app.models import Device as DeviceRow
from app.models.base import database_now, utc_now
from app.services.attempts import checkpoints, evaluation_verdicts, halted_attempts, planned_evaluations, recovery
from app.services.lifecycle import transitions
from app.services.nodes import quarantine, reliability, stuck_devices
from app.services.queues import gpu_hours

_TAKEN_BACK = "it had stopped for a pause when that was taken back; it continues from its newest checkpoint"
_NO_ERROR: dict[str, Any] = {"error_type": None, "error_message": None, "error_stack": None}


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Result of completing an attempt: the job's state, and the attempt that this supervisor runs next, if any."""

    state: JobState
    restart: int | None = None


def end_attempt(
    session: Session,
    job: Job,
    number: int,
    outcome: Outcome,
    backoff: Backoff,
    *,
    actor: str,
    may_restart: bool = False,
) -> Ending:
    """Close the record of the locked job's attempt, and move the job to the state that follows from the outcome.

    Lease and devices are released, or handed to an attempt in place, which ``may_restart`` permits.
    """
    attempt, outcome = session.get_one(Attempt, (job.id, number)), _with_reason(job, outcome)
    decision = _decide(session, job, attempt, outcome, backoff, may_restart=may_restart)
    changes = _changes(session, job, outcome, decision)
    rollback_step = None
    if decision.recovery is not None and decision.state is not JobState.FAILED:
        changes |= recovery.consequences(session, job, attempt, decision.recovery, _blamed(attempt, outcome))
        if decision.recovery.rolls_back:
            rollback_step = recovery.go_back(session, job, attempt, outcome.end_step)
    _close_record(session, job, attempt, outcome, decision, rollback_step)
    _record_end(session, job, attempt, outcome, actor)
    changes |= _count_usage(session, job, attempt, outcome.ran_seconds)
    if decision.state is JobState.PAUSED:
        changes |= halted_attempts.where_it_stands(session, job, attempt, outcome.end_step)
    _record_on_nodes(session, attempt, outcome)
    if decision.restarts:
        return Ending(state=job.state, restart=recovery.restart_in_place(session, job, attempt, **changes))
    if outcome.left_behind:
        leave_behind(session, attempt, actor)
    free(session, job.id, number)
    reason, message = _reason(outcome, decision), decision.halt or outcome.message
    if decision.via is not None:
        transitions.transition(session, job, decision.via, actor=actor, reason=reason, message=message)
    transitions.transition(session, job, decision.state, actor=actor, reason=reason, message=message, **changes)
    planned_evaluations.make_at_end(session, job, actor=actor)
    evaluation_verdicts.note_not_met(session, job, actor=actor)
    return Ending(state=decision.state)


def _with_reason(job: Job, outcome: Outcome) -> Outcome:
    """A requeue has the reason of its request, unless it has one of its own. Ranks that stopped for a pause that was
    taken back meanwhile have only interrupted their job, whatever the platform has asked for since.
    """
    if outcome.kind == "paused" and outcome.on_request and job.requested in (None, "requeue", "preempt"):
        return replace(outcome, kind="requeued", message=outcome.message or job.requested_reason or _TAKEN_BACK)
    is_requested = outcome.kind == "requeued" and job.requested == "requeue"
    return replace(outcome, message=job.requested_reason) if is_requested and not outcome.message else outcome


def _count_usage(session: Session, job: Job, attempt: Attempt, ran_seconds: float) -> dict[str, float]:
    """Count the attempt's GPU seconds towards the quota of its project. Returns the job's new totals."""
    gpus = gpus_of(session, job.id, attempt.number)
    gpu_hours.count_gpu_seconds(session, job.project, ran_seconds, gpus)
    elapsed = job.elapsed_seconds + _shown_seconds(attempt, ran_seconds)
    return {"elapsed_seconds": elapsed, "gpu_seconds": job.gpu_seconds + ran_seconds * gpus}


def _shown_seconds(attempt: Attempt, ran_seconds: float) -> float:
    """Duration of the attempt: at least what readers saw while it ran, which counts from its claim.

    A larger difference than clock skew explains is ignored: the clock was set.
    """
    if attempt.started_at is None:
        return ran_seconds
    shown = (utc_now() - attempt.started_at).total_seconds()
    return shown if ran_seconds <= shown <= ran_seconds + CLOCKS_DIFFER.total_seconds() else ran_seconds


def _decide(
    session: Session, job: Job, attempt: Attempt, outcome: Outcome, backoff: Backoff, *, may_restart: bool
) -> Decision:
    found = None
    if outcome.kind == "failed":
        found = recovery.recovery_of(
            session, job, attempt, outcome.cause, backoff, blamed=_blamed(attempt, outcome), may_restart=may_restart
        )
    decision = decide(
        outcome.kind,
        state=job.state,
        requested=job.requested,
        preemption=job.document.scheduling_config.on_preemption,
        recovery=found,
    )
    halt = halted_attempts.reached(session, job, attempt, outcome.end_step)
    return decision if halt is None else at_halt(decision, job.state, halted_at(halt.step))


def _changes(session: Session, job: Job, outcome: Outcome, decision: Decision) -> dict[str, Any]:
    """Columns of the job that change together with its state."""
    if decision.state is JobState.COMPLETED:
        return {"progress": 1.0, "report": evaluation_verdicts.judged(session, job, outcome.report), **_NO_ERROR}
    # A model that was stored before the job failed or was cancelled stays available.
    report = {"report": outcome.report} if outcome.report else {}
    if decision.state is JobState.CANCELLED:
        return _NO_ERROR | report
    error = {"error_type": outcome.cause, "error_message": outcome.message, "error_stack": outcome.stack or None}
    if decision.state is JobState.FAILED:
        return (
            error
            | {"error_type": _reason(outcome, decision), "error_message": _failure_message(outcome, decision)}
            | report
        )
    if decision.restarts:
        return error
    if decision.state is JobState.QUEUED and decision.recovery is not None:
        now = database_now(session)
        return {
            **error,
            # Both by one clock, so that the planner can tell a backoff from a jump of that clock.
            "queued_at": now,
            "not_before_at": now + timedelta(seconds=decision.recovery.wait_seconds),
            "pending_reason": _pending_reason(job, outcome, decision),
        }
    return {}


def _pending_reason(job: Job, outcome: Outcome, decision: Decision) -> str:
    found = decision.recovery
    if found is None:
        return ""
    if outcome.cause == "DISK_FULL":
        return f"disk_full: {outcome.message or 'no space was left'}; retried in {found.wait_seconds:g} s"
    if not found.is_counted:
        return f"rescheduled after {outcome.cause}"
    retry = job.retries_used + 1
    return f"retry {retry} of {job.max_retries} after {outcome.cause}, in {found.wait_seconds:g} s"


def _reason(outcome: Outcome, decision: Decision) -> str:
    cause = decision.recovery.cause if decision.recovery is not None else outcome.cause
    return cause or outcome.kind


def _failure_message(outcome: Outcome, decision: Decision) -> str:
    """What happened, why the job is not retried, and what the user can do."""
    note = decision.recovery.note if decision.recovery is not None else ""
    what = "; ".join(part for part in (outcome.message, note) if part)
    return ". ".join(part for part in (what.rstrip("."), what_to_do(_reason(outcome, decision))) if part)


def _close_record(
    session: Session, job: Job, attempt: Attempt, outcome: Outcome, decision: Decision, rollback_step: int | None
) -> None:
    job.ready = job.kept_until = None  # of its sandbox, which is gone
    attempt.ended_at = utc_now()
    attempt.cause = outcome.cause or None
    attempt.end_reason = outcome.message or outcome.kind
    attempt.end_related_task = outcome.related_task or None
    attempt.end_recover = attempt.policy = decision.policy
    if decision.policy is not None and decision.recovery is not None:
        attempt.recover_before_downgrade = decision.recovery.downgraded_from
    attempt.exit_code = outcome.exit_code
    attempt.end_step = max(outcome.end_step, attempt.start_step)
    attempt.detect_seconds = outcome.detect_seconds
    if rollback_step is not None:
        attempt.lost_steps = max(0, attempt.end_step - rollback_step)
    elif outcome.kind == "completed":
        attempt.lost_steps = 0
    else:
        saved = checkpoints.saved_step(session, job, attempt.number)
        attempt.lost_steps = max(0, attempt.end_step - max(saved, attempt.start_step))


def _record_end(session: Session, job: Job, attempt: Attempt, outcome: Outcome, actor: str) -> None:
    transitions.record_event(
        session,
        job.id,
        EventType.ATTEMPT_ENDED,
        actor=actor,
        reason=outcome.cause or outcome.kind,
        message=outcome.message,
        data={
            "attempt": attempt.number,
            "end_step": outcome.end_step,
            "exit_code": outcome.exit_code,
            "lost_steps": attempt.lost_steps,
            "policy": attempt.policy,
        },
    )


def leave_behind(session: Session, attempt: Attempt, actor: str, *, node: str | None = None) -> None:
    """Take the attempt's devices on this node, or on all, out of service."""
    mine = (Lease.job_id == attempt.job_id) & (Lease.attempt == attempt.number) & Lease.released_at.is_(None)
    places = {row.node: row.boot_id or "" for row in session.execute(select(Lease.node, Lease.boot_id).where(mine))}
    for held in stuck_devices.held_by(attempt, places=places):
        if node in (None, held.node):
            stuck_devices.take_out_of_service(session, held, actor=actor)


def _record_on_nodes(session: Session, attempt: Attempt, outcome: Outcome) -> None:
    trained = attempt.trained_at is not None
    effect = effect_on_node(outcome.kind, outcome.cause, trained=trained, left_behind=outcome.left_behind)
    if effect is not None:
        for name in attempt.node_names if outcome.kind == "completed" else _blamed(attempt, outcome):
            if effect.is_certain:
                reliability.count(session, name, effect)
            if effect.counter != "completions":
                quarantine.note(
                    session,
                    name,
                    job_id=attempt.job_id,
                    attempt=attempt.number,
                    is_proven=effect.is_certain,
                    cause=stuck_devices.REASON if outcome.left_behind else outcome.cause,
                )


def _blamed(attempt: Attempt, outcome: Outcome) -> list[str]:
    """Nodes where the fault occurred; the other nodes of a gang are not blamed."""
    return [outcome.node] if outcome.node else list(attempt.node_names)


def gpus_of(session: Session, job_id: str, number: int, *, node: str | None = None) -> float:
    """Number of GPUs of the attempt, on this node or on all; half a GPU is 0.5."""
    held = session.execute(
        select(DeviceRow.type, Reservation.share)
        .join(Reservation, (Reservation.node == DeviceRow.node) & (Reservation.device_index == DeviceRow.index))
        .where(*_reserved(job_id, number, node))
    )
    return float(sum(row.share for row in held if row.type != "cpu")) / WHOLE


def free(session: Session, job_id: str, number: int, *, node: str | None = None) -> None:
    """Release leases and devices of an attempt, on this node or on all."""
    session.execute(delete(Reservation).where(*_reserved(job_id, number, node)))
    leased = [Lease.job_id == job_id, Lease.attempt == number, Lease.released_at.is_(None)]
    if node is not None:
        leased.append(Lease.node == node)
    session.execute(update(Lease).where(*leased).values(released_at=utc_now()))


def _reserved(job_id: str, number: int, node: str | None) -> list[ColumnElement[bool]]:
    mine = [Reservation.job_id == job_id, Reservation.attempt == number]
    return mine if node is None else [*mine, Reservation.node == node]
