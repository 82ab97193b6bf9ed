"""Storing a trial: its row and its job in one transaction, so that neither exists without the other."""

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from app.domain.spec.model import JobDocument
from app.domain.spec.rules.registry_logins import with_needed_logins
from app.domain.spec.secrets import secret_variables, with_secrets
from app.domain.spec.user_tokens import PREFIX
from app.domain.sweeps.documents import trial_document, with_halts, with_halts_of_member, with_saves, with_start
from app.domain.sweeps.draws import seed_of
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.rungs import bracket_of
from app.domain.sweeps.spec import PBT, SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Job, Sweep, Trial
from app.models.base import utc_now
from app.models.insertion import fill
from app.security.permissions import Caller, Role
from app.services.jobs import submission, uploaded_data
from app.services.jobs.submission import Checked, Origin
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import counts, history
from app.services.sweeps.history import ACTOR

SWEEP_LABEL, TRIAL_LABEL = "trainyard/sweep", "trainyard/trial"
_OF_TRIALS = "of_trials"
Source = Literal["method", "enqueued", "added", "exploited"]


@dataclass(frozen=True, kw_only=True)
class Fork:
    """The checkpoint of an earlier trial that a new one begins with, saved after ``step`` steps."""

    parent_number: int
    checkpoint_id: str
    step: int


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that is to be stored; ``seen_seq`` is what its suggestion knew, ``suggested_in`` the seconds that this
    took, None for other values, ``save_at`` where others branch off.
    """

    number: int
    values: dict[str, Value]
    source: Source
    seen_seq: int
    note: str = ""
    suggested_in: float | None = None
    fork: Fork | None = None
    save_at: tuple[int, ...] = ()


def caller_of(sweep: Sweep) -> Caller:
    """In whose name its trials are submitted; submission refuses them once that key has been revoked."""
    return Caller(key_id=sweep.submits_as, role=Role.USER, project=sweep.project)


def check(
    plane: ControlPlane, sweep: Sweep, new: NewTrial, *, caller: Caller | None = None, estimates_wait: bool = True
) -> Checked:
    """All checks of a submission before its transaction, by default in the name of the sweep.

    Raises InvalidRequest for a document that breaks a rule.
    """
    return submitted(plane, sweep, document_of(sweep, new), caller=caller, estimates_wait=estimates_wait)


def document_of(sweep: Sweep, new: NewTrial) -> dict[str, Any]:
    """What the trial's job is submitted with, but for secrets."""
    labels = {**sweep.labels, SWEEP_LABEL: sweep.id, TRIAL_LABEL: str(new.number)}
    raw = trial_document(sweep.base, new.values, name=f"{sweep.name[:120]}-{new.number}", labels=labels)
    spec = SweepSpec.from_json(sweep.spec)
    raw = with_halts(raw, spec.early_stopping, bracket_of(spec.early_stopping, new.number))
    if spec.method.name == PBT:
        raw = with_halts_of_member(raw, spec.method, after=new.fork.step if new.fork is not None else 0)
    if new.fork is not None:
        raw = with_start(raw, new.fork.checkpoint_id)
    return with_saves(raw, new.save_at) if new.save_at else raw


def submitted(
    plane: ControlPlane, sweep: Sweep, raw: dict[str, Any], *, caller: Caller | None = None, estimates_wait: bool = True
) -> Checked:
    """All checks of a submission of this document with the sweep's secrets. Raises InvalidRequest."""
    secrets = plane.box.open(sweep.sealed_secrets)
    document = with_secrets(
        JobDocument.from_json(raw), {path: value for path, value in secrets.items() if not path.startswith(PREFIX)}
    )
    document = with_needed_logins(document)
    forwarded = {path.removeprefix(PREFIX): token for path, token in secrets.items() if path.startswith(PREFIX)}
    hidden = secret_variables(secrets)
    return submission.check(
        plane,
        caller or caller_of(sweep),
        document,
        project=sweep.project,
        forwarded=forwarded,
        secret_variables=hidden,
        estimates_wait=estimates_wait,
    )


