"""Shards of jobs that train nothing: recorded under the fencing token once they are stored, each exactly once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.states import HELD
from app.domain.spec.inference import EVALUATION, TRAINING
from app.models import Job, Shard
from app.models.base import utc_now
from app.services.attempts import retry_budget
from app.services.lifecycle import transitions


@dataclass(frozen=True, kw_only=True)
class NewShard:
    """A complete shard in the storage that is to be recorded."""

    number: int
    first_record: int
    records: int
    size_bytes: int
    sha256: str
    uri: str
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StoredShard:
    """A recorded shard, which a later attempt takes over."""

    number: int
    records: int
    sha256: str
    uri: str


@dataclass(frozen=True, kw_only=True)
class ShardCounts:
    """What a job has stored so far; ``counts`` are the sums of what its shards count."""

    shards: int = 0
    records: int = 0
    counts: Mapping[str, float] = field(default_factory=dict)


def record(db: Database, *, job_id: str, attempt: int, fence: int, new: NewShard) -> int | None:
    """Record a stored shard; returns the fencing token of the one that it replaces, whose files may be deleted.

    A shard of an earlier attempt is replaced only because its files were lost: an attempt does no finished one again.
    Idempotent, also under a stale token. Raises LeaseLost when ``fence`` is stale and the shard is not recorded: its
    files are orphans then.
    """
    with db.write() as session:
        job = transitions.load_for_change(session, job_id)
        known = session.get(Shard, (job_id, new.number))
        if known is not None and known.uri == new.uri:
            return None
        if job.fence != fence or job.state not in HELD:
            raise LeaseLost(f"attempt {attempt} of job {job_id} may no longer record shards")
        values = {"attempt": attempt, "fence": fence, "created_at": utc_now(), **_columns(new)}
        replaced = known.fence if known is not None else None
        if known is None:
            session.add(Shard(job_id=job_id, number=new.number, **values))
            retry_budget.refill(job)
        else:
            for name, value in values.items():
                setattr(known, name, value)
    return replaced


def is_recorded(db: Database, job_id: str, number: int, uri: str) -> bool:
    """Whether this shard is the recorded one of its number."""
    with db.read() as session:
        row = session.get(Shard, (job_id, number))
        return row is not None and row.uri == uri


def stored(session: Session, job: Job) -> list[StoredShard]:
    """The recorded shards by number; none of a job that trains."""
    if job.kind == TRAINING:
        return []
    return [
        StoredShard(number=row.number, records=row.records, sha256=row.sha256, uri=row.uri)
        for row in session.scalars(_of_job(job.id))
    ]


def stored_step(session: Session, job: Job) -> int:
    """The step that the recorded shards have reached: their records, or their number where each is a benchmark."""
    step = func.count() if job.kind == EVALUATION else func.sum(Shard.records)
    return int(session.scalar(select(step).where(Shard.job_id == job.id)) or 0)


def counts_of(session: Session, job_id: str) -> ShardCounts:
    """Number of shards and records stored so far, and the sums of their counts."""
    rows = session.execute(select(Shard.records, Shard.counts).where(Shard.job_id == job_id)).all()
    sums: dict[str, Any] = {}
    for row in rows:
        for name, value in row.counts.items():
            sums[name] = sums.get(name, 0) + value
    return ShardCounts(shards=len(rows), records=sum(row.records for row in rows), counts=sums)


def _of_job(job_id: str) -> Select[Shard]:
    return select(Shard).where(Shard.job_id == job_id).order_by(Shard.number)


def _columns(new: NewShard) -> dict[str, Any]:
    return {
        "first_record": new.first_record,
        "records": new.records,
        "size_bytes": new.size_bytes,
        "sha256": new.sha256,
        "counts": dict(new.counts),
        "uri": new.uri,
    }
