"""Control requests: applied at once to jobs without a live lease, recorded for the supervisor otherwise."""

from typing import Any, NoReturn

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import IllegalTransition
from app.domain.lifecycle.control_actions import SAVING
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.outcomes import Outcome, OutcomeKind
from app.domain.lifecycle.states import TERMINAL, UNHELD, JobState
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.inference import REPLICA, TRAINING
from app.models import Job, Lease, Queue
from app.models.base import utc_now
from app.services.attempts import shards, work_orders
from app.services.attempts.leases import NO_RETRY
from app.services.jobs import start_points
from app.services.lifecycle import audit, transitions
from app.services.queues import limits, project_quotas

_CANNOT_SAVE = "runs a script that has not declared that it can save on request"


def request_cancel(session: Session, job_id: str, *, actor: str, reason: str = "") -> Job:
    """Cancel an idle job, or request it from the supervisor; idempotent on CANCELLED and on a repeated request.

    Raises IllegalTransition when the job has ended otherwise. The caller nudges the node after the commit when
    ``job.requested`` is set.
    """
    job = transitions.load_for_change(session, job_id)
    if job.state is JobState.CANCELLED:
        return job
    if job.state in TERMINAL:
        raise IllegalTransition(
            f"job {job_id} is {job.status} and cannot be cancelled; only a job that has not ended can"
        )
    if job.state in UNHELD:
        transitions.transition(
            session,
            job,
            JobState.CANCELLED,
            actor=actor,
            reason="cancelled",
            message=reason,
            cancel_requested_at=utc_now(),
            requested_reason=reason,
        )
        return job
    if _end_unclaimed(session, job, "cancelled", message=reason or "cancelled before its node claimed it", actor=actor):
        return job
    if job.requested != "cancel":
        job.requested, job.requested_reason, job.requested_by = "cancel", reason, actor
        job.cancel_requested_at = utc_now()
        job.mark_changed()
        session.flush()
        transitions.record_event(session, job_id, EventType.CANCEL_REQUESTED, actor=actor, message=reason)
        audit.record(session, actor=actor, action="job.cancel", project=job.project, target=job_id, message=reason)
        session.refresh(job)
    return job


def request_pause(session: Session, job_id: str, *, actor: str, saves: bool = True, force: bool = False) -> Job:
    """Pause an idle job, or request it from the supervisor; idempotent on PAUSED and on a repeated request.

    ``saves`` False stops it without a checkpoint; ``force`` stops it even if the checkpoint can't be saved. A repeated
    request may add either, but can't revoke it. Raises IllegalTransition when the job can't pause. The caller nudges
    the node after the commit when ``job.requested`` is set.
    """
    job = transitions.load_for_change(session, job_id)
    if job.state is JobState.PAUSED:
        return job
    refuse_replica(job, "paused", "pause the service instead (POST /v1/services/{name}/pause), or cancel the job")
    _require_pausable(session, job, may_lose_steps=force or not saves)
    how = {"save_checkpoint": saves, "force": force}
    if job.state in UNHELD:
        transitions.transition(
            session,
            job,
            JobState.PAUSED,
            actor=actor,
            reason="paused",
            message="it was not running",
            pause_requested_at=utc_now(),
        )
    elif not _end_unclaimed(session, job, "paused", message="paused before its node claimed it", actor=actor):
        if not _record_pause_request(session, job, actor, saves=saves, force=force):
            return job
        transitions.record_event(session, job_id, EventType.PAUSE_REQUESTED, actor=actor, data=how)
    audit.record(session, actor=actor, action="job.pause", project=job.project, target=job_id, data=how)
    session.flush()
    session.refresh(job)
    return job


