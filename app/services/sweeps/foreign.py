"""Sweeps of API dialects: found by dialect, shown with their newest trials, and hidden in the dialect on deletion."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.orm import Session, load_only

from app.domain.errors import Conflict, IllegalTransition
from app.domain.lifecycle.states import JobState
from app.domain.spec.model import JobDocument
from app.domain.sweeps.spec import SweepSpec
from app.domain.sweeps.states import TERMINAL, SweepState, TrialState
from app.models import Job, Sweep, Trial
from app.models.insertion import new_row
from app.security.permissions import Caller
from app.services.jobs.details import JobDetails, details_of, of_new
from app.services.lifecycle import audit
from app.services.requests.control_plane import ControlPlane
from app.services.requests.existing_rows import existing_in
from app.services.sweeps import commands, creation, history, lookup
from app.services.sweeps.creation import CheckedSweep, SweepOrigin
from app.services.sweeps.reading import listing
from app.services.sweeps.reading.listing import TrialDetails

_Query = TypeVar("_Query", bound=Select[*tuple[Any, ...]])

MOST_TRIALS = 100  # that a sweep is shown with
_JOB_STATES = {
    SweepState.PENDING: JobState.PENDING,
    SweepState.RUNNING: JobState.TRAINING,
    SweepState.PAUSED: JobState.PAUSED,
    SweepState.FINISHING: JobState.TRAINING,
    SweepState.COMPLETED: JobState.COMPLETED,
    SweepState.CANCELLED: JobState.CANCELLED,
    SweepState.FAILED: JobState.FAILED,
}


@dataclass(frozen=True, kw_only=True)
class ShownSweep:
    """``trials``: the newest, by number, without reports; ``counts``: trials by (state, status of the job).

    ``changed_at`` and ``version`` also change with the jobs of its trials.
    """

    sweep: Sweep
    trials: Sequence[TrialDetails] = ()
    best: Trial | None = None
    counts: Mapping[tuple[str, str | None], int]
    retries: int = 0
    changed_at: datetime
    version: int

    @property
    def spec(self) -> SweepSpec:
        return SweepSpec.from_json(self.sweep.spec)


def shown(session: Session, sweep: Sweep) -> ShownSweep:
    return shown_all(session, [sweep])[0]


def shown_all(session: Session, sweeps: Sequence[Sweep]) -> list[ShownSweep]:
    """In the order given, with a constant number of queries."""
    ids = [sweep.id for sweep in sweeps]
    counts = _counts(session, ids)
    trials = _newest_trials(session, ids)
    best = select(Trial).join(Sweep, (Sweep.id == Trial.sweep_id) & (Sweep.best_number == Trial.number))
    bests = {trial.sweep_id: trial for trial in session.scalars(best.where(Sweep.id.in_(ids)))}
    return [
        ShownSweep(
            sweep=sweep,
            trials=trials.get(sweep.id, ()),
            best=bests.get(sweep.id),
            counts={(row.state, row.status): row.trials for row in counts.get(sweep.id, ())},
            retries=sum(row.retries or 0 for row in counts.get(sweep.id, ())),
            changed_at=max([sweep.updated_at, *(row.changed for row in counts.get(sweep.id, ()) if row.changed)]),
            version=sweep.version + sum(row.versions or 0 for row in counts.get(sweep.id, ())),
        )
        for sweep in sweeps
    ]


def _counts(session: Session, ids: Collection[str]) -> dict[str, list[Any]]:
    """By sweep: its trials by state and status of the job, and what changes with these jobs."""
    query = (
        select(
            Trial.sweep_id,
            Trial.state,
            Job.status,
            func.count().label("trials"),
            func.sum(Job.retries_used).label("retries"),
            func.max(Job.updated_at).label("changed"),
            func.sum(Job.version).label("versions"),
        )
        .outerjoin(Job, Job.id == Trial.job_id)
        .where(Trial.sweep_id.in_(ids))
        .group_by(Trial.sweep_id, Trial.state, Job.status)
    )
    found: dict[str, list[Any]] = {}
    for row in session.execute(query):
        found.setdefault(row.sweep_id, []).append(row)
    return found


def _newest_trials(session: Session, ids: Collection[str]) -> dict[str, list[TrialDetails]]:
    """By sweep: its newest trials by number; numbers have no gaps. Of a job dialects show nothing but its status."""
    of_job = load_only(Job.id, Job.status, raiseload=True)
    query = (
        select(Trial, Job)
        .join(Sweep, Sweep.id == Trial.sweep_id)
        .outerjoin(Job, Job.id == Trial.job_id)
        .where(Sweep.id.in_(ids), Trial.number >= Sweep.next_number - MOST_TRIALS)
        .options(of_job)
        .order_by(Trial.sweep_id, Trial.number)
    )
    found: dict[str, list[TrialDetails]] = {}
    for trial, job in session.execute(query):
        found.setdefault(trial.sweep_id, []).append(TrialDetails(trial=trial, job=job, reports=()))
    return found


def shown_new(sweep: Sweep) -> ShownSweep:
    """A sweep that was just created, or is only previewed: it has no trials yet."""
    return ShownSweep(sweep=sweep, counts={}, changed_at=sweep.updated_at, version=sweep.version)


def previewed(plane: ControlPlane, caller: Caller, checked: CheckedSweep, origin: SweepOrigin) -> ShownSweep:
    """What a creation would show."""
    return shown_new(creation.row(plane, caller, checked, origin))


def as_job(sweep: Sweep) -> JobDetails:
    """The sweep as dialects show one where they have nothing but jobs: as a job with its document, in no session."""
    document = JobDocument.from_json(sweep.base)
    job = new_row(
        Job,
        id=sweep.id,
        project=sweep.project,
        created_by=sweep.created_by,
        name=sweep.name,
        labels=dict(sweep.labels),
        spec=dict(sweep.base),
        training_type=document.training_config.training_type,
        framework=document.training_config.framework.type,
        queue=document.scheduling_config.queue,
        priority=document.scheduling_config.priority,
        status=_JOB_STATES[SweepState(sweep.status)],
        requested="cancel" if sweep.ends_as == SweepState.CANCELLED and sweep.status not in TERMINAL else None,
        status_reason=sweep.status_reason,
        foreign=dict(sweep.foreign),
        alias=sweep.alias,
        created_at=sweep.created_at,
        updated_at=sweep.updated_at,
        attempt=1 if sweep.started_at is not None else 0,
        started_at=sweep.started_at,
        finished_at=sweep.finished_at,
    )
    return replace(of_new(job), requested=job.requested)


def pause_new(session: Session, caller: Caller, sweep: Sweep) -> None:
    """Pause a sweep in the transaction that creates it, so that it makes no trial before it is resumed."""
    history.move(session, sweep, SweepState.PAUSED, actor=caller.actor, reason="paused")


def listed(
    session: Session, caller: Caller, dialect: str, *, after: tuple[datetime, str] | None = None
) -> Sequence[Sweep]:
    """The caller's sweeps of the dialect, oldest first, also deleted ones; those after this (created_at, id)."""
    query = _of(caller, dialect, select(Sweep)).order_by(Sweep.created_at, Sweep.id)
    if after is not None:
        query = query.where(tuple_(Sweep.created_at, Sweep.id) > after)
    found: Sequence[Sweep] = session.scalars(query).all()
    return found


