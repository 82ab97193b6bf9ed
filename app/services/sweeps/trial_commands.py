"""Commands for one trial: add one by hand, stop it, exempt it from early stopping."""

from collections.abc import Mapping
from typing import Any

from app.domain.errors import Conflict, IllegalTransition, QuotaExceeded
from app.domain.lifecycle.states import TERMINAL as JOB_ENDED
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.security.permissions import Caller
from app.services.jobs.control import requests as control_requests
from app.services.lifecycle import audit, transitions
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.sweeps import budget, history, lookup, trials
from app.services.sweeps.halting import promoting
from app.services.sweeps.next_trial import space_of
from app.services.sweeps.reading import listing
from app.services.sweeps.trials import NewTrial

_RACES = 20  # with a coordinator that makes trials at the same time
_TAKES_TRIALS = (SweepState.PENDING, SweepState.RUNNING, SweepState.PAUSED)


def add(
    plane: ControlPlane, caller: Caller, sweep_id: str, values: Mapping[str, Any], *, on_written: OnWritten = not_stored
) -> None:
    """Try these values, too; the trial counts for the budget. Raises BadSpec for values outside of the space,
    IllegalTransition for a sweep that takes no trials any more, QuotaExceeded when the most that are allowed are there.
    """
    for _ in range(_RACES):
        seen, new = _wanted(plane, caller, sweep_id, values)
        checked = trials.check(plane, seen, new, caller=caller, estimates_wait=False)
        with plane.db.write() as session:
            sweep = lookup.find_for_change(session, caller, sweep_id)
            _require_open(sweep)
            if sweep.next_number != new.number:
                continue  # the coordinator has made a trial meanwhile: this one takes the next number
            if sweep.status == SweepState.PENDING:
                history.move(session, sweep, SweepState.RUNNING, actor=caller.actor, reason="first trial")
            job = trials.store(session, plane, sweep, new, checked, caller=caller)
            on_written(session, (sweep, listing.one_trial(session, sweep, new.number)))
        plane.dispatcher.ring_admit(job.id, job.queue, job.priority)
        return
    raise Conflict(f"sweep {sweep_id} makes trials faster than this one can be added; send the request again")


def _wanted(plane: ControlPlane, caller: Caller, sweep_id: str, values: Mapping[str, Any]) -> tuple[Sweep, NewTrial]:
    """The sweep as it is now, and the trial with its next number."""
    with plane.db.read() as session:
        seen = lookup.find(session, caller, sweep_id)
    _require_open(seen)
    spec = SweepSpec.from_json(seen.spec)
    checked = space_of(spec).check(values, field="values")
    most = budget.most_trials(spec, plane.sweep_limits)
    if most is not None and seen.next_number >= most:
        way_out = "budget.max_trials by PATCH" if spec.budget.max_trials is not None else "TRAINYARD_SWEEP_MAX_TRIALS"
        raise QuotaExceeded(f"the sweep has made its {most} trials; raise {way_out} first")
    return seen, NewTrial(number=seen.next_number, values=checked, source="added", seen_seq=seen.seq)


def stop(
    plane: ControlPlane, caller: Caller, sweep_id: str, number: int, *, on_written: OnWritten = not_stored
) -> None:
    """End a running trial early; what it has measured counts. Idempotent.

    Raises IllegalTransition for one that has ended otherwise.
    """
    to_nudge: Job | None = None
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        trial = lookup.find_trial(session, sweep, number)
        if trial.state != TrialState.STOPPED and not trial.stop_reason:
            _require_running(trial)
            trial.stop_reason = f"by hand ({caller.actor})"
            history.record(
                session,
                sweep,
                SweepEventType.TRIAL_STOP_REQUESTED,
                actor=caller.actor,
                message=f"trial {number}",
                data={"number": number},
            )
            session.flush()
            job = transitions.load_for_change(session, trial.job_id) if trial.job_id else None
            if job is not None and job.state not in JOB_ENDED:
                job = control_requests.request_cancel(
                    session, job.id, actor=caller.actor, reason="stopped by hand as a trial of its sweep"
                )
                to_nudge = job if job.requested == "cancel" else None
            audit.record(
                session, actor=caller.actor, action="trial.stop", project=sweep.project, target=f"{sweep.id}/{number}"
            )
        on_written(session, (sweep, listing.one_trial(session, sweep, number)))
    if to_nudge is not None:
        plane.nudge(to_nudge)


def promote(
    plane: ControlPlane, caller: Caller, sweep_id: str, number: int, *, on_written: OnWritten = not_stored
) -> None:
    """Exempt a running trial from early stopping; one that is halted continues. Idempotent.

    Raises IllegalTransition for one that is ending.
    """
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        trial = lookup.find_trial(session, sweep, number)
        if not trial.promoted:
            _require_running(trial)
            if trial.stop_reason:
                raise IllegalTransition(f"trial {number} is being stopped ({trial.stop_reason}) and can't be promoted")
            trial.promoted = True
            history.record(
                session,
                sweep,
                SweepEventType.CHANGED,
                actor=caller.actor,
                message=f"trial {number} is exempt from early stopping",
                data={"number": number},
            )
            sweep.mark_changed()
            audit.record(
                session,
                actor=caller.actor,
                action="trial.promote",
                project=sweep.project,
                target=f"{sweep.id}/{number}",
            )
        session.flush()
        promoting.continue_promoted(session, sweep, actor=caller.actor)
        on_written(session, (sweep, listing.one_trial(session, sweep, number)))


def _require_open(sweep: Sweep) -> None:
    if sweep.status not in _TAKES_TRIALS:
        raise IllegalTransition(
            f"sweep {sweep.id} is {sweep.status} and takes no trials; raise its budget by PATCH, or create another"
        )


def _require_running(trial: Trial) -> None:
    if trial.state != TrialState.RUNNING:
        raise IllegalTransition(f"trial {trial.number} is {trial.state}; only a RUNNING one can be stopped or promoted")
