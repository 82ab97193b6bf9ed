"""Checkpoint records: recording under the fencing token, retention, and selection of the one to resume from."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.ids import new_id
from app.domain.lifecycle.checkpoints import RetainedCheckpoint, best, best_rule, scores, to_prune
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import HELD, TERMINAL
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.hyperparameters.rlhf import method_of
from app.domain.spec.inference import TRAINING, TYPES
from app.domain.spec.model import BEST, CHECKPOINT
from app.models import Checkpoint, Job, Service
from app.models.base import utc_now
from app.services.attempts import planned_evaluations, retry_budget, shards
from app.services.lifecycle import transitions


@dataclass(frozen=True, kw_only=True)
class ResumeCandidate:
    checkpoint_id: str
    job_id: str
    uri: str
    sha256: str
    step: int
    world_size: int


@dataclass(frozen=True, kw_only=True)
class NewCheckpoint:
    """A complete checkpoint in the storage that is to be recorded; ``checkpoint_id`` is part of its URI."""

    checkpoint_id: str
    step: int
    epoch: float
    world_size: int
    threads_per_rank: int | None
    size_bytes: int
    sha256: str
    uri: str
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecordedCheckpoint:
    """``prune``: (id, uri) of retired checkpoints, whose files may be deleted now."""

    checkpoint_id: str
    is_best: bool
    prune: tuple[tuple[str, str], ...]


def new_checkpoint_id() -> str:
    return new_id("ckpt")


def record(
    db: Database, *, job_id: str, attempt: int, fence: int, actor: str, new: NewCheckpoint
) -> RecordedCheckpoint:
    """Record a checkpoint and retire those beyond ``save_total_limit``, in one transaction; those of ``save_at`` stay.

    Idempotent, also under a stale token. Raises LeaseLost when ``fence`` is stale and the checkpoint is not recorded:
    its files are orphans then.
    """
    with db.write() as session:
        job = transitions.load_for_change(session, job_id)
        known = session.get(Checkpoint, new.checkpoint_id)
        if known is not None:
            return RecordedCheckpoint(
                checkpoint_id=known.id, is_best=known.is_best, prune=_retired_since(session, known)
            )
        if job.fence != fence or job.state not in HELD:
            raise LeaseLost(f"attempt {attempt} of job {job_id} may no longer record checkpoints")
        row = _row_of(new, job, attempt)
        session.add(row)
        session.flush()
        _refill_budget(session, job, new)
        # Locked before the pins are read: a submission that pins one at this moment is either seen or waits.
        rows = list(session.scalars(_of_job(job_id).with_for_update()))
        is_best = _mark_best(job, rows, new.checkpoint_id)
        pruned = _retire(session, job, rows)
        job.latest_checkpoint_id = new.checkpoint_id
        transitions.record_event(
            session,
            job_id,
            EventType.CHECKPOINT_SAVED,
            actor=actor,
            message=f"checkpoint at step {new.step}",
            data={"checkpoint_id": new.checkpoint_id, "step": new.step, "size_bytes": new.size_bytes},
        )
        events = (CHECKPOINT, BEST) if is_best else (CHECKPOINT,)
        planned_evaluations.make(session, job, events, actor=actor, checkpoint=row)
    return RecordedCheckpoint(checkpoint_id=new.checkpoint_id, is_best=is_best, prune=pruned)


def _row_of(new: NewCheckpoint, job: Job, attempt: int) -> Checkpoint:
    return Checkpoint(
        id=new.checkpoint_id,
        project=job.project,
        job_id=job.id,
        attempt=attempt,
        step=new.step,
        epoch=new.epoch,
        world_size=new.world_size,
        threads_per_rank=new.threads_per_rank,
        size_bytes=new.size_bytes,
        sha256=new.sha256,
        metrics=new.metrics,
        uri=new.uri,
    )


def is_recorded(db: Database, checkpoint_id: str) -> bool:
    """Whether the checkpoint was ever recorded, retired ones included."""
    with db.read() as session:
        return session.get(Checkpoint, checkpoint_id) is not None


def retire_unusable(session: Session, job: Job, checkpoint_id: str) -> bool:
    """Retire a checkpoint that turned out to be corrupt, within the caller's transaction; whether it was the job's.

    Otherwise it would stay the newest, and retention would delete good ones instead. Orphan clean-up deletes its files.
    """
    mine = (Checkpoint.id == checkpoint_id) & (Checkpoint.job_id == job.id) & Checkpoint.deleted_at.is_(None)
    result: Any = session.execute(update(Checkpoint).where(mine).values(deleted_at=utc_now(), is_best=False))
    rows = list(session.scalars(_of_job(job.id)))
    _mark_best(job, rows, checkpoint_id)
    job.latest_checkpoint_id = _newest(rows)
    return bool(result.rowcount)


def unneeded(session: Session, job_id: str, ids: Collection[str]) -> dict[str, int]:
    """Id → bytes of a job's checkpoints that no unfinished job starts from, and no service serves."""
    pinned = _pinned(session, list(ids))
    return {c.id: c.size_bytes for c in session.scalars(_of_job(job_id)) if c.id in ids and c.id not in pinned}


