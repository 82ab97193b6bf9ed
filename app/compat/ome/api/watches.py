"""Watches: streams of ADDED, MODIFIED and DELETED events, as in Kubernetes."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from flask import Response

from app.compat.ome.api.selectors import ObjectSelection, selected
from app.compat.ome.api.sources import AuditActions, ListOptions, Object, ObjectGroup, ObjectSource
from app.compat.ome.from_native import milliseconds
from app.host.clock import utc_now
from app.http.context import caller, plane
from app.http.envelope import to_json
from app.http.sse import EventFrame, StreamFormat, stream
from app.services.access import audit_log
from app.services.rows import Session

# Milliseconds by which a transaction may commit after one that began later. Changes so long before the client's
# resourceVersion are sent again, as the client may not have received them.
_OVERLAP = 500
_LATE = timedelta(milliseconds=100)  # the same for deletions and relabelling, after which clients list again
_LONGEST_AGE = timedelta(days=1)  # the shortest retention of the audit trail
_LONGEST_WRITE = timedelta(seconds=60)  # an open stream compares versions, so it can list so far back
_PER_MILLISECOND = 10**5  # a resource version is milliseconds times this, plus a version
Change = tuple[str, Object]


def _error(message: str, reason: str, code: int) -> dict[str, Any]:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return {"type": "ERROR", "object": status}


def _failed(problem: Mapping[str, Any]) -> str:
    return f"{to_json(_error(problem['message'], 'InternalError', 500))}\n"


_FORM = StreamFormat(
    mimetype="application/json",
    opening="",
    idle="",
    closing="",
    failure=_failed,
    frame=lambda frame: f"{to_json(frame.data)}\n",
)


def watched(source: ObjectSource, query: Mapping[str, Any], render: Callable[[Object], Object]) -> Response:
    """``render`` returns the form of an object that the client asked for."""
    named = query.get("resourceVersion", "")
    since = int(named) // _PER_MILLISECOND if named.isdecimal() else 0
    begin = since - _OVERLAP
    if begin > 0 and _is_expired(since, source.audit_actions, labels_count=bool(query["labelSelector"])):
        expired = _error(f"too old resource version: {named}; list, and watch from the list's", "Expired", 410)
        return stream(iter([EventFrame("", expired)]), _FORM)
    is_selected = selected(query["labelSelector"], query["fieldSelector"])
    changes = _changes(source, is_selected, since=begin, ends_at=time.monotonic() + query["timeoutSeconds"])
    frames = (
        None if each is None else EventFrame("", {"type": each[0], "object": render(each[1])}) for each in changes
    )
    return stream(frames, _FORM)


def _is_expired(since: int, audit_actions: AuditActions, *, labels_count: bool) -> bool:
    """Whether a watch can't be resumed from ``since``, in milliseconds."""
    age = timedelta(milliseconds=max(0, milliseconds(utc_now()) - since))
    if age > _LONGEST_AGE:
        return True
    actions = audit_actions.deleting + audit_actions.relabelling * labels_count
    with plane().db.read() as session:
        return audit_log.has_any(session, caller(), actions, utc_now() - age - _LATE)


def _changes(
    source: ObjectSource, is_selected: ObjectSelection, *, since: int, ends_at: float
) -> Iterator[Change | None]:
    """``since``: in milliseconds; 0 or less for a client that has no objects yet."""
    view = _View(source, is_selected)
    with plane().db.read() as session:
        groups, changes = view.refreshed(session)
    if since > 0:
        names = {_key(each) for _, each in changes}
        gone = [each for group in groups if group.is_deleted for each in group.objects if is_selected(each)]
        # Sent before later events, and not where another object has taken the name.
        changes = [*(("DELETED", each) for each in gone if _key(each) not in names), *changes]
    yield from (change for change in changes if _milliseconds_of(change[1]) > since)
    while time.monotonic() < ends_at:
        yield None
        with plane().db.read() as session:
            _, changes = view.refreshed(session)
        yield from changes


class _Sent(NamedTuple):
    """An object as it was last sent to the client; ``text`` is its JSON, which takes little memory."""

    version: str
    text: str


class _View:
    """The objects that a client has received, by owner and uid."""

    def __init__(self, source: ObjectSource, is_selected: ObjectSelection) -> None:
        self._source, self._is_selected = source, is_selected
        self._known: dict[str, dict[str, _Sent]] = {}
        self._newest: tuple[Any, ...] = ()
        self._listed_at: datetime | None = None

    def refreshed(self, session: Session) -> tuple[Sequence[ObjectGroup], list[Change]]:
        """The groups that were listed, and the changes since the last call: deletions first, then by version."""
        newest, now = self._source.newest(session), utc_now()
        if newest == self._newest:
            return (), []
        groups, deleted = self._list_changed(session, newest)
        self._newest, self._listed_at = newest, now
        changes = [("DELETED", json.loads(each.text)) for owner in deleted for each in self._known.pop(owner).values()]
        for group in groups:
            changes += self._diff(group)
        return groups, sorted(changes, key=lambda change: (change[0] != "DELETED", _version(change[1])))

    def _list_changed(self, session: Session, newest: tuple[Any, ...]) -> tuple[Sequence[ObjectGroup], Collection[str]]:
        """Groups that may have changed, and the owners that no longer exist."""
        if self._listed_at is None or self._source.existing is None:
            groups = list(self._source.list_groups(session, ListOptions()))
            return groups, self._known.keys() - {group.owner for group in groups}
        groups = list(self._source.list_groups(session, ListOptions(since=self._listed_at - _LONGEST_WRITE)))
        added = sum(group.owner not in self._known for group in groups)
        if newest[0] is not None and newest[0] == self._newest[0] + added:
            return groups, ()
        return groups, self._known.keys() - self._source.existing(session, self._known.keys())

    def _diff(self, group: ObjectGroup) -> Iterator[Change]:
        before, now = self._known.get(group.owner, {}), dict[str, _Sent]()
        for each in () if group.is_deleted else filter(self._is_selected, group.objects):
            uid, version = each["metadata"]["uid"], each["metadata"]["resourceVersion"]
            if uid not in before:
                yield "ADDED", each
            elif before[uid].version != version:
                yield "MODIFIED", each
            now[uid] = _Sent(version, to_json(each))
        yield from (("DELETED", json.loads(sent.text)) for uid, sent in before.items() if uid not in now)
        self._known[group.owner] = now


def _key(found: Object) -> tuple[str | None, str]:
    return found["metadata"].get("namespace"), found["metadata"]["name"]


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _milliseconds_of(found: Object) -> int:
    return _version(found) // _PER_MILLISECOND
