"""Attempts of late whose outcome Trainyard failed to record, for `doctor` and Prometheus."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import ColumnElement, TextClause, func, select
from sqlalchemy.orm import Session

from app.models import Attempt
from app.models.base import database_now
from app.models.jobs.attempt import IS_OUTCOME_ERROR

REPORTED_FOR = timedelta(days=1)


def count(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(Attempt).where(*_of_late(session))) or 0


def newest(session: Session, limit: int) -> Sequence[str]:
    """Job ids of the newest such attempts."""
    query = select(Attempt.job_id).where(*_of_late(session)).order_by(Attempt.ended_at.desc())
    return session.scalars(query.limit(limit)).all()


def _of_late(session: Session) -> tuple[TextClause, ColumnElement[bool]]:
    return IS_OUTCOME_ERROR, Attempt.ended_at > database_now(session) - REPORTED_FOR
