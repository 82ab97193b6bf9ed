"""Halts at which a trial has stood before: its job was rolled back to an earlier checkpoint, and has halted again."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.halts import halted_at
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.promotions import halts
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Job, Sweep, Trial, TrialReport
from app.services.sweeps import rung_reports


def halted_again(session: Session, sweep: Sweep) -> set[int]:
    """Numbers of the trials that stand at a halt about which their sweep has decided: they continue at once.

    One that stands at a later halt has a report that is yet to be recorded. One that a person has paused stays, which
    the reason of its job tells apart. The step of a trial's value tells nothing: it may lie before the halt.
    """
    spec = SweepSpec.from_json(sweep.spec)
    if not halts(spec):
        return set()
    of_trial = (TrialReport.sweep_id == Trial.sweep_id) & (TrialReport.number == Trial.number)
    query = (
        select(Trial, Job)
        .join(Job, Job.id == Trial.job_id)
        .join(TrialReport, of_trial & (TrialReport.rung == Trial.rung))
        .where(
            Trial.sweep_id == sweep.id,
            Trial.state == TrialState.RUNNING,
            Trial.stop_reason == "",
            Trial.paused.is_(False),
            TrialReport.decided_seq.is_not(None),
            Job.status == JobState.PAUSED,
        )
    )
    return {
        row.Trial.number
        for row in session.execute(query)
        if row.Job.status_reason == halted_at(row.Job.current_step)
        and not rung_reports.is_due(session, spec, row.Trial, row.Job)
    }
