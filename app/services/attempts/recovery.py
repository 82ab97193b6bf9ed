"""Recovery: collects the input of the retry policy for a job, and applies its decision besides the job's state."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.retry_policy import (
    Backoff,
    Recovery,
    RecoveryHistory,
    RecoveryPolicy,
    RecoveryRule,
    recover,
    rule_of,
)
from app.domain.lifecycle.states import RUNNING, JobState
from app.domain.spec.frameworks.custom import retries_on_error, retries_on_hang
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.inference import TRAINING
from app.models import Attempt, Job, Lease, Node, Project, Reservation
from app.models.base import utc_now
from app.services.attempts import checkpoints, work_instances
from app.services.lifecycle import transitions
from app.services.nodes import project_demands, stuck_devices

# Node states in which no attempt may start.
LEAVING = ("draining", "drained", "quarantined")
RESTARTED = "restarted"  # ModelArts' name for an attempt that was restarted in place
SCHEDULED = "init_or_rescheduled"
# Policies of an attempt that was rescheduled after a failure.
_RESCHEDULED = (RecoveryPolicy.RESCHEDULE, RecoveryPolicy.RESCHEDULE_ELSEWHERE)


def recovery_of(
    session: Session,
    job: Job,
    attempt: Attempt,
    cause: str,
    backoff: Backoff,
    *,
    blamed: Sequence[str],
    may_restart: bool,
) -> Recovery:
    """Decide how to recover from a failure of the locked job.

    ``blamed`` are the nodes where it failed; ``may_restart``: its supervisor could run the next attempt.
    """
    retries_scripts = retries_on_error(job.document)
    rule = rule_of(cause, retries_scripts=retries_scripts)
    if rule is None:
        return recover(cause, RecoveryHistory(max_retries=job.max_retries), backoff)
    history = RecoveryHistory(
        max_retries=job.max_retries,
        retries_used=job.retries_used,
        in_place_restarts=job.in_place_restarts,
        hangs=job.hangs,
        host_losses=job.host_losses,
        disk_waits=job.disk_waits,
        failed_here_before=(_disk_was_full_here_before if rule.waits_for_disk else _failed_here_before)(
            session, job, attempt, blamed
        ),
        retries_scripts=retries_scripts,
        retries_hangs=retries_on_hang(job.document),
        can_restart=may_restart and rule.may_restart and _may_stay(session, job, attempt),
        adjustments=job.adjustments,
        is_gang=len(attempt.node_names) > 1,
        is_custom=job.framework == parsing.CUSTOM or job.kind != TRAINING,  # engines have no batch size
        batch_size=job.document.data_config.batch_size,
        on_divergence=job.document.training_config.on_divergence,
    )
    return recover(cause, history, backoff)


def consequences(
    session: Session, job: Job, attempt: Attempt, recovery: Recovery, blamed: Sequence[str]
) -> dict[str, Any]:
    """Columns that record the recovery; an adjustment also becomes an event of the job.

    ``blamed`` are the nodes where it failed. Call before the attempt's record is closed: a rollback changes which
    checkpoints there are.
    """
    changes: dict[str, Any] = {}
    if recovery.is_counted:
        changes["retries_used"] = job.retries_used + 1
        if recovery.policy is RecoveryPolicy.RESTART:
            changes["in_place_restarts"] = job.in_place_restarts + 1
    if recovery.cause == "HANG":
        changes["hangs"] = job.hangs + 1
    rule = rule_of(recovery.cause, retries_scripts=retries_on_error(job.document)) or RecoveryRule()
    if rule.takes_host_down:
        changes["host_losses"] = job.host_losses + 1
    if rule.waits_for_disk:
        changes["disk_waits"] = job.disk_waits + 1
        if recovery.policy is RecoveryPolicy.RESCHEDULE_ELSEWHERE:
            others = [name for name in job.no_room_on if name not in blamed]
            changes["no_room_on"] = [*others, *blamed]
    elif recovery.policy is RecoveryPolicy.RESCHEDULE_ELSEWHERE:
        changes["excluded_nodes"] = sorted({*job.excluded_nodes, *blamed})
    if recovery.adjustments is not None:
        changes["adjustments"] = dict(recovery.adjustments)
        _record_adjustment(session, job, attempt, recovery)
    return changes


def go_back(session: Session, job: Job, attempt: Attempt, diverged_step: int) -> int:
    """Roll back to before the loss diverged; returns the step that the job continues from."""
    # A checkpoint that was rolled back to before is suspect: its recorded loss is that of the step before it.
    suspect_id = job.chosen_checkpoint_id if job.adjustments.get("rollbacks") else None
    good = checkpoints.retire_since(session, job, diverged_step, suspect_id=suspect_id)
    job.chosen_checkpoint_id = good.id if good is not None else None
    session.flush()
    step = good.step if good is not None else checkpoints.start_step(session, job)
    transitions.record_event(
        session,
        job.id,
        EventType.ADJUSTED,
        reason="ROLLED_BACK",
        message=f"the loss had diverged by step {diverged_step}: rolled back to step {step}",
        data={
            "attempt": attempt.number,
            "from_step": diverged_step,
            "to_step": step,
            "checkpoint_id": job.chosen_checkpoint_id,
        },
    )
    return step


def where_it_starts(session: Session, job: Job) -> dict[str, Any]:
    """Columns for the start step of the job's next attempt, valid until it reports.

    Otherwise the steps of an earlier attempt would count as lost twice if this one ended before its first report.
    """
    step = checkpoints.start_step(session, job)
    return {"current_step": step, "progress": min(1.0, step / job.total_steps) if job.total_steps else job.progress}


def restart_in_place(session: Session, job: Job, attempt: Attempt, **changes: Any) -> int:
    """Hand job, lease and devices of an ended attempt to the next one of the same supervisor; returns its number.

    The job keeps its state. Any further write of the old attempt is stale.
    """
    number, now = attempt.number + 1, utc_now()
    transitions.hand_over(session, job, attempt=number, **where_it_starts(session, job), **changes)
    session.add(
        Attempt(
            job_id=job.id,
            number=number,
            fence=job.fence,
            node_names=list(attempt.node_names),
            device_indices=list(attempt.device_indices),
            device_type=attempt.device_type,
            device_share=attempt.device_share,
            instances=work_instances.for_next_attempt(attempt),
            created_at=now,
            announced_at=now,
            started_at=now,
            start_type=RESTARTED,
            start_step=job.current_step,
        )
    )
    mine = (Reservation.job_id == job.id) & (Reservation.attempt == attempt.number)
    session.execute(update(Reservation).where(mine).values(attempt=number))
    session.execute(
        update(Lease)
        .where(Lease.job_id == job.id, Lease.attempt == attempt.number, Lease.released_at.is_(None))
        # The counter is raised, so that the reaper restarts counting; running time counts from here.
        .values(
            attempt=number, fence=job.fence, counter=Lease.counter + 1, claimed_at=now, renewed_at=now, ran_seconds=0.0
        )
    )
    session.flush()
    return number


def _may_stay(session: Session, job: Job, attempt: Attempt) -> bool:
    if job.requested is not None or job.state is JobState.EXPORTING or job.state not in RUNNING:
        return False
    for name, indices in zip(attempt.node_names, attempt.device_indices, strict=True):
        if stuck_devices.any_of(session, name, indices):
            return False
    nodes = session.execute(select(Node.state, Node.capabilities).where(Node.name.in_(attempt.node_names))).all()
    if any(node.state in LEAVING for node in nodes):
        return False
    # What this transaction changes later, because rows of a job are locked before projects: a submission that starts
    # from a checkpoint has locked that one when it locks its project.
    session.scalars(select(Lease.id).where(Lease.job_id == job.id, Lease.released_at.is_(None)).with_for_update()).all()
    session.refresh(attempt, ["number"], with_for_update=True)
    checkpoints.lock_all(session, job.id)
    # Locked until the next attempt exists: a demand comes before this check, or after the attempt's start.
    project = session.get_one(Project, job.project, with_for_update={"key_share": True}, populate_existing=True)
    demanded = project_demands.demanded(project.quota)
    return all(demanded.issubset(node.capabilities) for node in nodes)


def _failed_here_before(session: Session, job: Job, attempt: Attempt, blamed: Sequence[str]) -> bool:
    """Whether the job was last scheduled to a node that is blamed now, failed there, and made no progress since.

    An attempt on several nodes counts against each of them.
    """
    if job.retries_used == 0:
        return False
    earlier = session.scalars(
        select(Attempt)
        .where(Attempt.job_id == job.id, Attempt.number < attempt.number)
        .order_by(Attempt.number.desc())
        .limit(job.retries_used)
    ).all()
    scheduled_before = next((one for one in earlier if one.end_recover in _RESCHEDULED), None)
    return (
        scheduled_before is not None
        and scheduled_before.cause is not None
        and not set(blamed).isdisjoint(scheduled_before.node_names)
    )


def _disk_was_full_here_before(session: Session, job: Job, attempt: Attempt, blamed: Sequence[str]) -> bool:
    """Whether the previous attempt also found a full disk there, and the job made no progress since."""
    before = session.get(Attempt, (job.id, attempt.number - 1))
    return (
        job.disk_waits > 0
        and before is not None
        and before.cause is not None
        and (rule := rule_of(before.cause, retries_scripts=False)) is not None
        and rule.waits_for_disk
        and not set(blamed).isdisjoint(before.node_names)
    )


def _record_adjustment(session: Session, job: Job, attempt: Attempt, recovery: Recovery) -> None:
    adjusted = dict(recovery.adjustments or {})
    if recovery.rolls_back:
        what = f"the learning rate is multiplied by {adjusted['learning_rate_factor']:g}"
    else:
        size = job.document.data_config.batch_size
        share = 2 ** adjusted["batch_halvings"]
        what = (
            f"{size // share} records per device and step instead of {size}, accumulated over {share} times as many: "
            "the effective batch stays the same"
        )
    transitions.record_event(
        session,
        job.id,
        EventType.ADJUSTED,
        reason=recovery.cause,
        message=what,
        data={"attempt": attempt.number, "adjustments": adjusted},
    )
