"""The line in which jobs wait, as SQL: what ``QueuedJob.place`` is in the planner."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Double, func, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from app.domain.scheduling.queue_order import AGEING_SECONDS
from app.models.base import UtcDateTime
from app.models.job import Job


class seconds_of(FunctionElement[float]):  # noqa: N801  (named as it reads in SQL)
    """A time as seconds by the database's own count, of which only differences mean anything."""

    type = Double()
    name = "seconds_of"
    inherit_cache = True


@compiles(seconds_of, "sqlite")
def _in_sqlite(element: Any, compiler: Any, **kwargs: Any) -> str:
    return f"(julianday({compiler.process(element.clauses, **kwargs)}) * 86400.0)"


@compiles(seconds_of, "postgresql")
def _in_postgresql(element: Any, compiler: Any, **kwargs: Any) -> str:
    return f"CAST(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **kwargs)}) AS DOUBLE PRECISION)"


# A job that was not admitted yet will be queued after everything that is; until then its submission counts.
WAITING_SINCE = func.coalesce(Job.queued_at, Job.created_at, type_=Job.created_at.type)


def served_as_if_since(since: Any, priority: Any) -> Any:
    """When a job would have been queued that had to wait as long, but with priority 0."""
    return seconds_of(since) - priority * AGEING_SECONDS


def ahead_of_new(now: datetime, priority: int) -> ColumnElement[bool]:
    """Which jobs one that is queued now would stand behind."""
    new = served_as_if_since(literal(now, UtcDateTime()), priority)
    stands: ColumnElement[bool] = served_as_if_since(WAITING_SINCE, Job.priority) <= new
    return stands


LINE = (served_as_if_since(WAITING_SINCE, Job.priority), Job.id)