def retire_unneeded(session: Session, job: Job, ids: Collection[str]) -> dict[str, int]:
    """Retire unneeded checkpoints of an ended job that the caller has locked; their files may be deleted then."""
    rows = list(session.scalars(_of_job(job.id).with_for_update()))  # locked before the pins are read, as in `record`
    retired = unneeded(session, job.id, ids)
    if retired:
        change = update(Checkpoint).where(Checkpoint.id.in_(retired)).values(deleted_at=utc_now(), is_best=False)
        session.execute(change.execution_options(synchronize_session=False))
        retained = [c for c in rows if c.id not in retired]
        _mark_best(job, retained, "")
        job.latest_checkpoint_id = _newest(retained)
    return retired


def retire_released(db: Database, job_id: str) -> int:
    """Retire what ended evaluations and batches have kept of a job beyond ``save_total_limit``; how many checkpoints.

    In a transaction of its own: theirs has locked a job that is younger, and rows of jobs are locked by their ids.
    Orphan clean-up deletes the files.
    """
    released = (
        select(Checkpoint.id)
        .join(Job, Job.resume_checkpoint_id == Checkpoint.id)
        .where(Checkpoint.job_id == job_id, Checkpoint.deleted_at.is_(None))
        .where(Job.status.in_(TERMINAL), Job.training_type.in_(TYPES.values()))
    )
    with db.read() as session:
        if session.scalar(released.limit(1)) is None:
            return 0
    with db.write() as session:
        job = transitions.load_for_change(session, job_id)
        # locked before the pins are read, as in `record`
        return len(_retire(session, job, list(session.scalars(_of_job(job_id).with_for_update()))))


def list_for(session: Session, job_id: str) -> list[Checkpoint]:
    """The job's checkpoints, oldest first."""
    return list(session.scalars(_of_job(job_id)))


def saved_step(session: Session, job: Job, attempt: int) -> int:
    """The step of the newest checkpoint that this attempt saved, or of the job's shards; 0 when there is none."""
    if job.kind != TRAINING:
        return shards.stored_step(session, job)
    where = (Checkpoint.job_id == job.id) & (Checkpoint.attempt == attempt) & Checkpoint.deleted_at.is_(None)
    return session.scalar(select(func.max(Checkpoint.step)).where(where)) or 0


def resume_candidates(session: Session, job: Job) -> list[ResumeCandidate]:
    """Checkpoints to resume from, in order of preference: the job's own, newest first, then its start point.

    A chosen checkpoint comes first, followed by older ones, then newer ones; a job that resumes from its best one has
    that first. None for a job that does not train: the checkpoint that it refers to is its model.
    """
    if job.kind != TRAINING:
        return []
    mine = list_for(session, job.id)[::-1]
    rows = [c for c in mine if not c.diverged or c.id == job.chosen_checkpoint_id]
    start = session.get(Checkpoint, job.resume_checkpoint_id) if job.resume_checkpoint_id is not None else None
    if start is not None and start.deleted_at is None:
        rows.append(start)
    chosen = next((c for c in rows if c.id == job.chosen_checkpoint_id), None)
    if chosen is not None:
        rows.sort(key=lambda c: (c.id != chosen.id, c.step > chosen.step))
    elif resumes_from_best(job):
        rows.sort(key=lambda c: not c.is_best)
    return [
        ResumeCandidate(
            checkpoint_id=c.id, job_id=c.job_id, uri=c.uri, sha256=c.sha256, step=c.step, world_size=c.world_size
        )
        for c in rows
    ]


def start_step(session: Session, job: Job) -> int:
    """The step from which the job's next attempt starts, unless its checkpoint or shards prove damaged."""
    if job.kind != TRAINING:
        return shards.stored_step(session, job)
    if not (job.latest_checkpoint_id or job.chosen_checkpoint_id or job.resume_checkpoint_id):
        return 0  # no checkpoint to search for
    first = next(iter(resume_candidates(session, job)), None)
    return first.step if first is not None else 0


def retire_since(session: Session, job: Job, diverged_step: int, *, suspect_id: str | None = None) -> Checkpoint | None:
    """Retire the checkpoints saved since the loss diverged at a step; returns the last good one, if any.

    A good one is older than that step and was saved with a finite loss; the suspect one is used only if there is no
    older one. Orphan clean-up deletes the files of the others; one that another job starts from stays for that job.
    """
    rows = list(session.scalars(_of_job(job.id).with_for_update()))
    usable = [c for c in rows if not c.diverged and c.step < diverged_step and _is_finite(c.metrics.get("loss"))]
    if len(usable) > 1 and usable[-1].id == suspect_id:
        usable.pop()
    good = usable[-1] if usable else None
    bad = rows[rows.index(good) + 1 :] if good is not None else rows
    pinned = _pinned(session, [c.id for c in bad])
    for c in bad:
        c.diverged, c.is_best = True, False
        if c.id not in pinned:
            c.deleted_at = utc_now()
    session.flush()
    retained = [c for c in rows if c.deleted_at is None]
    _mark_best(job, retained, "")
    job.latest_checkpoint_id = _newest(retained)
    return good