def resume(session: Session, job_id: str, *, actor: str, checkpoint_id: str = "", from_best: bool = False) -> Job:
    """Requeue a paused job, from the chosen checkpoint or from its default start point, or take a pause back.

    Raises IllegalTransition for a job that is neither PAUSED nor about to save and pause, BadSpec for a checkpoint that
    it can't continue from, QuotaExceeded when no more jobs may wait in its queue or project. The caller nudges the node
    after the commit.
    """
    job = transitions.load_for_change(session, job_id)
    if job.requested == "pause" and job.state not in UNHELD:
        _take_pause_back(session, job, actor, chooses=bool(checkpoint_id or from_best))
        return job
    if job.state is not JobState.PAUSED:
        raise IllegalTransition(
            f"job {job_id} is {job.status} and cannot be resumed; only a PAUSED job can: {_instead_of_resume(job)}"
        )
    chosen = start_points.chosen(session, job, checkpoint_id, from_best=from_best)
    limits.refuse_when_full(session, session.get_one(Queue, job.queue))
    project_quotas.refuse_when_full(session, job.project)
    if chosen is not None:
        job.chosen_checkpoint_id = chosen.id
    data, message = _where_it_continues(session, job)
    transitions.transition(
        session,
        job,
        JobState.QUEUED,
        actor=actor,
        reason="resumed",
        message=message,
        data=data,
        not_before_at=None,
        pending_reason="",
    )
    audit.record(session, actor=actor, action="job.resume", project=job.project, target=job_id, data=data)
    session.flush()
    return job


def request_checkpoint(session: Session, job_id: str, *, actor: str) -> Job:
    """Request that the supervisor saves now and continues; each request is one checkpoint.

    Raises IllegalTransition when the job does not train, is about to stop, or its script can't save on request. The
    caller nudges the node after the commit.
    """
    job = transitions.load_for_change(session, job_id)
    refuse_replica(job, "saved", "it has nothing to save: the weights of the service {name} stay as they are")
    if job.kind != TRAINING:
        _refuse_to_save(job, f"is of kind {job.kind}, and each of its shards is stored as soon as it is complete")
    if job.state not in SAVING:
        _refuse_to_save(job, f"is {job.status}; only a job in {', '.join(SAVING)} can")
    if job.requested is not None:
        _refuse_to_save(job, f"is about to stop ({job.requested} requested), which saves by itself where it can")
    if not _saves_on_request(session, job):
        _refuse_to_save(
            job,
            f"{_CANNOT_SAVE}; call trainyard.hooks.init(can_checkpoint=True) and ask run.should_checkpoint() in "
            "its loop",
        )
    job.checkpoint_requests += 1
    job.mark_changed()
    session.flush()
    transitions.record_event(session, job_id, EventType.CHECKPOINT_REQUESTED, actor=actor)
    audit.record(session, actor=actor, action="job.checkpoint", project=job.project, target=job_id)
    session.flush()
    session.refresh(job)
    return job


def refuse_replica(job: Job, done: str, way_out: str) -> None:
    """Raise IllegalTransition for a replica, which its service alone starts and stops; it can be cancelled, though.

    ``{name}`` in ``way_out`` is the service's.
    """
    if job.kind != REPLICA:
        return
    inference = job.document.inference
    name = inference.serving.name if inference is not None else ""
    raise IllegalTransition(
        f"job {job.id} is a replica of the service {name} and cannot be {done}: {way_out.format(name=name)}"
    )


def _require_pausable(session: Session, job: Job, *, may_lose_steps: bool) -> None:
    if job.state in TERMINAL:
        why = f"is {job.status}; only a job that has not ended can"
    elif job.state is JobState.EXPORTING:
        why = "is EXPORTING: its training is done; wait for its end, or cancel it"
    elif job.requested == "cancel":
        why = "is about to be cancelled"
    elif job.state in SAVING and not may_lose_steps and not _saves_on_request(session, job):
        why = (
            f"{_CANNOT_SAVE} (trainyard.hooks.init(can_checkpoint=True)), and what it has done since its last "
            "checkpoint would be lost; set save_checkpoint: false to stop it all the same, and started again "
            "on resume"
        )
    else:
        return
    raise IllegalTransition(f"job {job.id} cannot be paused: it {why}")


