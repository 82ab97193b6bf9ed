"""Jobs as OME's clients name, list and watch them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from flask import request
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.compat.every_job import every_job
from app.compat.ome import tables
from app.compat.ome.dialect import API_VERSION
from app.compat.ome.from_native import is_deleted, milliseconds, name_of, resource_version
from app.compat.ome.selectors import Selection, selected
from app.compat.ome.to_native import DIALECT
from app.domain.errors import InvalidRequest, NotFound
from app.domain.ids import JOB_ID
from app.http.context import caller, plane
from app.http.envelope import Reply, to_json
from app.http.sse import Form, Frame, stream
from app.models import Job
from app.models.base import utc_now
from app.services import audit_lists, jobs
from app.services.job_details import JobDetails, details

Object = Mapping[str, Any]
Objects = Callable[[Session], Sequence[Object]]  # all of a kind that the caller sees
Newest = Callable[[Session], object]  # differs from before when one of them may have changed


class Losses(NamedTuple):
    """What is done to objects, as the audit trail has it, and can't be told to a client that comes back to a watch."""

    erased: tuple[str, ...]
    relabelled: tuple[str, ...]  # they may be among those that a client selects no longer


OF_JOBS = Losses(("job.delete",), ("job.patch",))
OF_RUNTIMES = Losses(("runtime.delete",), ("runtime.change",))
# Milliseconds in which a write may end behind one that began later: what changed within them before the version that
# a client names is told again, lest it is never told.
_OVERLAP = 500


_LATE = timedelta(milliseconds=100)  # the same for what is rare, where in doubt clients list again
_LONGEST_AWAY = timedelta(days=1)  # as long as the audit trail is kept in any case


class _Watched(NamedTuple):
    look: Objects
    newest: Newest
    gone: Objects | None
    losses: Losses


def _error(message: str, reason: str, code: int) -> dict[str, Any]:
    status = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    }  # fmt: skip
    return {"type": "ERROR", "object": status}


def _failed(problem: Mapping[str, Any]) -> str:
    return f"{to_json(_error(problem['message'], 'InternalError', 500))}\n"


WATCH = Form(
    mimetype="application/json", opening="", idle="", closing="", failure=_failed,
    frame=lambda frame: f"{to_json(frame.data)}\n",
)  # fmt: skip


def alias_of(namespace: str, name: str) -> str:
    return f"{DIALECT}:{namespace}:{name}"


def find(session: Session, namespace: str, name: str) -> JobDetails:
    """By the name that a client gave, or ours. Raises NotFound for what is not there, not the caller's, or deleted."""
    missing = f'trainingjobs.ome.io "{name[:64]}" not found'
    try:
        job = jobs.find_by_alias(session, caller(), alias_of(namespace, name), missing=missing)
    except NotFound:
        if not JOB_ID.fullmatch(name):
            raise
        job = jobs.find(session, caller(), name)
    found = details(session, job)
    if is_deleted(found) or job.project != namespace or name_of(found) != name:
        raise NotFound(missing)
    return found


def rows(session: Session, *, deleted: bool = False) -> Iterator[JobDetails]:
    """All jobs that the caller sees, the oldest first, up to so many; or those that were deleted."""
    return (each for each in every_job(session, "created_at") if is_deleted(each) == deleted)


def named(session: Session, namespace: str | None, name: str | None) -> Sequence[JobDetails]:
    """All jobs that the caller sees, or those of this name where one is given."""
    if name is None or namespace is None:
        return [each for each in rows(session) if name in (None, name_of(each))]
    try:
        return [find(session, namespace, name)]
    except NotFound:
        return []


def answered(
    kind: str, query: Mapping[str, Any], look: Objects, *, newest: Newest | None = None, gone: Objects | None = None,
    losses: Losses = OF_JOBS, api_version: str = API_VERSION,
) -> Any:  # fmt: skip
    """Of those that `look` finds the ones that are meant, as a list or as a stream of their changes.

    They may have changed whenever `newest` has, which is that of jobs unless it is said. For clients that come back to
    a stream, `gone` finds those that were deleted, as far as that is known, and `losses` says what can't be told.
    """
    if query["watch"]:
        return _watched(query, _Watched(look, newest or newest_job, gone, losses))
    begun = utc_now()
    with plane().db.read() as session:
        found = look(session)
    return listed(kind, found, query, api_version=api_version, as_of=begun)


