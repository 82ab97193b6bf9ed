"""Room for members of a population: with fewer `parallel_trials` than members, one trains after another has halted."""

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.sweeps.spec import PBT, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Job, Sweep, Trial

_WAITING = (JobState.PENDING, JobState.QUEUED)
_HOLDS_NOTHING = (JobState.PAUSED, *TERMINAL)


def room_for_members(session: Session, sweep: Sweep) -> int | None:
    """How many paused trials may continue now; None: all of them, because the sweep has no population."""
    spec = SweepSpec.from_json(sweep.spec)
    if spec.method.name != PBT:
        return None
    of_it = (Trial.sweep_id == sweep.id) & (Trial.state == TrialState.RUNNING)
    running = select(func.count()).select_from(Job).join(Trial, Trial.job_id == Job.id).where(of_it)
    limit = spec.budget.parallel_trials
    if isinstance(limit, int):
        return max(0, limit - (session.scalar(running.where(Job.status.not_in(_HOLDS_NOTHING))) or 0))
    # As many as there are devices for: the next one when none waits.
    return 0 if session.scalar(running.where(Job.status.in_(_WAITING))) else 1
