"""Who made a job, where a foreign system tells a person: the name of the key that submitted it."""

from sqlalchemy.orm import Session

from app.models import Job
from app.services import keys


class Authors:
    """Of the jobs of one answer; each key is looked up once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names: dict[str, str] = {}

    def name_of(self, job: Job) -> str:
        """The key's id where it has no name or is gone."""
        if job.created_by not in self._names:
            self._names[job.created_by] = keys.name_of(self._session, job.created_by)
        return self._names[job.created_by]
