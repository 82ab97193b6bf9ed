"""Which trials of a sweep are halted, and whether there is room for one of them to continue."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Job, Sweep, Trial, TrialReport

WAITING = (JobState.PENDING, JobState.QUEUED)
Halted = tuple[Trial, Job, TrialReport]
_IS_NEWEST = (
    (TrialReport.sweep_id == Trial.sweep_id) & (TrialReport.number == Trial.number) & (TrialReport.rung == Trial.rung)
)


@dataclass(frozen=True)
class TrialLoad:
    """Trials that have, or wait for, devices, and those of them that wait, be it until the queue takes them back."""

    alive: int
    waiting: int


def halted_trials(session: Session, sweep: Sweep) -> Sequence[Halted]:
    """Running trials whose jobs are PAUSED by a halt and whose newest reports are undecided, by number.

    Those whose end was requested are not among them.
    """
    query = select(Trial, Job, TrialReport).join(Job, Job.id == Trial.job_id).join(TrialReport, _IS_NEWEST)
    query = query.where(*_are_halted(sweep.id), Trial.stop_reason == "").order_by(Trial.number)
    return [(row.Trial, row.Job, row.TrialReport) for row in session.execute(query)]


def count(session: Session, sweep_id: str) -> int:
    query = select(func.count()).select_from(Trial).join(Job, Job.id == Trial.job_id).join(TrialReport, _IS_NEWEST)
    return session.scalar(query.where(*_are_halted(sweep_id))) or 0


def load_of(session: Session, sweep: Sweep) -> TrialLoad:
    """A halted trial is no load: its place is free for another."""
    query = select(Job.status, func.count()).select_from(Trial).outerjoin(Job, Job.id == Trial.job_id)
    query = query.where(Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING).group_by(Job.status)
    by_status = dict(session.execute(query).all())  # None: of jobs that were deleted
    alive, waiting = sum(by_status.values()), sum(by_status.get(status, 0) for status in WAITING)
    if not by_status.get(JobState.PAUSED):
        return TrialLoad(alive, waiting)
    return TrialLoad(alive - count(session, sweep.id), waiting + _to_be_requeued(session, sweep.id))


def has_room(session: Session, sweep: Sweep, spec: SweepSpec) -> bool:
    """Whether one more trial may continue: at most one waits for devices, as of new trials."""
    load, limit = load_of(session, sweep), spec.budget.parallel_trials
    if isinstance(limit, int) and load.alive >= limit:
        return False
    return load.alive == 0 or load.waiting == 0


def undecided(session: Session, sweep: Sweep) -> Sequence[TrialReport]:
    """Reports that wait for a decision, in the order in which they were recorded."""
    query = select(TrialReport).where(TrialReport.sweep_id == sweep.id, TrialReport.decided_seq.is_(None))
    return session.scalars(query.order_by(TrialReport.seq)).all()


def _to_be_requeued(session: Session, sweep_id: str) -> int:
    """Trials that continue as soon as the queue takes them back: a full one has not yet."""
    is_undecided = select(TrialReport.seq).where(_IS_NEWEST, TrialReport.decided_seq.is_(None)).exists()
    of_it = (Trial.sweep_id == sweep_id, Trial.state == TrialState.RUNNING, Trial.paused, Trial.stop_reason == "")
    query = select(func.count()).select_from(Trial).join(Job, Job.id == Trial.job_id)
    return session.scalar(query.where(*of_it, Job.status == JobState.PAUSED, ~is_undecided)) or 0


def _are_halted(sweep_id: str) -> tuple[ColumnElement[bool], ...]:
    return (
        Trial.sweep_id == sweep_id,
        Trial.state == TrialState.RUNNING,
        Job.status == JobState.PAUSED,
        TrialReport.decided_seq.is_(None),
    )
