"""Label rows of jobs, by which lists are filtered."""

from sqlalchemy import update
from sqlalchemy.orm import Session

from app.domain.lifecycle.states import TERMINAL, JobState
from app.models import Job, JobLabel
from app.models.insertion import new_row


def rows(job: Job) -> list[JobLabel]:
    """Label rows of a job with ``created_at`` set; they duplicate the columns that lists filter by."""
    ended_as = job.status if job.state in TERMINAL else None
    return [
        new_row(
            JobLabel,
            job_id=job.id,
            key=key,
            value=value,
            project=job.project,
            training_type=job.training_type,
            framework=job.framework,
            queue=job.queue,
            created_at=job.created_at,
            ended_as=ended_as,
        )
        for key, value in job.labels.items()
    ]


def end(session: Session, job_id: str, state: JobState) -> None:
    """Record the terminal state, so that lists by label and status need not join the job."""
    session.execute(
        update(JobLabel)
        .where(JobLabel.job_id == job_id)
        .values(ended_as=state)
        .execution_options(synchronize_session=False)
    )
