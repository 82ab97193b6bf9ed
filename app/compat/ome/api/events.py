"""Events of training jobs, and of sweeps beside them, as Kubernetes events: lists and watches."""

import heapq
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from app.compat.ome.api import lookup
from app.compat.ome.api.sources import (
    ListOptions,
    Object,
    ObjectGroup,
    ObjectSource,
    bad_position,
    groups_of_objects,
    newest_job,
)
from app.compat.ome.api.sweep_sources import newest_of_sweeps
from app.compat.ome.from_native import events_of, is_deleted
from app.compat.ome.sweep_objects import events_of_sweep
from app.compat.ome.to_native import DIALECT
from app.domain.errors import NotFound
from app.http.context import caller
from app.services.jobs import history, listing
from app.services.rows import JobEvent, Session, SweepEvent
from app.services.sweeps import foreign
from app.services.sweeps import history as sweep_history

_EVENT_ID = re.compile(r"evt-[0-9a-f-]{36}")
_MOST_EVENTS = 10_000
_CHUNK = 200  # events whose jobs are looked up in one query
Event = TypeVar("Event", JobEvent, SweepEvent)


def source_of(namespace: str, job: str | None) -> ObjectSource:
    """The events of the job with this name, or of all jobs."""
    list_groups = _list_groups if job is None else groups_of_objects(partial(_of_one, namespace=namespace, name=job))
    existing = None if job is not None else _existing
    return ObjectSource(kind="Event", list_groups=list_groups, newest=_newest, existing=existing, api_version="v1")


def _newest(session: Session) -> tuple[Any, ...]:
    """Includes the newest job: a writer whose clock is behind may add an event before the newest one. Events are not
    counted.
    """
    newest = history.newest_event(session), sweep_history.newest_event(session)
    return None, *newest_job(session), *newest, *newest_of_sweeps(session)


def _existing(session: Session, ids: Collection[str]) -> set[str]:
    return history.existing_events(session, ids) | sweep_history.existing_events(session, ids)


def _list_groups(session: Session, options: ListOptions) -> Iterator[ObjectGroup]:
    """In the order of their ids, which sort by time."""
    who, after, since = caller(), options.after, options.since
    if after and not _EVENT_ID.fullmatch(after):
        raise bad_position()
    of_jobs: Iterator[JobEvent]
    of_sweeps: Iterator[SweepEvent]
    if after is None:
        of_jobs = iter(history.newest_events(session, who.project, limit=_MOST_EVENTS, since=since))
        of_sweeps = iter(sweep_history.newest_events(session, who, DIALECT, limit=_MOST_EVENTS, since=since))
    else:
        of_jobs = _behind(partial(history.events_behind, session, who.project, limit=_CHUNK), after)
        of_sweeps = _behind(partial(sweep_history.events_behind, session, who, DIALECT, limit=_CHUNK), after)
    groups = _grouped(session, of_jobs), _grouped_of_sweeps(session, of_sweeps)
    return heapq.merge(*groups, key=lambda group: group.position)


def _behind(read: Callable[[str], Sequence[Event]], event_id: str) -> Iterator[Event]:
    while found := read(event_id):
        yield from found
        event_id = found[-1].id


def _grouped(session: Session, events: Iterator[JobEvent]) -> Iterator[ObjectGroup]:
    """A group per event, in their order, without events of deleted jobs."""
    while chunk := list(islice(events, _CHUNK)):
        jobs = listing.by_id(session, caller(), {event.job_id for event in chunk})
        for event in chunk:
            if event.job_id in jobs and not is_deleted(jobs[event.job_id]):
                yield ObjectGroup(event.id, event.id, events_of(jobs[event.job_id], [event]))


def _grouped_of_sweeps(session: Session, events: Iterator[SweepEvent]) -> Iterator[ObjectGroup]:
    """The same of sweeps."""
    while chunk := list(islice(events, _CHUNK)):
        sweeps = foreign.by_id(session, {event.sweep_id for event in chunk})
        for event in chunk:
            sweep = sweeps.get(event.sweep_id)
            if sweep is not None and not foreign.is_deleted(sweep, DIALECT):
                yield ObjectGroup(event.id, event.id, events_of_sweep(sweep, [event]))


def _of_one(session: Session, namespace: str, name: str) -> list[Object]:
    """The history of the TrainingJob: of its job, or of its sweep; or of a trial."""
    if (sweep := lookup.sweep_named(session, namespace, name)) is not None:
        return [*events_of_sweep(sweep, sweep_history.events_after(session, sweep.id, 0, limit=_MOST_EVENTS))]
    try:
        found = lookup.find_with_pods(session, namespace, name)
    except NotFound:
        return []
    return [*events_of(found, history.events_after(session, found.job.id, 0, limit=_MOST_EVENTS))]
