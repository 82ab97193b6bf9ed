"""Lists and watches of TrainingJobs: jobs, and sweeps beside them, in the order of their creation."""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from app.compat.ome.api.sources import (
    AuditActions,
    ListOptions,
    Object,
    ObjectGroup,
    ObjectSource,
    groups_of_jobs,
    key_of,
    newest_job,
    position_of,
)
from app.compat.ome.from_native import KIND, is_trial, object_of
from app.compat.ome.sweep_objects import is_withdrawn, object_of_sweep
from app.compat.ome.to_native import DIALECT
from app.http.context import caller
from app.services.jobs import listing
from app.services.jobs.details import JobDetails
from app.services.rows import Session, Sweep
from app.services.sweeps import foreign

_CHUNK = 20  # sweeps that are read together, with up to 100 trials each
_ACTIONS = AuditActions(("job.delete", "sweep.delete"), ("job.patch", "sweep.patch"))


def training_jobs() -> ObjectSource:
    return ObjectSource(kind=KIND, list_groups=_groups, newest=_newest, audit_actions=_ACTIONS, existing=_existing)


def newest_of_sweeps(session: Session) -> tuple[int, Any, Any]:
    """How many sweeps there are here, and values that differ whenever one of them has changed."""
    return foreign.newest_change(session, caller(), DIALECT)


def _groups(session: Session, options: ListOptions) -> Iterable[ObjectGroup]:
    of_jobs = groups_of_jobs(_objects)(session, options)
    of_sweeps = _grouped(session, _sweeps(session, options))
    return heapq.merge(of_jobs, of_sweeps, key=lambda group: key_of(group.position))


def _sweeps(session: Session, options: ListOptions) -> Sequence[Sweep]:
    if options.since is not None:
        return foreign.changed_since(session, caller(), DIALECT, options.since)
    return foreign.listed(session, caller(), DIALECT, after=key_of(options.after) if options.after else None)


def _grouped(session: Session, sweeps: Sequence[Sweep]) -> Iterator[ObjectGroup]:
    for start in range(0, len(sweeps), _CHUNK):
        for found in foreign.shown_all(session, sweeps[start : start + _CHUNK]):
            objects = [object_of_sweep(found)]
            yield ObjectGroup(found.sweep.id, position_of(found.sweep), objects, is_deleted=is_withdrawn(found))


def _objects(_session: Session, found: Sequence[JobDetails]) -> list[list[Object]]:
    """A trial is part of its TrainingJob."""
    return [[] if is_trial(each) else [object_of(each)] for each in found]


def _newest(session: Session) -> tuple[Any, ...]:
    jobs, *of_jobs = newest_job(session)
    sweeps, *of_sweeps = newest_of_sweeps(session)
    return jobs + sweeps, *of_jobs, *of_sweeps


def _existing(session: Session, ids: Collection[str]) -> set[str]:
    return listing.existing(session, ids) | foreign.existing(session, ids)