def changed_since(session: Session, caller: Caller, dialect: str, moment: datetime) -> Sequence[Sweep]:
    """Those that were changed, or whose jobs were, at this time or later, oldest first."""
    of_jobs = select(Job.sweep_id).where(Job.sweep_id.is_not(None), Job.updated_at >= moment)
    query = _of(caller, dialect, select(Sweep)).where((Sweep.updated_at >= moment) | Sweep.id.in_(of_jobs))
    found: Sequence[Sweep] = session.scalars(query.order_by(Sweep.created_at, Sweep.id)).all()
    return found


def newest_change(session: Session, caller: Caller, dialect: str) -> tuple[int, Any, Any]:
    """How many of these sweeps there are, and values that differ whenever one of them has changed."""
    counted = _of(caller, dialect, select(func.count(), func.max(Sweep.updated_at), func.sum(Sweep.version)))
    count, newest, versions = session.execute(counted).one()
    return count, newest, versions


def by_id(session: Session, ids: Collection[str]) -> dict[str, Sweep]:
    return {sweep.id: sweep for sweep in session.scalars(select(Sweep).where(Sweep.id.in_(ids)))}


def existing(session: Session, ids: Collection[str]) -> set[str]:
    """Those of the ids that are of sweeps."""
    return existing_in(session, Sweep.id, ids)


