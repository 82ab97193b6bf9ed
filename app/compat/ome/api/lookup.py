"""Jobs by the names of TrainingJobs."""

from collections.abc import Sequence

from app.compat.ome.from_native import is_deleted, name_of
from app.compat.ome.to_native import DIALECT
from app.domain.errors import NotFound
from app.domain.ids import JOB_ID
from app.http.context import caller
from app.services.jobs import lookup
from app.services.jobs.details import JobDetails, details
from app.services.rows import Session


def alias_of(namespace: str, name: str) -> str:
    return f"{DIALECT}:{namespace}:{name}"


def find(session: Session, namespace: str, name: str) -> JobDetails:
    """By the name of the TrainingJob, or by the job's id where it has none.

    Raises NotFound for a job that does not exist, is deleted, or that the caller does not see.
    """
    missing = f'trainingjobs.ome.io "{name[:64]}" not found'
    try:
        job = lookup.find_by_alias(session, caller(), alias_of(namespace, name), missing=missing)
    except NotFound:
        if not JOB_ID.fullmatch(name):
            raise
        job = lookup.find(session, caller(), name)
    found = details(session, job)
    if is_deleted(found) or job.project != namespace or name_of(found) != name:
        raise NotFound(missing)
    return found


def named(session: Session, namespace: str, name: str) -> Sequence[JobDetails]:
    """The job of this name, or none."""
    try:
        return [find(session, namespace, name)]
    except NotFound:
        return []
