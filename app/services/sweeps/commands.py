"""Commands for a sweep that exists: pause, resume, stop, cancel, change, delete. One transaction each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete as sql_delete
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.domain.errors import Conflict, IllegalTransition, InvalidRequest
from app.domain.lifecycle.states import TERMINAL as JOB_ENDED
from app.domain.spec.model import JobDocument
from app.domain.sweeps.documents import with_priority
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.rules.document import check_other_budget
from app.domain.sweeps.rules.limits import SweepLimits
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TERMINAL, SweepState
from app.models import Job, Sweep
from app.security.permissions import Caller
from app.services.jobs import deletion
from app.services.jobs.control import requests as control_requests
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.sweeps import budget, history, lookup, resuming
from app.services.sweeps.halting.halted import halted_trials
from app.services.sweeps.stepping import cancel_trials

RESUMED = "resumed"  # status reason of a sweep that was paused
CHANGEABLE = ("budget", "priority", "labels")
_CHANGED_IN = (*(state for state in SweepState if state not in TERMINAL), SweepState.COMPLETED)
DELETING_SECONDS = 10.0  # of a request that deletes jobs; a coordinator deletes the others


@dataclass(frozen=True, kw_only=True)
class Deleted:
    """``jobs`` are deleted with the sweep; ``jobs_left`` of them are still there, and a coordinator deletes them."""

    sweep_id: str
    jobs: int
    jobs_left: int


def pause(
    plane: ControlPlane,
    caller: Caller,
    sweep_id: str,
    *,
    finish_trials: bool = False,
    force: bool = False,
    on_written: OnWritten = not_stored,
) -> Sweep:
    """Make no new trial, and have the running ones saved and paused; ``finish_trials`` lets them end instead.

    ``force``: also those that can't save, which begin anew. Idempotent. Raises
    IllegalTransition for a sweep that is ending or has ended.
    """
    to_nudge: list[Job] = []
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        if sweep.status != SweepState.PAUSED:
            _require(sweep, "paused", SweepState.PENDING, SweepState.RUNNING)
            history.move(session, sweep, SweepState.PAUSED, actor=caller.actor, reason="paused")
        at_rungs = {trial.number for trial, _, _ in halted_trials(session, sweep)}
        for trial, job in [] if finish_trials else lookup.locked_jobs(session, sweep):
            if job.state in JOB_ENDED or trial.number in at_rungs:
                continue
            try:
                asked = control_requests.request_pause(session, job.id, actor=caller.actor, force=force)
            except IllegalTransition as error:  # it is ending, or its script can't save: it runs on
                _warn(session, sweep, caller, f"trial {trial.number} can't be paused and runs on: {error.message}")
                continue
            trial.paused = True
            to_nudge += [asked] if asked.requested == "pause" else []
        on_written(session, sweep)
    for job in to_nudge:
        plane.nudge(job)
    return sweep


def resume(plane: ControlPlane, caller: Caller, sweep_id: str, *, on_written: OnWritten = not_stored) -> Sweep:
    """Make trials again, in the name of the caller, and resume those that are paused.

    Raises IllegalTransition for a sweep that is not PAUSED.
    """
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        _require(sweep, "resumed", SweepState.PAUSED)
        sweep.submits_as = caller.key_id
        history.move(session, sweep, SweepState.RUNNING, actor=caller.actor, reason=RESUMED)
        session.flush()
        resuming.resume_paused(session, sweep, actor=caller.actor)
        on_written(session, sweep)
    return sweep


def stop(plane: ControlPlane, caller: Caller, sweep_id: str, *, on_written: OnWritten = not_stored) -> Sweep:
    """Make no new trial; the sweep completes when those that run have ended. Idempotent.

    Raises IllegalTransition when it has ended.
    """
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        if sweep.status != SweepState.FINISHING:
            _require(sweep, "stopped", SweepState.PENDING, SweepState.RUNNING, SweepState.PAUSED)
            sweep.ends_as = SweepState.COMPLETED
            history.move(session, sweep, SweepState.FINISHING, actor=caller.actor, reason="stopped")
            session.flush()
            resuming.resume_paused(session, sweep, actor=caller.actor)
        on_written(session, sweep)
    return sweep


def cancel(
    plane: ControlPlane, caller: Caller, sweep_id: str, *, reason: str = "", on_written: OnWritten = not_stored
) -> Sweep:
    """Make no new trial and cancel those that run. Idempotent. Raises IllegalTransition when it has ended otherwise."""
    to_nudge: list[Job] = []
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        if SweepState.CANCELLED not in (sweep.status, sweep.ends_as):
            _require(
                sweep, "cancelled", *(SweepState.PENDING, SweepState.RUNNING, SweepState.PAUSED, SweepState.FINISHING)
            )
            sweep.ends_as = SweepState.CANCELLED
            why = f"cancelled: {reason}" if reason else "cancelled"
            to_nudge = cancel_trials(session, sweep, actor=caller.actor, reason=why)
            if sweep.status != SweepState.FINISHING:
                history.move(
                    session, sweep, SweepState.FINISHING, actor=caller.actor, reason="cancelled", message=reason
                )
            else:
                sweep.status_reason = why
                sweep.mark_changed()
                history.record(session, sweep, SweepEventType.CHANGED, actor=caller.actor, message=why)
                audit.record(
                    session,
                    actor=caller.actor,
                    action="sweep.cancel",
                    project=sweep.project,
                    target=sweep.id,
                    message=why,
                )
        on_written(session, sweep)
    for job in to_nudge:
        plane.nudge(job)
    return sweep


def change(
    plane: ControlPlane,
    caller: Caller,
    sweep_id: str,
    changes: Mapping[str, Any],
    *,
    on_written: OnWritten = not_stored,
) -> Sweep:
    """Set parts of the budget, the priority of further trials, or labels; labels are replaced as a whole.

    A larger budget lets a completed sweep continue with what it knows. Raises InvalidRequest when nothing is named,
    IllegalTransition for more than labels of a sweep that was cancelled or has failed, and Conflict when another change
    came between.
    """
    if not changes:
        raise InvalidRequest(f"the body names nothing to change; name at least one of {', '.join(CHANGEABLE)}")
    checked = _checked(plane, caller, sweep_id, changes["budget"]) if "budget" in changes else None
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        if set(changes) != {"labels"}:
            _require(sweep, "changed in more than its labels", *_CHANGED_IN)
        before = dict(sweep.spec)
        if checked is not None and checked != before:
            raise Conflict(f"sweep {sweep.id} was changed meanwhile; repeat the request")
        _apply(sweep, changes)
        message = f"changed: {', '.join(sorted(changes))}"
        data = {"changes": dict(changes)}
        history.record(session, sweep, SweepEventType.CHANGED, actor=caller.actor, message=message, data=data)
        audit.record(
            session, actor=caller.actor, action="sweep.change", project=sweep.project, target=sweep.id, data=data
        )
        if before["budget"] != sweep.spec["budget"]:
            _continue(session, sweep, caller, plane.sweep_limits)
        on_written(session, sweep)
    return sweep


def delete(plane: ControlPlane, caller: Caller, sweep_id: str, *, jobs: bool = False) -> Deleted:
    """Delete a sweep that has ended, with its trials' records; ``jobs``: also their jobs with their files.

    Raises IllegalTransition before its end, and StillNeeded while another job reads from one of its jobs.
    """
    ids: Sequence[str] = ()
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        _require(sweep, "deleted", *TERMINAL)
        if jobs:
            ids = deletion.begin_for_sweep(session, plane.reading, caller, sweep.id)
        _release_jobs(session, sweep)
        audit.record(
            session,
            actor=caller.actor,
            action="sweep.delete",
            project=sweep.project,
            target=sweep.id,
            data={"name": sweep.name, "status": sweep.status, **({"jobs": len(ids)} if jobs else {})},
        )
        session.flush()
        session.execute(sql_delete(Sweep).where(Sweep.id == sweep.id).execution_options(synchronize_session=False))
    return Deleted(sweep_id=sweep_id, jobs=len(ids), jobs_left=deletion.finish(plane, ids, seconds=DELETING_SECONDS))


def _release_jobs(session: Session, sweep: Sweep) -> None:
    of_it = select(Job.id).where(Job.sweep_id == sweep.id).order_by(Job.id)
    session.scalars(of_it.with_for_update()).all()  # a plain update would lock them in arbitrary order
    session.execute(
        update(Job).where(Job.sweep_id == sweep.id).values(sweep_id=None).execution_options(synchronize_session=False)
    )


def _continue(session: Session, sweep: Sweep, caller: Caller, limits: SweepLimits) -> None:
    """A sweep that has completed, or is about to, makes trials again if its budget now allows them."""
    completes = sweep.status == SweepState.FINISHING and sweep.ends_as == SweepState.COMPLETED
    if sweep.status != SweepState.COMPLETED and not completes:
        return
    spec = SweepSpec.from_json(sweep.spec)
    if not budget.exhausted(session, sweep, spec, budget.used_of(session, sweep, spec), limits):
        sweep.ends_as, sweep.finished_at = None, None
        history.move(session, sweep, SweepState.RUNNING, actor=caller.actor, reason="budget changed")


def _checked(plane: ControlPlane, caller: Caller, sweep_id: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec with which these changes of the budget were checked: to walk a grid takes seconds, which may not be
    spent in a transaction that keeps all others from writing.
    """
    with plane.db.read() as session:
        sweep = lookup.find(session, caller, sweep_id)
        _require(sweep, "changed", *_CHANGED_IN)
        spec = dict(sweep.spec)
    check_other_budget(
        SweepSpec.from_json(_with_budget(spec, changes)), plane.sweep_limits if "max_trials" in changes else None
    )
    return spec


def _with_budget(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec, "budget": {**spec["budget"], **changes}}


def _apply(sweep: Sweep, changes: Mapping[str, Any]) -> None:
    if "labels" in changes:
        sweep.labels = dict(changes["labels"])
    if "priority" in changes:
        document = JobDocument.from_json(sweep.base)
        scheduling = document.scheduling_config.changed(priority=changes["priority"])
        sweep.base = document.changed(scheduling_config=scheduling).to_json()
        # What answers show, and what a fork begins with.
        sweep.spec = {**sweep.spec, "job": with_priority(sweep.spec["job"], changes["priority"])}
    if "budget" in changes:
        sweep.spec = _with_budget(sweep.spec, changes["budget"])
    sweep.mark_changed()


def _require(sweep: Sweep, verb: str, *states: SweepState) -> None:
    if sweep.status not in states:
        raise IllegalTransition(
            f"sweep {sweep.id} is {sweep.status} and cannot be {verb}; only one that is {' or '.join(states)} can"
        )


def _warn(session: Session, sweep: Sweep, caller: Caller, message: str) -> None:
    history.record(session, sweep, SweepEventType.WARNING, actor=caller.actor, message=message)
