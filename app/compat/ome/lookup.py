"""Jobs as OME's clients name, list and watch them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flask import request
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.compat.every_job import every_job
from app.compat.ome import tables
from app.compat.ome.dialect import API_VERSION
from app.compat.ome.from_native import is_deleted, milliseconds, name_of
from app.compat.ome.selectors import Selection, selected
from app.compat.ome.to_native import DIALECT
from app.domain.errors import InvalidRequest, NotFound
from app.domain.ids import JOB_ID
from app.http.context import caller, plane
from app.http.envelope import Reply, to_json
from app.http.sse import Form, Frame, stream
from app.models import Job
from app.models.base import utc_now
from app.services import jobs
from app.services.job_details import JobDetails, details

Object = Mapping[str, Any]
Objects = Callable[[Session], Sequence[Object]]  # all of a kind that the caller sees
Newest = Callable[[Session], object]  # differs from before when one of them may have changed


def _failed(problem: Mapping[str, Any]) -> str:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", **problem}
    return f"{to_json({'type': 'ERROR', 'object': status})}\n"


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


def rows(session: Session) -> Iterator[JobDetails]:
    """All jobs that the caller sees, the oldest first, up to so many."""
    return (each for each in every_job(session, "created_at") if not is_deleted(each))


def named(session: Session, namespace: str | None, name: str | None) -> Sequence[JobDetails]:
    """All jobs that the caller sees, or those of this name where one is given."""
    if name is None or namespace is None:
        return [each for each in rows(session) if name in (None, name_of(each))]
    try:
        return [find(session, namespace, name)]
    except NotFound:
        return []


def listed(
    kind: str, objects: list[dict[str, Any]], query: Mapping[str, Any], *, api_version: str = API_VERSION
) -> Reply:
    """Those that are meant, as a list or as a table."""
    is_meant = selected(query["labelSelector"], query["fieldSelector"])
    if not query["continue"].isdecimal():
        raise InvalidRequest("must be what the list before had", field="continue")
    begin, version = int(query["continue"]), str(milliseconds(utc_now()))
    found = [each for each in objects if is_meant(each)]
    end = begin + query["limit"] if query["limit"] else len(found)
    shown = found[begin:end]
    if tables.asked_for(request.headers.get("Accept", "")):
        return Reply(tables.table_of(kind, shown, version, now=utc_now()))
    metadata = {"resourceVersion": version, **({"continue": str(end)} if end < len(found) else {})}
    return Reply({"apiVersion": api_version, "kind": f"{kind}List", "metadata": metadata, "items": shown})


def told(found: Object, status: int = 200) -> Reply:
    if tables.asked_for(request.headers.get("Accept", "")):
        version = found["metadata"]["resourceVersion"]
        return Reply(tables.table_of(found["kind"], [found], version, now=utc_now()), status)
    return Reply(found, status)


def newest_job(session: Session) -> tuple[Any, ...]:
    """Changes whenever a job does that the caller sees."""
    query = select(func.max(Job.updated_at), func.count(), func.sum(Job.version))
    if (project := caller().project) is not None:
        query = query.where(Job.project == project)
    return tuple(session.execute(query).one())


def watched(query: Mapping[str, Any], is_meant: Selection, objects: Objects, *, newest: Newest = newest_job) -> Any:
    """A stream of what changes among those objects that are meant; they are looked at whenever `newest` changes."""
    since = query.get("resourceVersion", "")
    begin = int(since) if since.isdecimal() else 0
    as_table = tables.asked_for(request.headers.get("Accept", ""))
    ends_at = time.monotonic() + query["timeoutSeconds"]
    changes = _changes_since(begin, is_meant, objects, newest, ends_at=ends_at)
    return stream((None if each is None else _told_change(*each, as_table=as_table) for each in changes), WATCH)


def _changes_since(
    since: int, is_meant: Selection, look: Objects, newest_of: Newest, *, ends_at: float
) -> Iterator[tuple[str, Object] | None]:
    known: dict[str, Object] = {}
    is_first, seen = True, None
    while time.monotonic() < ends_at:
        with plane().db.read() as session:
            newest = newest_of(session)
            objects = None if newest == seen else look(session)
        seen = newest
        if objects is not None:
            current: dict[str, Object] = {each["metadata"]["uid"]: each for each in objects if is_meant(each)}
            for kind, each in _changes(known, current):
                if not is_first or _version(each) > since:
                    yield kind, each
            known, is_first = current, False
        yield None


def _changes(known: Mapping[str, Object], current: Mapping[str, Object]) -> Iterator[tuple[str, Object]]:
    yield from (("DELETED", known[uid]) for uid in known if uid not in current)  # before others of their names
    for uid, each in current.items():
        if uid not in known:
            yield "ADDED", each
        elif known[uid]["metadata"]["resourceVersion"] != each["metadata"]["resourceVersion"]:
            yield "MODIFIED", each


def _version(found: Object) -> int:
    """Of the list that has it as it is now."""
    return int(found["metadata"]["resourceVersion"][:-5])


def _told_change(kind: str, found: Object, *, as_table: bool) -> Frame:
    version = found["metadata"]["resourceVersion"]
    shown = tables.table_of(found["kind"], [found], version, now=utc_now()) if as_table else found
    return Frame("", {"type": kind, "object": shown})
