"""What a planned evaluation has measured, as points of the training that plans it, at the step of the checkpoint.

Other evaluations of a job's model write none: of two with one benchmark the later one would replace the earlier one.
"""

from collections.abc import Mapping

from sqlalchemy import select

from app.database.engine import Database
from app.domain.errors import LeaseLost
from app.domain.lifecycle.states import HELD
from app.models import Job
from app.models.base import utc_now
from app.services.telemetry import stored_metrics
from app.services.telemetry.stored_metrics import MetricValue

PREFIX = "bench/"  # of the metrics of benchmarks
LONGEST_NAME, MOST = 128, 1000


def store(db: Database, *, evaluation_id: str, fence: int, values: Mapping[str, float]) -> None:
    """Write the values of a finished evaluation, if it is a planned one, before its outcome is; idempotent.

    In a transaction of its own: that of the outcome has locked the evaluation, which is younger than the job, and rows
    of jobs are locked by their ids. Raises LeaseLost.
    """
    measured = {name: value for name, value in values.items() if name.startswith(PREFIX) and len(name) <= LONGEST_NAME}
    held = (Job.id == evaluation_id, Job.fence == fence, Job.status.in_(HELD))
    with db.write() as session:
        evaluation = session.scalars(select(Job).where(*held)).one_or_none()
        if evaluation is None:
            raise LeaseLost(f"evaluation {evaluation_id} may no longer report")
        section = evaluation.document.inference
        if evaluation.evaluated_job_id is None or section is None or not section.planned:
            return
        job = session.get(Job, evaluation.evaluated_job_id, with_for_update=True, populate_existing=True)
        if job is None:
            return  # deleted meanwhile
        step = job.current_step if evaluation.evaluated_step is None else evaluation.evaluated_step
        now = utc_now()
        points = [MetricValue(name=name, step=step, at=now, value=value) for name, value in sorted(measured.items())]
        stored_metrics.add_points(session, job, points[:MOST])
