"""Job ids in APIs that use UUIDs: the UUID in the native id."""

from app.domain.ids import JOB_ID

_PREFIX, _OF_SWEEPS = "job-", "sweep-"


def uuid_of(job_id: str) -> str:
    """Also of the id of a sweep, which is a job in such an API."""
    return job_id.removeprefix(_PREFIX).removeprefix(_OF_SWEEPS)


def job_id_of(uuid: str) -> str:
    """The native id; empty for an invalid UUID."""
    job_id = f"{_PREFIX}{uuid}"
    return job_id if JOB_ID.fullmatch(job_id) else ""


def sweep_id_of(uuid: str) -> str:
    """The native id of the sweep, which there may not be."""
    return f"{_OF_SWEEPS}{uuid}"