def resumes_from_best(job: Job) -> bool:
    """Whether a retried or resumed attempt continues from the best checkpoint instead of the newest."""
    return job.document.output_config.checkpoint.resume_from_best


def lock(session: Session, checkpoint_id: str) -> Checkpoint | None:
    """The checkpoint, locked so that it cannot be retired meanwhile; None when it does not exist any more."""
    checkpoint = session.get(Checkpoint, checkpoint_id, with_for_update=True, populate_existing=True)
    return checkpoint if checkpoint is not None and checkpoint.deleted_at is None else None


def lock_all(session: Session, job_id: str) -> None:
    """Lock the checkpoints of a job that the caller has locked, so that there can't be others."""
    session.scalars(_of_job(job_id).with_only_columns(Checkpoint.id).with_for_update()).all()


def _refill_budget(session: Session, job: Job, new: NewCheckpoint) -> None:
    """Reset the retry budget when a checkpoint reaches further than all before it: the job made progress."""
    job.chosen_checkpoint_id = None  # the attempt has started from it
    others = (Checkpoint.job_id == job.id) & (Checkpoint.id != new.checkpoint_id)
    reached = session.scalar(select(func.max(Checkpoint.step)).where(others))
    if reached is None or new.step > reached:
        retry_budget.refill(job)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _mark_best(job: Job, rows: list[Checkpoint], new_id_: str) -> bool:
    top = best(_retention_input(job, rows))
    for c in rows:
        c.is_best = top is not None and c.id == top.checkpoint_id
    job.best_checkpoint_id = top.checkpoint_id if top is not None else None
    return top is not None and top.checkpoint_id == new_id_


def _retire(session: Session, job: Job, rows: list[Checkpoint]) -> tuple[tuple[str, str], ...]:
    settings = job.document.output_config.checkpoint
    preset = (job.node_defaults or {}).get("max_checkpoints")
    limit = preset if preset and "save_total_limit" not in settings.given else settings.save_total_limit
    pinned = _pinned(session, [c.id for c in rows])
    retained = [replace(one, pinned=one.checkpoint_id in pinned) for one in _retention_input(job, rows)]
    retired = {k.checkpoint_id for k in to_prune(retained, limit=limit)}
    retired |= {c.id for c in rows if c.diverged and c.id not in pinned}  # they stay only for jobs that start from them
    if retired:
        session.execute(update(Checkpoint).where(Checkpoint.id.in_(retired)).values(deleted_at=utc_now()))
    return tuple((c.id, c.uri) for c in rows if c.id in retired)


def _retired_since(session: Session, recorded: Checkpoint) -> tuple[tuple[str, str], ...]:
    """Checkpoints retired by recording this one or later; their files may be deleted already."""
    query = select(Checkpoint.id, Checkpoint.uri).where(
        Checkpoint.job_id == recorded.job_id, Checkpoint.deleted_at >= recorded.created_at
    )
    return tuple((row.id, row.uri) for row in session.execute(query))


def _pinned(session: Session, ids: list[str]) -> set[str]:
    """The checkpoints that unfinished jobs start from, and those that services serve."""
    query = select(Job.resume_checkpoint_id).where(Job.resume_checkpoint_id.in_(ids), Job.status.not_in(TERMINAL))
    served = select(Service.model_key).where(Service.model_key.in_(ids), Service.ended_at.is_(None))
    return {each for each in (*session.scalars(query), *session.scalars(served)) if each is not None}


def _of_job(job_id: str) -> Select[Checkpoint]:
    return (
        select(Checkpoint)
        .where(Checkpoint.job_id == job_id, Checkpoint.deleted_at.is_(None))
        .order_by(Checkpoint.attempt, Checkpoint.step, Checkpoint.id)
    )


def _newest(rows: list[Checkpoint]) -> str | None:
    return next((c.id for c in reversed(rows) if not c.diverged), None)


def _retention_input(job: Job, rows: list[Checkpoint]) -> list[RetainedCheckpoint]:
    """The job's checkpoints for retention and scoring, without diverged ones."""
    rows = [c for c in rows if not c.diverged]
    document = job.document
    values = document.training_config.hyperparameters
    kind = "" if job.framework == CUSTOM else method_of(job.training_type, values)
    settings = document.output_config.checkpoint
    metric, greater = best_rule(settings, kind)
    found, save_at = scores([c.metrics for c in rows], metric, greater_is_better=greater), frozenset(settings.save_at)
    return [
        RetainedCheckpoint(checkpoint_id=c.id, step=c.step, attempt=c.attempt, score=score, kept=c.step in save_at)
        for c, score in zip(rows, found, strict=True)
    ]
