"""Ids of jobs where a foreign system has UUIDs: that part of ours."""

from app.domain.ids import JOB_ID

_PREFIX = "job-"


def uuid_of(job_id: str) -> str:
    return job_id.removeprefix(_PREFIX)


def job_id_of(uuid: str) -> str:
    """Ours; empty for what is no UUID, which names no job."""
    job_id = f"{_PREFIX}{uuid}"
    return job_id if JOB_ID.fullmatch(job_id) else ""