def store(
    session: Session,
    plane: ControlPlane,
    sweep: Sweep,
    new: NewTrial,
    checked: Checked,
    *,
    caller: Caller | None = None,
) -> Job:
    """Write the trial and its job, whose submitter is by default the sweep's.

    The sweep must be locked, and the trial's number its next.
    """
    actor = caller.actor if caller is not None else ACTOR
    caller = caller or caller_of(sweep)
    kept = uploaded_data.files_of(checked.spec.document)
    entered = submission.enter(session, caller, checked, kept_files=kept)
    origin = Origin(foreign=_foreign_of(sweep, new.number), sweep_id=sweep.id)
    job = submission.store(session, plane, caller, checked, entered, origin=origin)
    _add(session, sweep, new, actor=actor, job_id=job.id, has_webhooks=entered.has_webhooks)
    return job


def store_refused(session: Session, sweep: Sweep, new: NewTrial, reason: str, *, actor: str) -> None:
    """Write a trial whose document was refused: it has failed without a job."""
    trial = _add(session, sweep, new, actor=actor, job_id=None)
    sweep.seq += 1
    trial.state, trial.reason, trial.error_type = TrialState.FAILED, reason, "INVALID_CONFIG"
    trial.observed_seq, trial.finished_at = sweep.seq, utc_now()
    history.record(
        session,
        sweep,
        SweepEventType.TRIAL_ENDED,
        actor=actor,
        reason=TrialState.FAILED,
        message=f"trial {new.number}: its document was refused: {reason}",
        data={"number": new.number, "values": new.values},
    )


def _foreign_of(sweep: Sweep, number: int) -> dict[str, Any]:
    """What dialects keep with a trial's job: the part `of_trials` of what they keep with the sweep, and its number."""
    return {
        dialect: {**kept[_OF_TRIALS], "trial": number} for dialect, kept in sweep.foreign.items() if _OF_TRIALS in kept
    }


def _add(
    session: Session, sweep: Sweep, new: NewTrial, *, actor: str, job_id: str | None, has_webhooks: bool = True
) -> Trial:
    spec = SweepSpec.from_json(sweep.spec)
    trial = Trial(
        sweep_id=sweep.id,
        number=new.number,
        job_id=job_id,
        source=new.source,
        values=new.values,
        seed=seed_of(spec.method.seed, new.number),
        seen_seq=new.seen_seq,
        bracket=bracket_of(spec.early_stopping, new.number),
        note=new.note,
        parent_number=new.fork.parent_number if new.fork is not None else None,
        fork_checkpoint_id=new.fork.checkpoint_id if new.fork is not None else None,
        fork_step=new.fork.step if new.fork is not None else 0,
    )
    fill(trial)
    sweep.next_number = new.number + 1
    sweep.pending_reason = ""
    data: dict[str, Any] = {"number": new.number, "job_id": job_id, "values": new.values, "source": new.source}
    if new.fork is not None:
        data |= {"forked_from": new.fork.parent_number, "fork_step": new.fork.step}
    event = history.numbered(
        sweep,
        SweepEventType.TRIAL_STARTED,
        actor=actor,
        message=f"{_named(new)}: {', '.join(f'{name}={value}' for name, value in new.values.items())}"[:2000],
        data=data,
    )
    history.write(session, sweep, [event], has_webhooks=has_webhooks)
    sweep.mark_changed()
    session.add(trial)
    session.flush()
    if new.suggested_in is not None:
        counts.add(session, sweep.project, {counts.Kind.SUGGESTION: [new.suggested_in]})
    return trial


def _named(new: NewTrial) -> str:
    begins = f", a fork of trial {new.fork.parent_number} at step {new.fork.step}" if new.fork is not None else ""
    return f"trial {new.number}{begins}"
