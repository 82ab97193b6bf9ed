"""All jobs that a caller sees: vocabularies filter and order by what they tell of a job, not by columns."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from sqlalchemy.orm import Session

from app.http.context import caller
from app.services import job_lists
from app.services.job_details import JobDetails
from app.services.pages import PageRequest

MOST_JOBS = 10_000  # that a list looks at
_FIRST_PAGE, _LARGEST_PAGE = 50, 500  # most clients look at few; those who look at all need few questions


def every_job(session: Session) -> Iterator[JobDetails]:
    """The newest first, up to so many; also those that a client deleted."""
    return islice(_pages(session, "-created_at", None), MOST_JOBS)


def jobs_after(session: Session, key: tuple[datetime, str] | None) -> Iterator[JobDetails]:
    """All of them, the oldest first, or those after the job that was made then and has this id."""
    return _pages(session, "created_at", key)


def _pages(session: Session, order: str, after: tuple[datetime, str] | None) -> Iterator[JobDetails]:
    size = _FIRST_PAGE
    while True:
        page = job_lists.page(session, caller(), {}, PageRequest(size=size, order=order, after=after))
        size = min(2 * size, _LARGEST_PAGE)
        yield from page.items
        if page.next_after is None:
            return
        made, job_id = page.next_after
        after = made, job_id
