"""Population based training: when all members have halted at a rung, forks of the best take the places of the worst.

One transaction holds everything that is decided: the reports, the ends of the losers, the forks, and which members
continue. A fork's job pins the checkpoint that it begins with from the same transaction on, before its winner continues
and saves another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from app.domain.errors import InvalidRequest, LimitExceeded, Unauthenticated
from app.domain.lifecycle.states import JobState
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.population import explored, ordinal, replaced_by
from app.domain.sweeps.spec import PBT, SweepSpec
from app.domain.sweeps.states import SweepState
from app.models import Job, Sweep, Trial, TrialReport
from app.services.jobs.control import requests as control_requests
from app.services.jobs.submission import Checked
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import history, lookup, next_trial, resuming, trials
from app.services.sweeps.forking.generations import HaltedGeneration, complete_generation
from app.services.sweeps.forking.room import room_for_members
from app.services.sweeps.halting.halted import halted_trials
from app.services.sweeps.history import ACTOR
from app.services.sweeps.trials import Fork, NewTrial

_DECIDES = (SweepState.RUNNING, SweepState.FINISHING)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """``refusal``: why members are not replaced that would be; empty: ``forks`` replaces all of them, in order."""

    seen: Sweep
    spec: SweepSpec
    generation: HaltedGeneration
    forks: Sequence[tuple[NewTrial, Checked]] = ()
    refusal: str = ""


@dataclass(frozen=True, kw_only=True)
class _Written:
    """``to_nudge``: jobs with a new control request; ``to_admit``: new jobs."""

    to_nudge: Sequence[Job]
    to_admit: Sequence[Job]


def decide(plane: ControlPlane, sweep_id: str) -> bool:
    """Decide about a population of which all members have halted; whether there was anything to decide."""
    with plane.db.read() as session:
        sweep = session.get(Sweep, sweep_id)
        if sweep is None or sweep.status not in _DECIDES:
            return False
        spec = SweepSpec.from_json(sweep.spec)
        found = _generation(session, plane, sweep, spec)
    if found is None:
        return False
    try:
        return _carry_out(plane, _planned(plane, sweep, spec, found))
    except LimitExceeded as error:
        next_trial.wait(plane, sweep_id, error.message)
    except Unauthenticated:
        next_trial.wait(plane, sweep_id, next_trial.KEY_ENDED)
    return False


def _planned(plane: ControlPlane, sweep: Sweep, spec: SweepSpec, generation: HaltedGeneration) -> _Plan:
    """The forks, whose documents are checked before the transaction."""
    plan = _Plan(seen=sweep, spec=spec, generation=generation)
    try:
        forks = [_fork(plane, plan, place) for place in range(len(generation.replacements))]
    except InvalidRequest as error:
        return replace(plan, refusal=error.message)
    return replace(plan, forks=forks)


def _fork(plane: ControlPlane, plan: _Plan, place: int) -> tuple[NewTrial, Checked]:
    """With explored values, or with those of the winner where a rule refuses a document with them.

    Raises InvalidRequest when it refuses both.
    """
    sweep, winner = plan.seen, plan.generation.replacements[place].winner.number
    with plane.db.read() as session:
        values = dict(session.get_one(Trial, (sweep.id, winner)).values)
    new = NewTrial(
        number=sweep.next_number + place,
        values=explored(next_trial.space_of(plan.spec), values, plan.spec.method, sweep.next_number + place),
        source="exploited",
        seen_seq=sweep.seq + 1,
        fork=Fork(parent_number=winner, checkpoint_id=plan.generation.checkpoints[winner], step=plan.generation.rung),
    )
    try:
        return new, trials.check(plane, sweep, new, estimates_wait=False)
    except InvalidRequest as error:
        note = f"with the values of trial {winner}, because explored ones were refused: {error.message}"
        new = replace(new, values=values, note=note)
        return new, trials.check(plane, sweep, new, estimates_wait=False)


def _carry_out(plane: ControlPlane, plan: _Plan) -> bool:
    """Write the decision; whether it was written, and not out of date."""
    try:
        with plane.db.write() as session:
            written = _write(session, plane, plan)
    except InvalidRequest as error:  # of a fork that is stored: its checkpoint was deleted meanwhile, for example
        with plane.db.write() as session:
            written = _write(session, plane, replace(plan, forks=(), refusal=error.message))
    if written is None:
        return False
    for job in written.to_nudge:
        plane.nudge(job)
    for job in written.to_admit:
        plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
    return True


def _generation(session: Session, plane: ControlPlane, sweep: Sweep, spec: SweepSpec) -> HaltedGeneration | None:
    return complete_generation(session, sweep, spec, plane.sweep_limits) if spec.method.name == PBT else None


def _write(session: Session, plane: ControlPlane, plan: _Plan) -> _Written | None:
    """None when the plan is out of date; nothing is written then."""
    sweep, found = lookup.locked(session, plan.seen.id), plan.generation
    lookup.locked_jobs(session, sweep)  # before one of them is changed
    is_same = all(getattr(sweep, name) == getattr(plan.seen, name) for name in ("status", "next_number", "seq"))
    if not is_same or _generation(session, plane, sweep, plan.spec) != found:
        return None
    sweep.seq += 1
    forks = {pair.loser.number: new.fork for pair, (new, _) in zip(found.replacements, plan.forks, strict=False)}
    to_nudge: list[Job] = []
    for trial, job, report in halted_trials(session, sweep):
        if report.rung == found.rung:
            _settle(sweep, found, trial, report, forks.get(trial.number))
            _record(session, sweep, trial, report)
            to_nudge += _cancel(session, trial, job) if trial.stop_reason else []
    session.flush()
    made = [_store(session, plane, sweep, *each) for each in plan.forks]
    if plan.refusal:
        message = f"no member is replaced at {found.rung} steps: {plan.refusal}"
        history.record(session, sweep, SweepEventType.WARNING, actor=ACTOR, message=message)
    sweep.mark_changed()
    session.flush()
    resuming.resume_paused(session, sweep, actor=ACTOR)
    return _Written(to_nudge=to_nudge, to_admit=[job for job in made if job.state is not JobState.PAUSED])


def _settle(sweep: Sweep, generation: HaltedGeneration, trial: Trial, report: TrialReport, fork: Fork | None) -> None:
    """Decide about a member; ``fork`` takes its place."""
    report.decided_seq, report.continues = sweep.seq, fork is None
    report.rank, report.compared = generation.places[trial.number], len(generation.places)
    if fork is None:
        trial.paused = True  # until its job is requeued
    else:
        trial.stop_reason = replaced_by(fork.parent_number, place=report.rank, of=report.compared, step=generation.rung)


def _record(session: Session, sweep: Sweep, trial: Trial, report: TrialReport) -> None:
    place = f"{ordinal(report.rank)} of {report.compared} at {report.rung} steps"
    history.record(
        session,
        sweep,
        SweepEventType.TRIAL_REPORTED,
        actor=ACTOR,
        reason="stops" if trial.stop_reason else "continues",
        message=f"trial {trial.number}: {trial.stop_reason or place}",
        data={"number": trial.number, "rung": report.rung, "rank": report.rank, "of": report.compared},
    )


def _cancel(session: Session, trial: Trial, job: Job) -> list[Job]:
    """A halted job ends at once; returns one that a person has resumed, and that has to be nudged."""
    asked = control_requests.request_cancel(session, job.id, actor=ACTOR, reason=trial.stop_reason)
    return [asked] if asked.requested == "cancel" else []


def _store(session: Session, plane: ControlPlane, sweep: Sweep, new: NewTrial, checked: Checked) -> Job:
    """A fork for which there is no room yet is paused, like the members that continue later."""
    has_room = room_for_members(session, sweep) != 0
    job = trials.store(session, plane, sweep, new, checked)
    if not has_room:
        session.get_one(Trial, (sweep.id, new.number)).paused = True
        job = control_requests.request_pause(session, job.id, actor=ACTOR)
    return job