def listed(
    kind: str, objects: Sequence[Object], query: Mapping[str, Any], *, api_version: str = API_VERSION,
    as_of: datetime | None = None,
) -> Reply:  # fmt: skip
    """Those that are meant, as a list or as a table; `as_of`: what has changed since then may be missing."""
    is_meant = selected(query["labelSelector"], query["fieldSelector"])
    if not query["continue"].isdecimal():
        raise InvalidRequest("must be what the list before had", field="continue")
    begin, version = int(query["continue"]), resource_version(as_of or utc_now(), 0)
    found = [each for each in objects if is_meant(each)]
    end = begin + query["limit"] if query["limit"] else len(found)
    shown = found[begin:end]
    metadata = {"resourceVersion": version, **({"continue": str(end)} if end < len(found) else {})}
    if (tabulate := _tabulate()) is not None:
        return Reply(tabulate(kind, shown, metadata, now=utc_now()))
    return Reply({"apiVersion": api_version, "kind": f"{kind}List", "metadata": metadata, "items": shown})


def told(found: Object, status: int = 200) -> Reply:
    tabulate = _tabulate()
    return Reply(found if tabulate is None else _alone(found, tabulate), status)


def newest_job(session: Session) -> tuple[Any, ...]:
    """Changes whenever a job does that the caller sees."""
    query = select(func.max(Job.updated_at), func.count(), func.sum(Job.version))
    if (project := caller().project) is not None:
        query = query.where(Job.project == project)
    return tuple(session.execute(query).one())


def _watched(query: Mapping[str, Any], what: _Watched) -> Any:
    named = query.get("resourceVersion", "")
    since = _milliseconds_of(named) if named.isdecimal() else 0
    begin = since - _OVERLAP
    if begin > 0 and _is_expired(since, what.losses, labels_count=bool(query["labelSelector"])):
        expired = _error(f"too old resource version: {named}; list, and watch from the list's", "Expired", 410)
        return stream(iter([Frame("", expired)]), WATCH)
    tabulate = _tabulate()
    is_meant = selected(query["labelSelector"], query["fieldSelector"])
    changes = _changes_since(begin, is_meant, what, ends_at=time.monotonic() + query["timeoutSeconds"])
    return stream((None if each is None else _told_change(*each, tabulate) for each in changes), WATCH)


def _is_expired(since: int, losses: Losses, *, labels_count: bool) -> bool:
    """`since`: in milliseconds."""
    away = timedelta(milliseconds=max(0, milliseconds(utc_now()) - since))
    if away > _LONGEST_AWAY:
        return True
    actions = losses.erased + losses.relabelled * labels_count
    with plane().db.read() as session:
        return audit_lists.has_any(session, caller(), actions, utc_now() - away - _LATE)


def _changes_since(
    since: int, is_meant: Selection, what: _Watched, *, ends_at: float
) -> Iterator[tuple[str, Object] | None]:
    """`since`: in milliseconds; 0 or less when the client knows nothing."""
    known: dict[str, Object] = {}
    is_first, seen = True, None
    while time.monotonic() < ends_at:
        with plane().db.read() as session:
            newest = what.newest(session)
            objects = None if newest == seen else what.look(session)
            gone = what.gone(session) if is_first and since > 0 and what.gone is not None else ()
        seen = newest
        if objects is not None:
            current: dict[str, Object] = {each["metadata"]["uid"]: each for each in objects if is_meant(each)}
            names = {_key(each) for each in current.values()}
            lost = [("DELETED", each) for each in gone if is_meant(each) and _key(each) not in names]
            # The oldest first: whoever comes back with the version of the last one it got has got all before.
            for kind, each in [*lost, *sorted(_changes(known, current), key=_rank)]:
                if not is_first or _version(each) > since:
                    yield kind, each
            known, is_first = current, False
        yield None


def _alone(found: Object, tabulate: tables.Tabulate) -> Object:
    metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
    return tabulate(found["kind"], [found], metadata, now=utc_now())


def _key(found: Object) -> tuple[str | None, str]:
    return found["metadata"].get("namespace"), found["metadata"]["name"]


def _changes(known: Mapping[str, Object], current: Mapping[str, Object]) -> Iterator[tuple[str, Object]]:
    yield from (("DELETED", known[uid]) for uid in known if uid not in current)  # before others of their names
    for uid, each in current.items():
        if uid not in known:
            yield "ADDED", each
        elif known[uid]["metadata"]["resourceVersion"] != each["metadata"]["resourceVersion"]:
            yield "MODIFIED", each


def _version(found: Object) -> int:
    return _milliseconds_of(found["metadata"]["resourceVersion"])


def _milliseconds_of(resource_version: str) -> int:
    return int(resource_version) // 10**5


def _rank(change: tuple[str, Object]) -> tuple[bool, int]:
    """Of what is deleted before others of its name."""
    return change[0] != "DELETED", int(change[1]["metadata"]["resourceVersion"])


def _tabulate() -> tables.Tabulate | None:
    return tables.asked_for(request.headers.get("Accept", ""), request.args.get("includeObject", "Metadata"))


def _told_change(kind: str, found: Object, tabulate: tables.Tabulate | None) -> Frame:
    return Frame("", {"type": kind, "object": found if tabulate is None else _alone(found, tabulate)})
