"""Finds the job that a handle stands for: its id, its name, the end of its id, or `@last`."""

import re
from http import HTTPStatus

from trainyard._client.calls import Calls, query_of
from trainyard._client.errors import AmbiguousHandle, NotFound
from trainyard._client.http import quote
from trainyard.records import Job

LAST = "@last"
MOST_SHOWN = 5
_JOB_ID = re.compile("job-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_job_id(handle: str) -> bool:
    """Whether this is a whole id, which needs no search."""
    return _JOB_ID.fullmatch(handle) is not None


def find(calls: Calls, handle: str) -> Job:
    """The job. Raises NotFound, and AmbiguousHandle for a handle of several jobs."""
    if is_job_id(handle):
        return Job.of(calls.record("GET", f"/v1/jobs/{quote(handle)}"))
    if handle == LAST:
        newest = calls.record("GET", "/v1/jobs", query=query_of(created_by="me", page_size=1))["jobs"]
        if not newest:
            raise _not_found(f"{LAST}: this key has submitted no job; name one by its id or name")
        return Job.of(newest[0])
    query = query_of(handle=handle, page_size=MOST_SHOWN + 1)
    page = calls.record("GET", "/v1/jobs", query=query)
    found = [Job.of(job) for job in page["jobs"]]
    if not found:
        raise _not_found(f"no job {handle}")
    if len(found) > 1:
        raise AmbiguousHandle(handle, found[:MOST_SHOWN], page["total_count"])
    return found[0]


def _not_found(message: str) -> NotFound:
    return NotFound(HTTPStatus.NOT_FOUND, {"code": "NOT_FOUND", "message": message})
