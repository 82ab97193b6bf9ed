"""What is known of a population when all of its members have halted at one rung, and what follows from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps.population import Member, Replacement, ranked, replacements
from app.domain.sweeps.rules.limits import SweepLimits
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Checkpoint, Job, Sweep, Trial, TrialReport
from app.services.sweeps import budget
from app.services.sweeps.halting.halted import halted_trials


@dataclass(frozen=True, kw_only=True)
class HaltedGeneration:
    """``places``: ranks by the number of the member, 1 is the best. ``checkpoints``: ids of this halt, by number."""

    rung: int
    places: Mapping[int, int]
    replacements: Sequence[Replacement]
    checkpoints: Mapping[int, str]


def complete_generation(
    session: Session, sweep: Sweep, spec: SweepSpec, limits: SweepLimits
) -> HaltedGeneration | None:
    """The members at the lowest rung of which any waits; None while one has yet to get there, or to be made."""
    halted = halted_trials(session, sweep)
    if not halted:
        return None
    rung = min(report.rung for _, _, report in halted)
    there = [(trial, job, report) for trial, job, report in halted if report.rung == rung]
    if _is_awaited(session, sweep, rung) or not _is_whole(session, sweep, spec):
        return None
    found = _checkpoints(session, [job.id for _, job, _ in there], rung)
    members = [member_of(spec, report, has_checkpoint=job.id in found) for _, job, report in there]
    return HaltedGeneration(
        rung=rung,
        places={member.number: place for place, member in enumerate(ranked(members), start=1)},
        replacements=replacements(members, most=_forks_left(session, sweep, spec, limits)),
        checkpoints={trial.number: found[job.id] for trial, job, _ in there if job.id in found},
    )


def member_of(spec: SweepSpec, report: TrialReport, *, has_checkpoint: bool) -> Member:
    value = math.inf if report.value is None else spec.objectives[0].sign * report.value
    return Member(number=report.number, value=value, has_checkpoint=has_checkpoint)


def _is_awaited(session: Session, sweep: Sweep, rung: int) -> bool:
    """Whether a living member has yet to reach the rung. One that has ended holds no other up."""
    query = (
        select(Trial.number)
        .join(Job, Job.id == Trial.job_id)
        .where(
            Trial.sweep_id == sweep.id,
            Trial.state == TrialState.RUNNING,
            Trial.stop_reason == "",
            func.coalesce(Trial.rung, 0) < rung,
            Trial.fork_step < rung,
            Job.status.not_in(TERMINAL),
        )
    )
    return session.scalar(query.limit(1)) is not None


def _is_whole(session: Session, sweep: Sweep, spec: SweepSpec) -> bool:
    """Whether every member of the first generation was made, or none is made any more."""
    made = select(func.count()).where(Trial.sweep_id == sweep.id, Trial.source.in_(("method", "enqueued")))
    return sweep.status == SweepState.FINISHING or (session.scalar(made) or 0) >= spec.method.population


def _forks_left(session: Session, sweep: Sweep, spec: SweepSpec, limits: SweepLimits) -> int:
    """How many trials the budget allows yet."""
    so_far = budget.used_of(session, sweep, spec)
    if sweep.status != SweepState.RUNNING or budget.exhausted(session, sweep, spec, so_far, limits):
        return 0
    most = budget.most_trials(spec, limits)
    return spec.method.population if most is None else most - sweep.next_number


def _checkpoints(session: Session, job_ids: Sequence[str], step: int) -> dict[str, str]:
    """The newest checkpoint of each job that was saved at this step, by the job's id."""
    query = select(Checkpoint.job_id, Checkpoint.id).where(
        Checkpoint.job_id.in_(job_ids),
        Checkpoint.step == step,
        Checkpoint.deleted_at.is_(None),
        Checkpoint.diverged.is_(False),
    )
    rows = session.execute(query.order_by(Checkpoint.attempt, Checkpoint.id))
    return {row.job_id: row.id for row in rows}
