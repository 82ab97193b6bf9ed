"""All jobs that a caller sees: vocabularies filter and order by what they tell of a job, not by columns alone."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.http.context import caller
from app.services.jobs import listing
from app.services.jobs.details import JobDetails
from app.services.requests.pagination import PageRequest

MAX_JOBS = 10_000  # that a list looks at
_EPOCH = datetime.fromtimestamp(0, UTC)
_LAST = 253_370_764_800_000  # the year 9999
_FIRST_PAGE, _LARGEST_PAGE = 50, 500  # most clients look at few; those who look at all need few questions


def every_job(
    session: Session, filters: Mapping[str, Any] | None = None, order: str = "-created_at"
) -> Iterator[JobDetails]:
    """The newest first, up to so many; also those that a client deleted.

    ``filters``: of `job_lists`, so that of very many jobs those are looked at that may be meant.
    """
    return islice(_pages(session, filters or {}, order, None), MAX_JOBS)


def moment_of(milliseconds: int) -> datetime:
    """So long after the beginning of 1970, or the nearest moment that a database can be asked for."""
    return _EPOCH + timedelta(milliseconds=max(0, min(milliseconds, _LAST)))


def jobs_after(session: Session, key: tuple[datetime, str] | None) -> Iterator[JobDetails]:
    """All of them, the oldest first, or those after the job that was made then and has this id."""
    return _pages(session, {}, "created_at", key)


def _pages(
    session: Session, filters: Mapping[str, Any], order: str, after: tuple[Any, ...] | None
) -> Iterator[JobDetails]:
    size = _FIRST_PAGE
    while True:
        try:
            page = listing.page(session, caller(), filters, PageRequest(size=size, order=order, after=after))
        except NotFound:  # the project that is asked for
            return
        size = min(2 * size, _LARGEST_PAGE)
        yield from page.items
        if page.next_after is None:
            return
        after = page.next_after
