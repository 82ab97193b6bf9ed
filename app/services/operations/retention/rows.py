"""Retention of rows by age, deleted in batches so that transactions stay short."""

from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, inspect, select, tuple_

from app.domain.sweeps.states import TERMINAL
from app.models import (
    AuditEntry,
    Batch,
    BatchJob,
    IdempotentReply,
    Job,
    JobEvent,
    Metric,
    MetricSummary,
    ModelUsage,
    Replica,
    Service,
    Sweep,
    SweepEvent,
)
from app.models.base import Base
from app.services.operations.retention.context import Pruned, RetentionContext
from app.services.requests.idempotency import TTL

ROWS_AT_ONCE = 5000


def metrics(context: RetentionContext) -> Pruned:
    """Delete metric points and summaries; the job retains the newest values."""
    days = context.settings.metrics_days
    for summaries in context.ended_before(days):
        _drop(context, MetricSummary, MetricSummary.job_id.in_(summaries))
    return sum((_drop(context, Metric, Metric.job_id.in_(ids)) for ids in context.ended_before(days)), Pruned())


def events(context: RetentionContext) -> Pruned:
    """Delete histories of jobs and sweeps; what a sweep's trials are and have found is no part of its history."""
    days = context.settings.events_days
    of_jobs = (_drop(context, JobEvent, JobEvent.job_id.in_(ids)) for ids in context.ended_before(days))
    ended = select(Sweep.id).where(Sweep.status.in_(TERMINAL), Sweep.finished_at < context.before(days))
    return sum(of_jobs, Pruned()) + _drop(context, SweepEvent, SweepEvent.sweep_id.in_(ended))


def audit_entries(context: RetentionContext) -> Pruned:
    return _drop(context, AuditEntry, AuditEntry.at < context.before(context.settings.audit_days))


def services(context: RetentionContext) -> Pruned:
    """Delete ended services with their history, once all jobs that were their replicas are deleted."""
    is_old = Service.ended_at < context.before(context.settings.jobs_days)
    return _drop(context, Service, is_old & ~exists().where(Replica.service_id == Service.id))


def batches(context: RetentionContext) -> Pruned:
    """Delete batches that ended long ago, once all of their jobs are deleted; their files are those of users."""
    is_old = Batch.ended_at < context.before(context.settings.jobs_days)
    has_jobs = exists().where(BatchJob.batch_id == Batch.id, BatchJob.job_id == Job.id)
    return _drop(context, Batch, is_old & ~has_jobs)


def model_usage(context: RetentionContext) -> Pruned:
    return _drop(context, ModelUsage, ModelUsage.day < context.before(context.settings.usage_days).date())


def answers(context: RetentionContext) -> Pruned:
    """Delete replies to idempotent requests after a day."""
    return _drop(context, IdempotentReply, IdempotentReply.created_at < context.now - TTL)


def _drop(context: RetentionContext, model: type[Base], where: ColumnElement[bool]) -> Pruned:
    if context.dry_run:
        with context.plane.db.read() as session:
            return Pruned(count=session.scalar(select(func.count()).select_from(model).where(where)) or 0)
    key = inspect(model).primary_key
    statement: Any = delete(model).where(tuple_(*key).in_(select(*key).where(where).limit(ROWS_AT_ONCE)))
    dropped = 0
    while True:
        with context.plane.db.write() as session:
            result: Any = session.execute(statement, execution_options={"synchronize_session": False})
        dropped += result.rowcount
        if result.rowcount < ROWS_AT_ONCE:
            return Pruned(count=dropped)
