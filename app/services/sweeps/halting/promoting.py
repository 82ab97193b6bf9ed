"""Decides which halted trials of `asha` and `hyperband` continue, and which end because none of them can win any more.

While a sweep makes trials, a place that becomes free goes to a halted trial that has earned it (`promotions`), or else
to a new trial. Once no trial is made any more, each rung's best continue, so that one trial completes, and the others
end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import JobState
from app.domain.sweeps.promotions import Ladder, Standing, waits
from app.domain.sweeps.spec import PBT, SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Sweep, Trial
from app.services.jobs.control import requests as control_requests
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import budget, lookup, resuming
from app.services.sweeps.halting import decisions
from app.services.sweeps.halting.halted import Halted, halted_trials, has_room, load_of
from app.services.sweeps.history import ACTOR

_DECIDES = (SweepState.RUNNING, SweepState.FINISHING)


@dataclass(frozen=True)
class HaltDecision:
    """What becomes of halted trials now."""

    continues: Sequence[Standing] = ()
    ends: Sequence[Standing] = ()

    def __bool__(self) -> bool:
        return bool(self.continues or self.ends)


def promote(plane: ControlPlane, sweep_id: str) -> bool:
    """Decide about halted trials as far as that is due; whether to ask again at once."""
    with plane.db.read() as session:
        sweep = session.get(Sweep, sweep_id)
        if sweep is None or not _decides(sweep, SweepSpec.from_json(sweep.spec)):
            return False
        if not _choice(session, sweep, SweepSpec.from_json(sweep.spec)):
            return False
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        spec = SweepSpec.from_json(sweep.spec)
        return _decides(sweep, spec) and _apply(session, sweep, _choice(session, sweep, spec), actor=ACTOR)


def continue_promoted(session: Session, sweep: Sweep, *, actor: str) -> None:
    """Continue the halted trials that were promoted by hand; the caller has locked the sweep, and flushed.

    Their jobs are requeued once a paused sweep is resumed, and those of a population when there is room.
    """
    spec = SweepSpec.from_json(sweep.spec)
    halted = halted_trials(session, sweep)
    if waits(spec) and any(trial.promoted for trial, _, _ in halted):
        ladder = _ladder(session, sweep, spec, halted)
        _apply(session, sweep, HaltDecision(continues=_by_hand(halted, ladder)), actor=actor)


def _apply(session: Session, sweep: Sweep, choice: HaltDecision, *, actor: str) -> bool:
    """Write the decisions and what follows from them; the caller has locked the sweep. Whether there were any."""
    by_number = {trial.number: (trial, report) for trial, _, report in halted_trials(session, sweep)}
    for each in choice.continues:
        decisions.continue_trial(session, sweep, *by_number[each.report.number], rank=each.rank, of=each.of)
    for each in choice.ends:
        decisions.end_trial(session, sweep, *by_number[each.report.number], rank=each.rank, of=each.of)
    session.flush()
    resuming.resume_paused(session, sweep, actor=actor)
    for trial, job in lookup.locked_jobs(session, sweep) if choice.ends else ():
        if trial.stop_reason and job.state is JobState.PAUSED:
            why = f"stopped by its sweep: {trial.stop_reason}"
            control_requests.request_cancel(session, job.id, actor=actor, reason=why)
    return bool(choice)


def _decides(sweep: Sweep, spec: SweepSpec) -> bool:
    return sweep.status in _DECIDES and waits(spec) and spec.method.name != PBT


def _choice(session: Session, sweep: Sweep, spec: SweepSpec) -> HaltDecision:
    halted = halted_trials(session, sweep)
    by_hand = any(trial.promoted for trial, _, _ in halted)
    room, is_last = has_room(session, sweep, spec), sweep.status == SweepState.FINISHING
    if not halted or not (by_hand or room or is_last):
        return HaltDecision()
    ladder = _ladder(session, sweep, spec, halted)
    if is_last and sweep.ends_as != SweepState.COMPLETED:
        return HaltDecision(ends=ladder.waiting())
    if by_hand:
        return HaltDecision(continues=_by_hand(halted, ladder))
    if spec.deterministic and _is_amid_generation(session, sweep, spec):
        return HaltDecision()
    earned = ladder.take(_at_once(spec)) if room else []
    if earned or not is_last:
        return HaltDecision(continues=earned)
    return _last(session, sweep, spec, ladder)


def _ladder(session: Session, sweep: Sweep, spec: SweepSpec, halted: Sequence[Halted]) -> Ladder:
    keys = {(report.number, report.rung) for _, _, report in halted}
    ladder = Ladder(spec.early_stopping)
    for each in decisions.reports_of(session, sweep, spec):
        ladder.add(each, waits=(each.number, each.rung) in keys)
    return ladder


def _by_hand(halted: Sequence[Halted], ladder: Ladder) -> list[Standing]:
    promoted = {trial.number for trial, _, _ in halted if trial.promoted}
    return [each for each in ladder.waiting() if each.report.number in promoted]


def _is_amid_generation(session: Session, sweep: Sweep, spec: SweepSpec) -> bool:
    """A deterministic sweep decides when none of its trials runs, and the generation is complete: then every report is
    there that a decision rests on, however fast the nodes are.
    """
    is_complete = sweep.status == SweepState.FINISHING or sweep.next_number % _at_once(spec) == 0
    return load_of(session, sweep).alive > 0 or not is_complete


def _at_once(spec: SweepSpec) -> int:
    """Decisions of one transaction: of a deterministic sweep those that fill all places."""
    limit = spec.budget.parallel_trials
    return limit if spec.deterministic and isinstance(limit, int) else 1


def _last(session: Session, sweep: Sweep, spec: SweepSpec, ladder: Ladder) -> HaltDecision:
    """No trial is made any more: continue what completes at least one trial, and end what can't win.

    When more than its trials is used up of the budget, a halted trial that has not earned its place ends at once.
    """
    runs, is_spent = load_of(session, sweep).alive > 0, budget.is_spent(session, sweep, spec)
    if runs and not is_spent:
        return HaltDecision()
    needed = None if _has_completed(session, sweep) else ladder.best()
    if not runs:
        limit = spec.budget.parallel_trials
        continues = [] if is_spent else ladder.take(limit if isinstance(limit, int) else 1, least=1)
        continues = continues or ([needed] if needed else [])
        return HaltDecision(continues=continues) if continues else HaltDecision(ends=ladder.waiting())
    ladder.take(len(ladder.waiting()))  # they have earned to continue as soon as there is room
    return HaltDecision(ends=[each for each in ladder.waiting() if each != needed])


def _has_completed(session: Session, sweep: Sweep) -> bool:
    query = select(Trial.number).where(Trial.sweep_id == sweep.id, Trial.state == TrialState.COMPLETED)
    return session.scalar(query.limit(1)) is not None
