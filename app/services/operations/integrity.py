"""Integrity checks of the database's content: the database's own checks and application invariants."""

from collections.abc import Iterator

from sqlalchemy import Select, and_, exists, func, select, text

from app.database.engine import Database
from app.domain.batches.states import ENDED
from app.domain.lifecycle.states import HELD, TERMINAL
from app.domain.units import WHOLE
from app.models import Attempt, Batch, Checkpoint, Job, JobEvent, Lease, Reservation, Sweep, Trial

SHOWN = 5

_LIVE = Lease.released_at.is_(None)
# Violated invariants: (description, query for the ids).
RULES: tuple[tuple[str, Select[str]], ...] = (
    (
        "jobs run without a lease",
        select(Job.id).where(Job.status.in_(HELD), ~exists().where(Lease.job_id == Job.id, _LIVE)),
    ),
    (
        "finished or waiting jobs hold a lease",
        select(Job.id).where(Job.status.not_in(HELD), exists().where(Lease.job_id == Job.id, _LIVE)),
    ),
    ("finished jobs have no finish time", select(Job.id).where(Job.status.in_(TERMINAL), Job.finished_at.is_(None))),
    (
        "jobs have devices without a lease",
        select(Reservation.job_id).where(
            ~exists().where(and_(Lease.job_id == Reservation.job_id, Lease.attempt == Reservation.attempt), _LIVE)
        ),
    ),
    (
        "devices are allocated more than once",
        select(Reservation.node)
        .group_by(Reservation.node, Reservation.device_index)
        .having(func.sum(Reservation.share) > WHOLE),
    ),
    (
        "sweeps have gaps in the numbers of their trials",
        select(Sweep.id).where(
            Sweep.next_number
            != select(func.count()).where(Trial.sweep_id == Sweep.id).correlate(Sweep).scalar_subquery()
        ),
    ),
    (
        "jobs have a wrong attempt count",
        select(Job.id).where(
            Job.attempt
            != func.coalesce(select(func.max(Attempt.number)).where(Attempt.job_id == Job.id).scalar_subquery(), 0)
        ),
    ),
    (
        "jobs have gaps in their event history",
        select(JobEvent.job_id).group_by(JobEvent.job_id).having(func.count() != func.max(JobEvent.seq)),
    ),
    (
        "ended batches have no time of their end",
        select(Batch.id).where(Batch.status.in_(ENDED), Batch.ended_at.is_(None)),
    ),
    (
        "jobs refer to a foreign or deleted checkpoint",
        select(Job.id).where(
            Job.latest_checkpoint_id.is_not(None),
            ~exists().where(
                Checkpoint.id == Job.latest_checkpoint_id, Checkpoint.job_id == Job.id, Checkpoint.deleted_at.is_(None)
            ),
        ),
    ),
)


def problems(db: Database) -> Iterator[str]:
    """One line per problem; empty if there is none."""
    if db.engine.dialect.name == "sqlite":
        yield from _sqlite(db)
    with db.read() as session:
        for what, query in RULES:
            found = session.scalars(query.limit(SHOWN + 1)).all()
            if found:
                yield f"{what}: {', '.join(found[:SHOWN])}" + (" …" if len(found) > SHOWN else "")


def _sqlite(db: Database) -> Iterator[str]:
    with db.engine.connect() as connection:
        for (line,) in connection.execute(text("PRAGMA integrity_check")):
            if line != "ok":
                yield f"the file is damaged: {line}"
        for row in connection.execute(text("PRAGMA foreign_key_check")):
            yield f"a row of {row[0]} refers to a missing row of {row[2]}"
