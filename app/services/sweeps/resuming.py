"""Resumes the trials that their sweep has paused, once the sweep itself continues.

A job that is still saving becomes PAUSED a moment later, and a full queue takes no job back yet: the coordinator tries
again until each of them runs, or has ended. A trial that has halted at a rung meanwhile stays there: its sweep decides.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import LimitExceeded
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.promotions import halts
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.services.jobs.control import requests as control_requests
from app.services.sweeps import lookup, rung_reports
from app.services.sweeps.forking.room import room_for_members
from app.services.sweeps.halting.halted import halted_trials
from app.services.sweeps.halting.repeated import halted_again

_CONTINUING = (SweepState.RUNNING, SweepState.FINISHING)
_STAYS = " stays paused: "  # part of the reason why one of them waits


def has_paused(session: Session, sweep: Sweep) -> bool:
    """Whether `resume_paused` would change anything."""
    of_it = (Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING, Trial.paused)
    query = select(Trial.number).where(*of_it).join(Job, Job.id == Trial.job_id)
    if sweep.status not in _CONTINUING or room_for_members(session, sweep) == 0:
        return False
    is_settled = (Job.status == JobState.PAUSED) | Job.requested.is_distinct_from("pause")
    if _STAYS in sweep.pending_reason:  # until none of them waits any more
        return True
    return session.scalar(query.where(is_settled).limit(1)) is not None or bool(halted_again(session, sweep))


def resume_paused(session: Session, sweep: Sweep, *, actor: str) -> None:
    """Requeue those that are PAUSED; the caller has locked the sweep, which makes trials or lets them end."""
    if not has_paused(session, sweep):
        return
    halted = {trial.number for trial, _, _ in halted_trials(session, sweep)}
    again = halted_again(session, sweep)
    spec, room, reason = SweepSpec.from_json(sweep.spec), room_for_members(session, sweep), ""
    for trial, job in lookup.locked_jobs(session, sweep):
        if not (trial.paused or trial.number in again) or job.requested == "pause":
            continue
        if halts(spec) and rung_reports.is_due(session, spec, trial, job):
            continue  # it has halted meanwhile, and its sweep has yet to record that
        if job.state is JobState.PAUSED and trial.number not in halted:
            if room is not None and room < 1:
                continue  # until another member has halted
            try:
                control_requests.resume(session, job.id, actor=actor)
            except LimitExceeded as error:
                reason = reason or f"trial {trial.number}{_STAYS}{error.message}"
                continue
            room = room - 1 if room is not None else None
        trial.paused = False
    _note(sweep, reason)


def _note(sweep: Sweep, reason: str) -> None:
    """Say why one of them waits, or that none does, unless the sweep makes no trial for another reason."""
    is_free = not sweep.pending_reason or _STAYS in sweep.pending_reason
    if is_free and sweep.pending_reason != reason:
        sweep.pending_reason = reason
        sweep.mark_changed()