def _record_pause_request(session: Session, job: Job, actor: str, *, saves: bool, force: bool) -> bool:
    """Record the pause request; False when it adds nothing to the pending one."""
    if job.requested == "pause":
        wanted = (job.pause_saves and saves, job.pause_force or force)
        if wanted == (job.pause_saves, job.pause_force):
            return False
        job.pause_saves, job.pause_force = wanted
    else:
        # Also replaces a request of the platform (requeue, preempt): the devices are released either way.
        job.pause_saves, job.pause_force = saves, force or job.requested is not None
        job.requested, job.requested_reason, job.requested_by = "pause", "", actor
    job.pause_requested_at = utc_now()
    job.mark_changed()
    session.flush()
    return True


def _take_pause_back(session: Session, job: Job, actor: str, *, chooses: bool) -> None:
    """Ranks that have not stopped yet train on. Others have saved: the attempt's end requeues the job then.

    Raises IllegalTransition for a pause that does not wait for a checkpoint: its ranks are ended by now.
    """
    if not job.pause_saves or job.pause_force:
        why = "it is being stopped for a pause that is forced or does not save"
        raise IllegalTransition(f"job {job.id} cannot be resumed yet: {why}; wait until it is PAUSED")
    if chooses:
        raise IllegalTransition(
            f"job {job.id} cannot continue from a chosen checkpoint yet: it is still saving; wait until it is PAUSED, "
            "or resume it without a checkpoint, which takes the pause back"
        )
    data = {"asked_by": job.requested_by}
    job.requested, job.requested_reason, job.pause_requested_at = None, "", None
    job.mark_changed()
    session.flush()
    message = "continues: the pause was taken back"
    transitions.record_event(
        session, job.id, EventType.PAUSE_WITHDRAWN, actor=actor, reason="resumed", message=message, data=data
    )
    audit.record(
        session, actor=actor, action="job.resume", project=job.project, target=job.id, message=message, data=data
    )
    session.flush()
    session.refresh(job)


def _end_unclaimed(session: Session, job: Job, kind: OutcomeKind, *, message: str, actor: str) -> bool:
    """End an attempt that no node has claimed; False when it was claimed.

    The caller has locked the job, which a claim locks first, so it can't be claimed meanwhile.
    """
    if job.state is not JobState.SCHEDULING:
        return False
    unclaimed = select(Lease).where(Lease.job_id == job.id, Lease.released_at.is_(None), Lease.counter == 0)
    if session.scalar(unclaimed.with_for_update()) is None:
        return False
    asked_at = "cancel_requested_at" if kind == "cancelled" else "pause_requested_at"
    setattr(job, asked_at, utc_now())
    work_orders.end_attempt(session, job, job.attempt, Outcome(kind=kind, message=message), NO_RETRY, actor=actor)
    return True


def _where_it_continues(session: Session, job: Job) -> tuple[dict[str, Any], str]:
    """Where the next attempt of a resumed job starts, as data and in words."""
    if job.kind != TRAINING:
        counted = shards.counts_of(session, job.id)
        message = f"continues after {counted.shards} stored shards with {counted.records} records"
        return {"shards": counted.shards, "records": counted.records}, message
    start = start_points.next_start(session, job)
    if start is None:
        return {"checkpoint_id": None, "step": 0}, "starts with step 0"
    return {"checkpoint_id": start.id, "step": start.step}, f"continues from {start.id} at step {start.step}"


def _instead_of_resume(job: Job) -> str:
    if job.state in TERMINAL:
        return "retry creates a new job from one that has ended"
    return "this one continues by itself"


def _saves_on_request(session: Session, job: Job) -> bool:
    """Built-in trainers always do; a script has to declare it, in this attempt or an earlier one."""
    return job.framework != parsing.CUSTOM or work_orders.can_save_on_request(session, job.id)


def _refuse_to_save(job: Job, why: str) -> NoReturn:
    raise IllegalTransition(f"job {job.id} cannot save a checkpoint now: it {why}")
