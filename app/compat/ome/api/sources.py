"""Sources of lists and watches: objects of one kind, grouped by the job that owns them."""

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
from app.services.rows import Job, Session, Sweep
from app.services.sweeps.lookup import SWEEP_ID

Object = Mapping[str, Any]
_EPOCH = datetime.fromtimestamp(0, UTC)
_CHUNK = 50  # jobs translated together


class ObjectGroup(NamedTuple):
    """The objects of one owner: a job, or a stored object, which owns itself."""

    owner: str
    position: str  # in the order of a list; part of the continue token
    objects: Sequence[Object]
    is_deleted: bool = False  # a client that resumes a watch gets DELETED events for them


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """``after``: for a page of a list, the position before its first group, empty for the first page; groups are
    read lazily. ``since``: for a watch, only groups that changed at this time or later. Without both, all groups; of
    more than ``MAX_JOBS`` jobs the newest.
    """

    after: str | None = None
    since: datetime | None = None


class AuditActions(NamedTuple):
    """Actions in the audit trail after which a watch can't be resumed, as their events can't be reconstructed."""

    deleting: tuple[str, ...]
    relabelling: tuple[str, ...]  # the object may no longer match the label selector of the client


ListGroups = Callable[[Session, ListOptions], Iterable[ObjectGroup]]
JOB_ACTIONS = AuditActions(("job.delete",), ("job.patch",))


def newest_job(session: Session) -> tuple[int, Any, Any]:
    """How many jobs the caller sees, and values that differ whenever one of them has changed."""
    return listing.newest_change(session, caller())


@dataclass(frozen=True, kw_only=True)
class ObjectSource:
    """Objects of one kind. A watch lists them again whenever ``newest`` returns another value."""

    kind: str
    list_groups: ListGroups
    api_version: str = API_VERSION
    # The number of owners, None where it is not counted, and values that differ whenever one has changed.
    newest: Callable[[Session], tuple[Any, ...]] = newest_job
    audit_actions: AuditActions = JOB_ACTIONS
    # Those of the owners that still exist; None where ``list_groups`` always returns all of them.
    existing: Callable[[Session, Collection[str]], set[str]] | None = listing.existing


def groups_of_objects(find: Callable[[Session], Sequence[Object]]) -> ListGroups:
    """Each object as a group of its own, all of them at every call."""

    def list_groups(session: Session, options: ListOptions) -> Iterator[ObjectGroup]:
        begin = _number(options.after) + 1 if options.after else 0
        for number, each in enumerate(find(session)):
            if number >= begin:
                yield ObjectGroup(str(each["metadata"]["uid"]), str(number), [each])

    return list_groups


Translate = Callable[[Session, Sequence[JobDetails]], Sequence[Sequence[Object]]]


def groups_of_jobs(translate: Translate) -> ListGroups:
    """A group per job; ``translate`` returns the objects of each of several jobs."""

    def list_groups(session: Session, options: ListOptions) -> Iterator[ObjectGroup]:
        if options.since is not None:
            found = iter(listing.changed_since(session, caller(), options.since))
        elif options.after is not None:
            found = jobs_after(session, key_of(options.after) if options.after else None)
        else:
            found = reversed(list(every_job(session)))
        return grouped(session, found, translate)

    return list_groups


def groups_of_few(translate: Translate, find: Callable[[Session], Sequence[JobDetails]]) -> ListGroups:
    """Groups of the jobs that ``find`` returns, oldest first."""

    def list_groups(session: Session, options: ListOptions) -> Iterator[ObjectGroup]:
        after = key_of(options.after) if options.after else None
        found = (each for each in find(session) if after is None or key_of(position_of(each.job)) > after)
        return grouped(session, found, translate)

    return list_groups


def grouped(session: Session, found: Iterator[JobDetails], translate: Translate) -> Iterator[ObjectGroup]:
    while chunk := list(islice(found, _CHUNK)):
        for each, objects in zip(chunk, translate(session, chunk), strict=True):
            yield ObjectGroup(each.job.id, position_of(each.job), objects, is_deleted=is_deleted(each))


def position_of(job: Job | Sweep) -> str:
    return f"{(job.created_at - _EPOCH) // timedelta(microseconds=1)}.{job.id}"


def key_of(position: str) -> tuple[datetime, str]:
    made, _, job_id = position.partition(".")
    if not (JOB_ID.fullmatch(job_id) or SWEEP_ID.fullmatch(job_id)):
        raise bad_position()
    return _EPOCH + timedelta(microseconds=_number(made)), job_id


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 16:
        raise bad_position()
    return int(text)


def bad_position() -> InvalidRequest:
    return InvalidRequest("must be the continue token of the previous page", field="continue")
