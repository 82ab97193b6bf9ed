"""Job ids in APIs that use UUIDs: the UUID in the native id."""

from app.domain.ids import JOB_ID

_PREFIX = "job-"


def uuid_of(job_id: str) -> str:
    return job_id.removeprefix(_PREFIX)


def job_id_of(uuid: str) -> str:
    """The native id; empty for an invalid UUID."""
    job_id = f"{_PREFIX}{uuid}"
    return job_id if JOB_ID.fullmatch(job_id) else ""
