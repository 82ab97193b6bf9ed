"""New metric points in order of arrival, for clients that follow a job."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.models import Metric


def points_after(
    session: Session, job_id: str, seq: int, *, names: Sequence[str] = (), limit: int = 500
) -> Sequence[Metric]:
    """The next points by arrival number. A repeated step appears again, with its new value."""
    query = select(Metric).where(Metric.job_id == job_id, Metric.seq > seq)
    if names:
        query = query.where(Metric.name.in_(names))
    return session.scalars(query.order_by(Metric.seq).limit(limit)).all()