def jobs_of(session: Session, sweep: Sweep) -> list[JobDetails]:
    """The jobs of its trials, oldest first."""
    query = select(Job).where(Job.sweep_id == sweep.id).order_by(Job.created_at, Job.id)
    return details_of(session, session.scalars(query).all())


def job_of(session: Session, sweep: Sweep, number: int) -> JobDetails | None:
    """The job of one trial; None where there is none."""
    found = session.get(Trial, (sweep.id, number))
    job = session.get(Job, found.job_id) if found is not None and found.job_id else None
    return details_of(session, [job])[0] if job is not None else None


def trial_of_job(session: Session, sweep: Sweep, job_id: str) -> int | None:
    """The number of the trial with this job."""
    return session.scalar(select(Trial.number).where(Trial.sweep_id == sweep.id, Trial.job_id == job_id))


def representative(session: Session, sweep: Sweep) -> JobDetails | None:
    """The job of its best trial, before there is one of its newest; None before the first."""
    best = job_of(session, sweep, sweep.best_number) if sweep.best_number is not None else None
    if best is not None:
        return best
    query = select(Job).where(Job.sweep_id == sweep.id).order_by(Job.created_at.desc(), Job.id.desc()).limit(1)
    job = session.scalar(query)
    return details_of(session, [job])[0] if job is not None else None


def page_of_trials(session: Session, sweep: Sweep, *, offset: int, limit: int) -> Sequence[TrialDetails]:
    """By number."""
    query = select(Trial).where(Trial.sweep_id == sweep.id).order_by(Trial.number).offset(offset).limit(limit)
    return listing.trial_details(session, sweep.id, session.scalars(query).all())


def is_deleted(sweep: Sweep, dialect: str) -> bool:
    return bool(sweep.foreign.get(dialect, {}).get("deleted"))


def withdraw(plane: ControlPlane, caller: Caller, sweep_id: str, *, dialect: str) -> None:
    """Deletion in dialects that allow it for what runs: cancel the sweep if needed, and hide it with its trials."""
    with plane.db.read() as session:
        has_ended = lookup.find(session, caller, sweep_id).status in TERMINAL
    if not has_ended:
        with suppress(IllegalTransition):  # it has ended meanwhile
            commands.cancel(plane, caller, sweep_id, reason="deleted")
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        _keep(sweep, dialect, deleted=True)
        if sweep.alias is not None and sweep.alias.startswith(f"{dialect}:"):
            sweep.alias = None  # its name is free again
        for job in session.scalars(select(Job).where(Job.sweep_id == sweep.id).order_by(Job.id).with_for_update()):
            job.foreign = {**job.foreign, dialect: {**job.foreign.get(dialect, {}), "deleted": True}}
            job.mark_changed()
        audit.record(
            session,
            actor=caller.actor,
            action="sweep.withdraw",
            project=sweep.project,
            target=sweep.id,
            data={"dialect": dialect},
        )


def note(
    plane: ControlPlane,
    caller: Caller,
    sweep_id: str,
    *,
    dialect: str,
    expected_version: int | None = None,
    **kept: Any,
) -> None:
    """Store further data of a dialect with a sweep. Raises Conflict when it does not have the expected version."""
    with plane.db.write() as session:
        sweep = lookup.find_for_change(session, caller, sweep_id)
        if expected_version not in (None, sweep.version):
            raise Conflict("the sweep was changed meanwhile; read it again")
        _keep(sweep, dialect, **kept)
        audit.record(
            session, actor=caller.actor, action="sweep.patch", project=sweep.project, target=sweep.id, data=kept
        )


def counted_as(found: ShownSweep, *states: TrialState) -> int:
    """How many of its trials are in one of these states."""
    return sum(count for (state, _), count in found.counts.items() if state in states)


def _keep(sweep: Sweep, dialect: str, **kept: Any) -> None:
    sweep.foreign = {**sweep.foreign, dialect: {**sweep.foreign.get(dialect, {}), **kept}}
    sweep.mark_changed()


def _of(caller: Caller, dialect: str, query: _Query) -> _Query:
    query = query.where(Sweep.foreign[dialect]["name"].as_string().is_not(None))
    return query if caller.project is None else query.where(Sweep.project == caller.project)
