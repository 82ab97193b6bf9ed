"""All jobs that a caller sees: vocabularies filter and order by what they tell of a job, not by columns."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from app.http.context import caller
from app.services import job_lists
from app.services.job_details import JobDetails
from app.services.pages import PageRequest

MOST_JOBS = 10_000  # that a list looks at
_PAGE = 500


def every_job(session: Session, order: str = "-created_at") -> Iterator[JobDetails]:
    """In this order, up to so many; also those that a client deleted."""
    return islice(_pages(session, order), MOST_JOBS)


def _pages(session: Session, order: str) -> Iterator[JobDetails]:
    after: tuple[Any, ...] | None = None
    while True:
        page = job_lists.page(session, caller(), {}, PageRequest(size=_PAGE, order=order, after=after))
        yield from page.items
        after = page.next_after
        if after is None:
            return
