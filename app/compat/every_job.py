"""Iterators over the jobs that a caller sees, for filters and orders on translated values instead of columns."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from app.domain.errors import NotFound
from app.http.context import caller
from app.services.jobs import listing
from app.services.jobs.details import JobDetails
from app.services.requests.pagination import PageRequest
from app.services.rows import Session

MAX_JOBS = 10_000  # that a list reads
_EPOCH = datetime.fromtimestamp(0, UTC)
_LAST = 253_370_764_800_000  # the year 9999
_FIRST_PAGE, _LARGEST_PAGE = 50, 500  # page sizes grow: most clients read few jobs, others all of them


def every_job(
    session: Session, filters: Mapping[str, Any] | None = None, order: str = "-created_at"
) -> Iterator[JobDetails]:
    """At most ``MAX_JOBS``, by default the newest first; also those that a client deleted.

    ``filters``: of `services.jobs.listing`, to read only candidates from the database.
    """
    return islice(_pages(session, filters or {}, order, None), MAX_JOBS)


def moment_of(milliseconds: int) -> datetime:
    """The time of a Unix timestamp, clamped to the range of the database."""
    return _EPOCH + timedelta(milliseconds=max(0, min(milliseconds, _LAST)))


def jobs_after(session: Session, key: tuple[datetime, str] | None) -> Iterator[JobDetails]:
    """All jobs, the oldest first, or those after the job with this (created_at, id)."""
    return _pages(session, {}, "created_at", key)


def _pages(
    session: Session, filters: Mapping[str, Any], order: str, after: tuple[Any, ...] | None
) -> Iterator[JobDetails]:
    size = _FIRST_PAGE
    while True:
        try:
            page = listing.page(session, caller(), filters, PageRequest(size=size, order=order, after=after))
        except NotFound:  # a filter names a project that the caller does not see
            return
        size = min(2 * size, _LARGEST_PAGE)
        yield from page.items
        if page.next_after is None:
            return
        after = page.next_after
