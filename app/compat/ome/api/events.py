"""What happened to training jobs, as events of Kubernetes: lists and watches of them."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

from app.compat.ome.api import lookup
from app.compat.ome.api.sources import Asked, Group, Object, Source, fixed, newest_job, no_position
from app.compat.ome.from_native import events_of, is_deleted
from app.http.context import caller
from app.services.jobs import history, listing
from app.services.rows import JobEvent, Session

_EVENT_ID = re.compile(r"evt-[0-9a-f-]{36}")
_MOST_EVENTS = 10_000
_CHUNK = 200  # whose jobs are looked up at once


def source_of(namespace: str, job: str | None) -> Source:
    """Of one job, by its name, or of all."""
    look = _look if job is None else fixed(partial(_of_one, namespace=namespace, name=job))
    left = None if job is not None else history.existing_events
    return Source(kind="Event", look=look, newest=_newest, existing=left, api_version="v1")


def _newest(session: Session) -> tuple[Any, ...]:
    """Of jobs, too: whose clock is behind may give an event an id before the newest. Nobody counts the events."""
    return None, *newest_job(session), history.newest_event(session)


def _look(session: Session, asked: Asked) -> Iterator[Group]:
    project = caller().project
    if asked.after is None:
        found = history.newest_events(session, project, limit=_MOST_EVENTS, since=asked.since)
        return _grouped(session, iter(found))
    if asked.after and not _EVENT_ID.fullmatch(asked.after):
        raise no_position()
    return _grouped(session, _behind(session, project, asked.after))


def _behind(session: Session, project: str | None, event_id: str) -> Iterator[JobEvent]:
    while found := history.events_behind(session, project, event_id, limit=_CHUNK):
        yield from found
        event_id = found[-1].id


def _grouped(session: Session, events: Iterator[JobEvent]) -> Iterator[Group]:
    """Each by itself, in their order; without those of jobs that are deleted."""
    while chunk := list(islice(events, _CHUNK)):
        jobs = listing.by_id(session, caller(), {event.job_id for event in chunk})
        for event in chunk:
            if event.job_id in jobs and not is_deleted(jobs[event.job_id]):
                yield Group(event.id, event.id, events_of(jobs[event.job_id], [event]))


def _of_one(session: Session, namespace: str, name: str) -> list[Object]:
    return [
        told
        for found in lookup.named(session, namespace, name)
        for told in events_of(found, history.events_after(session, found.job.id, 0, limit=_MOST_EVENTS))
    ]
