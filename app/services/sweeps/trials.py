"""Storing a trial: its row and its job in one transaction, so that neither exists without the other."""

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy.orm import Session

from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import with_secrets
from app.domain.spec.user_tokens import PREFIX
from app.domain.sweeps.documents import trial_document
from app.domain.sweeps.draws import seed_of
from app.domain.sweeps.events import SweepEventType
from app.domain.sweeps.parameters import Value
from app.domain.sweeps.rungs import bracket_of
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TrialState
from app.models import Job, Sweep, Trial
from app.models.base import utc_now
from app.models.insertion import fill
from app.security.permissions import Caller, Role
from app.services.jobs import submission
from app.services.jobs.submission import Checked, Origin
from app.services.requests.control_plane import ControlPlane
from app.services.sweeps import history
from app.services.sweeps.history import ACTOR

SWEEP_LABEL, TRIAL_LABEL = "trainyard/sweep", "trainyard/trial"
_VARIABLES = "training_config.environment."
_OF_TRIALS = "of_trials"
Source = Literal["method", "enqueued", "added"]


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that is to be stored; ``seen_seq`` is what its suggestion knew."""

    number: int
    values: dict[str, Value]
    source: Source
    seen_seq: int
    note: str = ""


def caller_of(sweep: Sweep) -> Caller:
    """In whose name its trials are submitted; submission refuses them once that key has been revoked."""
    return Caller(key_id=sweep.submits_as, role=Role.USER, project=sweep.project)


def check(plane: ControlPlane, sweep: Sweep, new: NewTrial, *, caller: Caller | None = None) -> Checked:
    """All checks of a submission before its transaction, by default in the name of the sweep.

    Raises InvalidRequest for a document that breaks a rule.
    """
    secrets = plane.box.open(sweep.sealed_secrets)
    labels = {**sweep.labels, SWEEP_LABEL: sweep.id, TRIAL_LABEL: str(new.number)}
    raw = trial_document(sweep.base, new.values, name=f"{sweep.name[:120]}-{new.number}", labels=labels)
    document = with_secrets(
        JobDocument.from_json(raw), {path: value for path, value in secrets.items() if not path.startswith(PREFIX)}
    )
    forwarded = {path.removeprefix(PREFIX): token for path, token in secrets.items() if path.startswith(PREFIX)}
    hidden = [path.removeprefix(_VARIABLES) for path in secrets if path.startswith(_VARIABLES)]
    return submission.check(
        plane, caller or caller_of(sweep), document, project=sweep.project, forwarded=forwarded, secret_variables=hidden
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
    entered = submission.enter(session, caller, checked)
    origin = Origin(foreign=_foreign_of(sweep, new.number), sweep_id=sweep.id)
    job = submission.store(session, plane, caller, checked, entered, origin=origin)
    _add(session, sweep, new, actor=actor, job_id=job.id)
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


def _add(session: Session, sweep: Sweep, new: NewTrial, *, actor: str, job_id: str | None) -> Trial:
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
    )
    fill(trial)
    sweep.next_number = new.number + 1
    sweep.pending_reason = ""
    data: dict[str, Any] = {"number": new.number, "job_id": job_id, "values": new.values, "source": new.source}
    history.record(
        session,
        sweep,
        SweepEventType.TRIAL_STARTED,
        actor=actor,
        message=f"trial {new.number}: {', '.join(f'{name}={value}' for name, value in new.values.items())}"[:2000],
        data=data,
    )
    sweep.mark_changed()
    session.add(trial)
    session.flush()
    return trial
