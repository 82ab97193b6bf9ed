"""The queue order of waiting jobs in SQL, equal to ``QueuedJob.place`` in the planner."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Double, SQLColumnExpression, func, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from app.domain.scheduling.queue_order import AGEING_SECONDS
from app.models.base import UtcDateTime
from app.models.jobs.job import Job


class seconds_of(FunctionElement[float]):  # noqa: N801  (named as it reads in SQL)
    """A time in seconds with a database-specific epoch: only differences are meaningful."""

    type = Double()
    name = "seconds_of"
    inherit_cache = True


@compiles(seconds_of, "sqlite")
def _in_sqlite(element: seconds_of, compiler: SQLCompiler, **kwargs: Any) -> str:
    return f"(julianday({compiler.process(element.clauses, **kwargs)}) * 86400.0)"


@compiles(seconds_of, "postgresql")
def _in_postgresql(element: seconds_of, compiler: SQLCompiler, **kwargs: Any) -> str:
    return f"CAST(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **kwargs)}) AS DOUBLE PRECISION)"


# A job that is not admitted yet will be queued after all queued ones; until then its submission time counts.
WAITING_SINCE = func.coalesce(Job.queued_at, Job.created_at, type_=Job.created_at.type)


def served_as_if_since(
    since: SQLColumnExpression[datetime], priority: SQLColumnExpression[int] | int
) -> ColumnElement[float]:
    """The queue time of a priority-0 job with the same position: priority counts as waiting time."""
    return seconds_of(since) - priority * AGEING_SECONDS


def ahead_of_new(now: datetime, priority: int) -> ColumnElement[bool]:
    """The jobs ahead of one that is queued now."""
    new = served_as_if_since(literal(now, UtcDateTime()), priority)
    stands: ColumnElement[bool] = served_as_if_since(WAITING_SINCE, Job.priority) <= new
    return stands


LINE = (served_as_if_since(WAITING_SINCE, Job.priority), Job.id)
