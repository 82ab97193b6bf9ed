"""Resumes the trials that their sweep has paused, once the sweep itself continues.

A job that is still saving becomes PAUSED a moment later, and a full queue takes no job back yet: the coordinator tries
again until each of them runs, or has ended.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import LimitExceeded
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.services.jobs import control_requests
from app.services.sweeps import lookup

_CONTINUING = (SweepState.RUNNING, SweepState.FINISHING)


def has_paused(session: Session, sweep: Sweep) -> bool:
    """Whether `resume_paused` would change anything."""
    of_it = (Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING, Trial.paused)
    query = select(Trial.number).where(*of_it).join(Job, Job.id == Trial.job_id)
    is_settled = (Job.status == JobState.PAUSED) | Job.requested.is_distinct_from("pause")
    return sweep.status in _CONTINUING and session.scalar(query.where(is_settled).limit(1)) is not None


def resume_paused(session: Session, sweep: Sweep, *, actor: str) -> None:
    """Requeue those that are PAUSED; the caller has locked the sweep, which makes trials or lets them end."""
    if not has_paused(session, sweep):
        return
    for trial, job in lookup.locked_jobs(session, sweep):
        if not trial.paused or job.requested == "pause":
            continue
        if job.state is JobState.PAUSED:
            try:
                control_requests.resume(session, job.id, actor=actor)
            except LimitExceeded as error:
                sweep.pending_reason = f"trial {trial.number} stays paused: {error.message}"
                continue
        trial.paused = False
