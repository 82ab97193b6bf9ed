"""Verification of trunks: some forks are trained from the start, too, and have to end with the same weights.

The verifying job belongs to the sweep but is no trial. It is found by its label, so that whichever coordinator leads
continues with it. What it showed is written to the fork's note: a fork whose note says it is settled.
"""

import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from app.domain.errors import InvalidRequest, LimitExceeded, Unauthenticated
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.sweeps.documents import with_own_results
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.services.jobs import submission
from app.services.jobs.control import requests as control_requests
from app.services.jobs.submission import Checked, Origin
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import history, lookup, trials
from app.services.sweeps.history import ACTOR
from app.services.sweeps.observing import device_seconds
from app.services.sweeps.trials import NewTrial

DIFFERS, VERIFIED, NOT_VERIFIED = "TRUNK_DIFFERS", "TRUNK_VERIFIED", "TRUNK_NOT_VERIFIED"
_SETTLED = "weights: "  # begins what a settled fork's note says of it
_KEY_ENDED = "the API key that submits its trials is revoked or expired"
_GOING_ON = (SweepState.RUNNING, SweepState.FINISHING)

logger = logging.getLogger(__name__)


def advance(plane: ControlPlane, sweep_id: str) -> None:
    """Submit the job of each fork that is to be verified, and compare with those that have ended."""
    with plane.db.read() as session:
        sweep = session.get_one(Sweep, sweep_id)
        spec = SweepSpec.from_json(sweep.spec)
        if sweep.status not in _GOING_ON:
            return
        jobs = _by_fork(session, sweep.id)
        chosen = [(fork, jobs.get(str(fork.number))) for fork in _open(session, sweep, spec)]
    for fork, job in chosen:
        if job is None and _goes_on(sweep):
            _submit(plane, sweep, fork)
        elif job is not None and job.state in TERMINAL:
            _compare(plane, sweep.id, fork.number, job.id)


def is_open(session: Session, sweep: Sweep) -> bool:
    """Whether the sweep still verifies: it does not end before."""
    spec = SweepSpec.from_json(sweep.spec)
    if not spec.verify_trunks:
        return False
    running = session.scalar(_jobs(sweep.id).where(Job.status.not_in(TERMINAL)).limit(1))
    return running is not None or (_goes_on(sweep) and bool(_open(session, sweep, spec)))


def cancel(session: Session, sweep: Sweep, *, actor: str, reason: str) -> list[Job]:
    """Request the end of its verifying jobs; returns those whose supervisors are to be nudged after the commit.

    The caller has locked the sweep, and its jobs by `lookup.locked_jobs`.
    """
    running = session.scalars(_jobs(sweep.id).where(Job.status.not_in(TERMINAL)).order_by(Job.id)).all()
    asked = [control_requests.request_cancel(session, job.id, actor=actor, reason=reason) for job in running]
    return [job for job in asked if job.requested == "cancel"]


def _goes_on(sweep: Sweep) -> bool:
    return sweep.ends_as in (None, SweepState.COMPLETED) and not sweep.trunks_refused


def _open(session: Session, sweep: Sweep, spec: SweepSpec) -> Sequence[Trial]:
    """Of the forks that are verified, the first to complete, those that are not settled."""
    query = select(Trial).where(
        Trial.sweep_id == sweep.id,
        Trial.state == TrialState.COMPLETED,
        Trial.parent_number.is_not(None),
        Trial.job_id.is_not(None),
    )
    first = session.scalars(query.order_by(Trial.observed_seq).limit(spec.verify_trunks)).all()
    return [fork for fork in first if _SETTLED not in fork.note]


def _jobs(sweep_id: str) -> Select[Job]:
    return select(Job).where(lookup.verifies(sweep_id))


def _by_fork(session: Session, sweep_id: str) -> dict[str, Job]:
    """The job that verifies each fork, by the label's value, which is the fork's number; of several the first."""
    newest_first = session.scalars(_jobs(sweep_id).order_by(Job.id.desc()))
    return {str(job.labels[lookup.VERIFIES_LABEL]): job for job in newest_first}


def _submit(plane: ControlPlane, sweep: Sweep, fork: Trial) -> None:
    try:
        checked = trials.submitted(plane, sweep, _document(sweep, fork))
        job = _store(plane, sweep.id, fork, checked)
    except LimitExceeded as error:
        _wait(plane, sweep.id, fork.number, error.message)
        return
    except Unauthenticated:
        if sweep.status == SweepState.FINISHING:  # it can't be resumed with another key any more
            _settle(plane, sweep.id, fork.number, NOT_VERIFIED, f"not compared: {_KEY_ENDED}")
        return
    except InvalidRequest as error:
        _settle(plane, sweep.id, fork.number, NOT_VERIFIED, f"not compared, the job was refused: {error.message}")
        return
    if job is not None:
        plane.dispatcher.ring_admit(job.id, job.queue, job.priority)


