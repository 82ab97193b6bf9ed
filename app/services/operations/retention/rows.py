"""Retention of rows by age, deleted in batches so that transactions stay short."""

from typing import Any

from sqlalchemy import ColumnElement, delete, func, inspect, select, tuple_

from app.models import AuditEntry, IdempotentReply, JobEvent, Metric, MetricSummary
from app.models.base import Base
from app.services.operations.retention.context import Ground, Pruned
from app.services.requests.idempotency import TTL

ROWS_AT_ONCE = 5000


def metrics(ground: Ground) -> Pruned:
    """Delete metric points and summaries; the job retains the newest values."""
    days = ground.settings.metrics_days
    for summaries in ground.ended_before(days):
        _drop(ground, MetricSummary, MetricSummary.job_id.in_(summaries))
    return sum((_drop(ground, Metric, Metric.job_id.in_(ids)) for ids in ground.ended_before(days)), Pruned())


def events(ground: Ground) -> Pruned:
    batches = ground.ended_before(ground.settings.events_days)
    return sum((_drop(ground, JobEvent, JobEvent.job_id.in_(ids)) for ids in batches), Pruned())


def audit_entries(ground: Ground) -> Pruned:
    return _drop(ground, AuditEntry, AuditEntry.at < ground.before(ground.settings.audit_days))


def answers(ground: Ground) -> Pruned:
    """Delete replies to idempotent requests after a day."""
    return _drop(ground, IdempotentReply, IdempotentReply.created_at < ground.now - TTL)


def _drop(ground: Ground, model: type[Base], where: ColumnElement[bool]) -> Pruned:
    if ground.dry_run:
        with ground.plane.db.read() as session:
            return Pruned(count=session.scalar(select(func.count()).select_from(model).where(where)) or 0)
    key = inspect(model).primary_key
    statement: Any = delete(model).where(tuple_(*key).in_(select(*key).where(where).limit(ROWS_AT_ONCE)))
    dropped = 0
    while True:
        with ground.plane.db.write() as session:
            result: Any = session.execute(statement, execution_options={"synchronize_session": False})
        dropped += result.rowcount
        if result.rowcount < ROWS_AT_ONCE:
            return Pruned(count=dropped)
