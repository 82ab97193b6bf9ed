"""What the last attempt of a job has read as its model and data."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.lifecycle.events import EventType
from app.domain.model_cards.inputs import ReadInputs
from app.models import JobEvent


def read_inputs(session: Session, job_id: str) -> ReadInputs:
    """Empty before an attempt has read them, for jobs of earlier versions, and when retention has deleted the event."""
    of_job = (JobEvent.job_id == job_id, JobEvent.type == EventType.INPUTS)
    data = session.scalar(select(JobEvent.data).where(*of_job).order_by(JobEvent.seq.desc()).limit(1))
    return ReadInputs.from_json(data) if data else ReadInputs()
