"""Halts at which a trial has stood before: its job was rolled back to an earlier checkpoint, and has halted again."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.halts import halted_at
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.states import TrialState
from app.models import Job, Sweep, Trial, TrialReport


def halted_again(session: Session, sweep: Sweep) -> set[int]:
    """Numbers of the trials that stand at a halt about which their sweep has decided: they continue at once.

    One that a person has paused there stays, which the reason of its job tells apart.
    """
    of_trial = (TrialReport.sweep_id == Trial.sweep_id) & (TrialReport.number == Trial.number)
    query = (
        select(Trial.number, Job.status_reason, Job.current_step)
        .join(Job, Job.id == Trial.job_id)
        .join(TrialReport, of_trial & (TrialReport.rung == Trial.rung))
        .where(
            Trial.sweep_id == sweep.id,
            Trial.state == TrialState.RUNNING,
            Trial.stop_reason == "",
            Trial.paused.is_(False),
            TrialReport.decided_seq.is_not(None),
            Job.status == JobState.PAUSED,
            Job.current_step <= Trial.step,
        )
    )
    return {row.number for row in session.execute(query) if row.status_reason == halted_at(row.current_step)}
