"""The rows of a job's labels, which lists are filtered by."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Job, JobLabel


def rows(job: Job) -> list[JobLabel]:
    """Of a job whose row says when it was made: what lists filter by stands in these rows too."""
    ended_as = job.status if job.state in TERMINAL else None
    return [
        JobLabel(
            job_id=job.id, key=key, value=value, project=job.project, training_type=job.training_type,
            framework=job.framework, queue=job.queue, created_at=job.created_at, ended_as=ended_as,
        )
        for key, value in job.labels.items()
    ]  # fmt: skip


def end(session: Session, job_id: str, state: JobState) -> None:
    """The job has ended in this state; lists by label and status then need not look at the job."""
    session.execute(
        update(JobLabel)
        .where(JobLabel.job_id == job_id)
        .values(ended_as=state)
        .execution_options(synchronize_session=False)
    )
