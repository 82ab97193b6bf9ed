"""Finding one sweep, or one of its trials."""

import math
import re

from sqlalchemy import ColumnElement, and_, exists, select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.lifecycle.states import TERMINAL
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import AuditEntry, Job, Sweep, Trial
from app.security.permissions import Caller

SWEEP_ID = re.compile(r"sweep-[0-9a-f-]{36}")
VERIFIES_LABEL = "trainyard/verifies"
_NUMBER = re.compile(r"[0-9]{1,9}")
_HIGHEST = 2**31 - 1


def find(session: Session, caller: Caller, sweep_id: str) -> Sweep:
    """The sweep; raises the same NotFound for one that does not exist and one that is not visible to the caller."""
    sweep = session.get(Sweep, sweep_id) if SWEEP_ID.fullmatch(sweep_id) else None
    missing = f"no sweep {sweep_id[:64]}"
    if sweep is None:
        raise NotFound(f"{missing}{_deletion(session, caller, sweep_id)}")
    caller.require_sight(sweep.project, missing)
    return sweep


def _deletion(session: Session, caller: Caller, sweep_id: str) -> str:
    """When it was deleted, by the audit trail, for those who could see it: labels and warm starts still name it."""
    query = select(AuditEntry.at, AuditEntry.actor, AuditEntry.project).where(
        AuditEntry.target == sweep_id, AuditEntry.action == "sweep.delete", AuditEntry.outcome == "done"
    )
    found = session.execute(query.limit(1)).one_or_none() if SWEEP_ID.fullmatch(sweep_id) else None
    if found is None or not caller.sees(found.project):
        return ""
    return f": it was deleted on {found.at:%Y-%m-%d}{' by retention' if found.actor == 'retention' else ''}"


def find_by_alias(session: Session, caller: Caller, alias: str, *, missing: str) -> Sweep:
    """The sweep with this name in a dialect; raises NotFound with the message ``missing`` if the caller sees none."""
    sweep = session.scalar(select(Sweep).where(Sweep.alias == alias))
    if sweep is None:
        raise NotFound(missing)
    caller.require_sight(sweep.project, missing)
    return sweep


def find_for_change(session: Session, caller: Caller, sweep_id: str) -> Sweep:
    """The sweep with its row locked until the transaction ends; raises NotFound as `find`."""
    find(session, caller, sweep_id)
    return locked(session, sweep_id)


def trial_number(text: str) -> int:
    """Of a path. Raises NotFound for what is none."""
    if _NUMBER.fullmatch(text) is None:
        raise NotFound(f"no trial {text[:20]}; trials are numbered 0, 1, 2 …")
    return int(text)


def locked(session: Session, sweep_id: str) -> Sweep:
    """The sweep with its row locked until the transaction ends (on SQLite the write transaction is the lock)."""
    sweep = session.get(Sweep, sweep_id, with_for_update=True, populate_existing=True)
    if sweep is None:
        raise NotFound(f"no sweep {sweep_id}")
    return sweep


def locked_jobs(session: Session, sweep: Sweep) -> list[tuple[Trial, Job]]:
    """Its running trials with their jobs, all of whose rows are locked before one is changed, in the order of ids, and
    with them evaluations and verifying jobs that have not ended, which may be cancelled with the trials.
    """
    of_running = select(Trial.job_id).where(Trial.sweep_id == sweep.id, Trial.state == TrialState.RUNNING)
    wanted = Job.id.in_(of_running) | (Job.evaluated_job_id.in_(of_running) & Job.status.not_in(TERMINAL))
    if SweepSpec.from_json(sweep.spec).verify_trunks:
        wanted |= verifies(sweep.id) & Job.status.not_in(TERMINAL)
    jobs = session.scalars(
        select(Job).where(wanted).order_by(Job.id).with_for_update(), execution_options={"populate_existing": True}
    ).all()
    trials = session.scalars(select(Trial).where(Trial.job_id.in_([job.id for job in jobs])))
    by_job = {trial.job_id: trial for trial in trials}
    return [(by_job[job.id], job) for job in jobs if job.id in by_job]


def verifies(sweep_id: str) -> ColumnElement[bool]:
    """Whether a job verifies a trunk of the sweep: it has the label and is no trial, whose document may set it too."""
    label = Job.labels[VERIFIES_LABEL].as_string()
    is_of_trial = exists().where(Trial.sweep_id == sweep_id, Trial.job_id == Job.id)
    return and_(Job.sweep_id == sweep_id, label.is_not(None), ~is_of_trial)


def lineage(session: Session, job_id: str) -> dict[str, float]:
    """Whose points are those of a trial's job, each up to a step: its own, and of a fork what was measured before it
    branched off.

    Its trunk is the same as if it had trained it. That of a trial which population based training replaced is not:
    its values were others.
    """
    found, branch = {job_id: math.inf}, math.inf
    job = session.get(Job, job_id)
    if job is None or job.resume_checkpoint_id is None:
        return found
    trial = session.scalar(select(Trial).where(Trial.job_id == job_id))
    while trial is not None and trial.parent_number is not None and trial.source != "exploited":
        branch = min(branch, trial.fork_step)
        trial = session.get(Trial, (trial.sweep_id, trial.parent_number))
        if trial is not None and trial.job_id is not None:
            found[trial.job_id] = branch
    return found


def find_trial(session: Session, sweep: Sweep, number: int) -> Trial:
    """Raises NotFound for a number that the sweep does not have."""
    trial = session.get(Trial, (sweep.id, number)) if number <= _HIGHEST else None
    if trial is None:
        numbers = f"0 to {sweep.next_number - 1}" if sweep.next_number else "none yet"
        raise NotFound(f"sweep {sweep.id} has no trial {number}; its trials are {numbers}")
    return trial
