"""Events of training jobs as Kubernetes events: lists and watches."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from app.compat.ome.api import lookup
from app.compat.ome.api.sources import Group, ListOptions, Object, Source, bad_position, groups_of_objects, newest_job
from app.compat.ome.api.sweep_sources import newest_of_sweeps
from app.compat.ome.from_native import events_of, is_deleted
from app.compat.ome.sweep_objects import events_of_sweep
from app.domain.errors import NotFound
from app.http.context import caller
from app.services.jobs import history, listing
from app.services.rows import JobEvent, Session
from app.services.sweeps import history as sweep_history

_EVENT_ID = re.compile(r"evt-[0-9a-f-]{36}")
_MOST_EVENTS = 10_000
_CHUNK = 200  # events whose jobs are looked up in one query


def source_of(namespace: str, job: str | None) -> Source:
    """The events of the job with this name, or of all jobs."""
    list_groups = _list_groups if job is None else groups_of_objects(partial(_of_one, namespace=namespace, name=job))
    existing = None if job is not None else history.existing_events
    return Source(kind="Event", list_groups=list_groups, newest=_newest, existing=existing, api_version="v1")


def _newest(session: Session) -> tuple[Any, ...]:
    """Includes the newest job: a writer whose clock is behind may add an event before the newest one. Events are not
    counted.
    """
    return None, *newest_job(session), history.newest_event(session), *newest_of_sweeps(session)


def _list_groups(session: Session, options: ListOptions) -> Iterator[Group]:
    project = caller().project
    if options.after is None:
        found = history.newest_events(session, project, limit=_MOST_EVENTS, since=options.since)
        return _grouped(session, iter(found))
    if options.after and not _EVENT_ID.fullmatch(options.after):
        raise bad_position()
    return _grouped(session, _behind(session, project, options.after))


def _behind(session: Session, project: str | None, event_id: str) -> Iterator[JobEvent]:
    while found := history.events_behind(session, project, event_id, limit=_CHUNK):
        yield from found
        event_id = found[-1].id


def _grouped(session: Session, events: Iterator[JobEvent]) -> Iterator[Group]:
    """A group per event, in their order, without events of deleted jobs."""
    while chunk := list(islice(events, _CHUNK)):
        jobs = listing.by_id(session, caller(), {event.job_id for event in chunk})
        for event in chunk:
            if event.job_id in jobs and not is_deleted(jobs[event.job_id]):
                yield Group(event.id, event.id, events_of(jobs[event.job_id], [event]))


def _of_one(session: Session, namespace: str, name: str) -> list[Object]:
    """The history of the TrainingJob: of its job, or of its sweep; or of a trial."""
    if (sweep := lookup.sweep_named(session, namespace, name)) is not None:
        return [*events_of_sweep(sweep, sweep_history.events_after(session, sweep.id, 0, limit=_MOST_EVENTS))]
    try:
        found = lookup.find_with_pods(session, namespace, name)
    except NotFound:
        return []
    return [*events_of(found, history.events_after(session, found.job.id, 0, limit=_MOST_EVENTS))]