def _wait(plane: ControlPlane, sweep_id: str, number: int, reason: str) -> None:
    """It is tried again. Only a sweep that makes no further trial says so: before, `next_trial` writes its reason."""
    logger.info("fork %s of sweep %s is not verified yet: %s", number, sweep_id, reason)
    message = f"a fork is not verified yet: {reason}"
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        if sweep.status == SweepState.FINISHING and sweep.pending_reason != message:
            sweep.pending_reason = message
            sweep.mark_changed()


def _document(sweep: Sweep, fork: Trial) -> dict[str, Any]:
    """The fork's document from the start."""
    new = NewTrial(number=fork.number, values=fork.values, source="method", seen_seq=fork.seen_seq)
    raw = trials.document_of(sweep, new)
    del raw["labels"][trials.TRIAL_LABEL]
    raw["labels"][lookup.VERIFIES_LABEL] = str(fork.number)
    raw["name"] = f"{raw['name']}-verification"
    return with_own_results(raw)


def _store(plane: ControlPlane, sweep_id: str, fork: Trial, checked: Checked) -> Job | None:
    """None where another coordinator has done it, or the sweep makes no further job."""
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        is_over = sweep.status not in _GOING_ON or not _goes_on(sweep)
        if is_over or str(fork.number) in _by_fork(session, sweep_id):
            return None
        caller = trials.caller_of(sweep)
        entered = submission.enter(session, caller, checked)
        origin = Origin(foreign={}, sweep_id=sweep_id)
        job = submission.store(session, plane, caller, checked, entered, origin=origin)
        trained = session.get(Job, fork.job_id)
        # Another number of threads changes the last bits.
        job.threads_per_rank = trained.threads_per_rank if trained is not None else None
        message = f"trial {fork.number} is trained from the start, too, by {job.id}"
        data = {"number": fork.number, "job_id": job.id}
        history.record(
            session, sweep, SweepEventType.CHANGED, actor=ACTOR, reason="VERIFIES", message=message, data=data
        )
        if sweep.status == SweepState.FINISHING:
            sweep.pending_reason = ""
        sweep.mark_changed()
        return job


def _compare(plane: ControlPlane, sweep_id: str, number: int, job_id: str) -> None:
    with plane.db.read() as session:
        job, fork = session.get_one(Job, job_id), session.get_one(Trial, (sweep_id, number))
        trained = session.get(Job, fork.job_id) if fork.job_id is not None else None
        mine, other = _hash_of(trained), _hash_of(job)
        spent = device_seconds(job)
    if job.state is not JobState.COMPLETED or not mine or not other:
        reason, what = NOT_VERIFIED, f"not compared, {job_id} ended {job.status} or a model is missing"
    elif mine == other:
        reason, what = VERIFIED, f"equal to those of {job_id}, which trained from the start"
    else:
        reason, what = DIFFERS, f"not those of {job_id}, which trained from the start"
    _settle(plane, sweep_id, number, reason, what, spent=spent)


def _hash_of(job: Job | None) -> str:
    return str((job.report or {}).get("model_hash") or "") if job is not None else ""


def _settle(plane: ControlPlane, sweep_id: str, number: int, reason: str, what: str, *, spent: float = 0.0) -> None:
    with plane.db.write() as session:
        sweep = lookup.locked(session, sweep_id)
        fork = session.get_one(Trial, (sweep_id, number), populate_existing=True)
        if _SETTLED in fork.note:
            return
        fork.note = "; ".join(filter(None, (fork.note, f"{_SETTLED}{what}")))
        fork.device_seconds += spent
        message = f"weights of trial {number}, a fork of trial {fork.parent_number}: {what}"
        if reason == DIFFERS:
            sweep.trunks_refused = message
            message += "; no further trial of this sweep is a fork"
        kind = SweepEventType.CHANGED if reason == VERIFIED else SweepEventType.WARNING
        data = {"number": number, "forked_from": fork.parent_number, "fork_step": fork.fork_step}
        history.record(session, sweep, kind, actor=ACTOR, reason=reason, message=message, data=data)
        sweep.mark_changed()
