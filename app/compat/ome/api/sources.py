"""What lists and watches of resources are made of: objects, grouped by the job that they tell of."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from app.compat.every_job import every_job, jobs_after
from app.compat.ome.dialect import API_VERSION
from app.compat.ome.from_native import is_deleted
from app.domain.errors import InvalidRequest
from app.domain.ids import JOB_ID
from app.http.context import caller
from app.services.jobs import listing
from app.services.jobs.details import JobDetails
from app.services.rows import Job, Session

Object = Mapping[str, Any]
_EPOCH = datetime.fromtimestamp(0, UTC)
_CHUNK = 50  # jobs that are translated at once


class Group(NamedTuple):
    """The objects of one owner: of a job, or an object that is its own."""

    owner: str
    position: str  # where in the order of a list it is
    objects: Sequence[Object]
    is_gone: bool = False  # deleted: they were there, and clients that come back to a watch must be told


@dataclass(frozen=True, kw_only=True)
class Asked:
    """For a page of a list: what comes `after` a position, lazily, or empty from the beginning. For a watch: what
    has changed `since`. With neither, all, or of very many jobs the newest.
    """

    after: str | None = None
    since: datetime | None = None


class Losses(NamedTuple):
    """What is done to objects, as the audit trail has it, and can't be told to a client that comes back to a watch."""

    erased: tuple[str, ...]
    relabelled: tuple[str, ...]  # they may be among those that a client selects no longer


OF_JOBS = Losses(("job.delete",), ("job.patch",))


def newest_job(session: Session) -> tuple[int, Any, Any]:
    """How many jobs the caller sees, and values that differ whenever one of them has changed."""
    return listing.newest_change(session, caller())


@dataclass(frozen=True, kw_only=True)
class Source:
    """A kind of objects. They may have changed whenever `newest` has."""

    kind: str
    look: Callable[[Session, Asked], Iterable[Group]]
    api_version: str = API_VERSION
    # How many owners there are, None if nobody counts them, and anything that differs when one has changed.
    newest: Callable[[Session], tuple[Any, ...]] = newest_job
    losses: Losses = OF_JOBS
    existing: Callable[[Session, Collection[str]], set[str]] | None = (
        listing.existing
    )  # None where a look always finds all


def fixed(find: Callable[[Session], Sequence[Object]]) -> Callable[[Session, Asked], Iterable[Group]]:
    """A look that finds all of them each time."""

    def look(session: Session, asked: Asked) -> Iterator[Group]:
        begin = _number(asked.after) + 1 if asked.after else 0
        for number, each in enumerate(find(session)):
            if number >= begin:
                yield Group(str(each["metadata"]["uid"]), str(number), [each])

    return look


Translate = Callable[[Session, Sequence[JobDetails]], Sequence[Sequence[Object]]]


def of_jobs(translate: Translate) -> Callable[[Session, Asked], Iterable[Group]]:
    """A look at the objects of each job; `translate` finds those of several."""

    def look(session: Session, asked: Asked) -> Iterator[Group]:
        if asked.since is not None:
            found = iter(listing.changed_since(session, caller(), asked.since))
        elif asked.after is not None:
            found = jobs_after(session, _key(asked.after) if asked.after else None)
        else:
            found = reversed(list(every_job(session)))
        return grouped(session, found, translate)

    return look


def of_one(
    translate: Translate, find: Callable[[Session], Sequence[JobDetails]]
) -> Callable[[Session, Asked], Iterable[Group]]:
    """A look at the objects of a single job, if there is one."""

    def look(session: Session, asked: Asked) -> Iterator[Group]:
        return grouped(session, iter(() if asked.after else find(session)), translate)

    return look


def grouped(session: Session, found: Iterator[JobDetails], translate: Translate) -> Iterator[Group]:
    while chunk := list(islice(found, _CHUNK)):
        for each, objects in zip(chunk, translate(session, chunk), strict=True):
            yield Group(each.job.id, _position(each.job), objects, is_gone=is_deleted(each))


def _position(job: Job) -> str:
    return f"{(job.created_at - _EPOCH) // timedelta(microseconds=1)}.{job.id}"


def _key(position: str) -> tuple[datetime, str]:
    made, _, job_id = position.partition(".")
    if not JOB_ID.fullmatch(job_id):
        raise no_position()
    return _EPOCH + timedelta(microseconds=_number(made)), job_id


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 16:
        raise no_position()
    return int(text)


def no_position() -> InvalidRequest:
    return InvalidRequest("must be what the list before had", field="continue")
