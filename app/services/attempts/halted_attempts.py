"""Attempts that had reached a halt of their document when they ended otherwise: by a crash, a drain, a lost node."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.halts import is_halt
from app.models import Attempt, Checkpoint, Job


def reached(session: Session, job: Job, attempt: Attempt, end_step: int) -> Checkpoint | None:
    """The checkpoint of the halt that is the last step this attempt saved, if it made none after it.

    Its successor would start from that checkpoint and ignore the halt. None for an attempt that started there.
    """
    halts = job.document.training_config.halt_at
    if halts is None:
        return None
    mine = (Checkpoint.job_id == job.id) & (Checkpoint.attempt == attempt.number) & Checkpoint.deleted_at.is_(None)
    saved = session.scalars(select(Checkpoint).where(mine).order_by(Checkpoint.step.desc()).limit(1)).first()
    if saved is None or saved.diverged or saved.step < end_step or saved.step <= attempt.start_step:
        return None
    is_one = is_halt(halts, step=saved.step, epoch=saved.epoch, total_steps=job.total_steps)
    return saved if is_one else None


def where_it_stands(session: Session, job: Job, attempt: Attempt, end_step: int) -> dict[str, Any]:
    """Columns for a job that pauses at its halt: the attempt may have ended before it reported its last steps."""
    saved = reached(session, job, attempt, end_step)
    if saved is None:
        return {}
    progress = min(1.0, saved.step / job.total_steps) if job.total_steps else job.progress
    return {"current_step": saved.step, "current_epoch": saved.epoch, "progress": progress}
