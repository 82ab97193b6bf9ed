"""Watches: a stream of what has changed among objects, as Kubernetes tells it."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from app.compat.ome.api.selectors import Selection, selected
from app.compat.ome.api.sources import Asked, Group, Losses, Object, Source
from app.compat.ome.from_native import milliseconds
from app.http.context import caller, plane
from app.http.envelope import to_json
from app.http.sse import Frame, StreamFormat, stream
from app.models.base import utc_now
from app.services.access import audit_log

# Milliseconds in which a write may end behind one that began later: what changed within them before the version that
# a client names is told again, lest it is never told.
_OVERLAP = 500
_LATE = timedelta(milliseconds=100)  # the same for what is rare, where in doubt clients list again
_LONGEST_AWAY = timedelta(days=1)  # as long as the audit trail is kept in any case
_LONGEST_WRITE = timedelta(seconds=60)  # a stream that goes on compares versions, and can look so far back
_PER_MILLISECOND = 10**5  # versions of one, in a resource version
Change = tuple[str, Object]


def _error(message: str, reason: str, code: int) -> dict[str, Any]:
    status = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    }  # fmt: skip
    return {"type": "ERROR", "object": status}


def _failed(problem: Mapping[str, Any]) -> str:
    return f"{to_json(_error(problem['message'], 'InternalError', 500))}\n"


_FORM = StreamFormat(
    mimetype="application/json", opening="", idle="", closing="", failure=_failed,
    frame=lambda frame: f"{to_json(frame.data)}\n",
)  # fmt: skip


def watched(source: Source, query: Mapping[str, Any], shown: Callable[[Object], Object]) -> Any:
    """`shown`: what is told of an object."""
    named = query.get("resourceVersion", "")
    since = int(named) // _PER_MILLISECOND if named.isdecimal() else 0
    begin = since - _OVERLAP
    if begin > 0 and _is_expired(since, source.losses, labels_count=bool(query["labelSelector"])):
        expired = _error(f"too old resource version: {named}; list, and watch from the list's", "Expired", 410)
        return stream(iter([Frame("", expired)]), _FORM)
    is_meant = selected(query["labelSelector"], query["fieldSelector"])
    changes = _changes(source, is_meant, since=begin, ends_at=time.monotonic() + query["timeoutSeconds"])
    frames = (None if each is None else Frame("", {"type": each[0], "object": shown(each[1])}) for each in changes)
    return stream(frames, _FORM)


def _is_expired(since: int, losses: Losses, *, labels_count: bool) -> bool:
    """`since`: in milliseconds."""
    away = timedelta(milliseconds=max(0, milliseconds(utc_now()) - since))
    if away > _LONGEST_AWAY:
        return True
    actions = losses.erased + losses.relabelled * labels_count
    with plane().db.read() as session:
        return audit_log.has_any(session, caller(), actions, utc_now() - away - _LATE)


def _changes(source: Source, is_meant: Selection, *, since: int, ends_at: float) -> Iterator[Change | None]:
    """`since`: in milliseconds; 0 or less when the client knows nothing."""
    view = _View(source, is_meant)
    with plane().db.read() as session:
        groups, changes = view.refreshed(session)
    if since > 0:
        names = {_key(each) for _, each in changes}
        gone = [each for group in groups if group.is_gone for each in group.objects if is_meant(each)]
        # Before those that came later, and unless there is another one of that name.
        changes = [*(("DELETED", each) for each in gone if _key(each) not in names), *changes]
    yield from (change for change in changes if _milliseconds_of(change[1]) > since)
    while time.monotonic() < ends_at:
        yield None
        with plane().db.read() as session:
            _, changes = view.refreshed(session)
        yield from changes


class _Told(NamedTuple):
    """Of an object, as the client has it; as text, which is small."""

    version: str
    text: str


class _View:
    """What a client knows, by owner and id."""

    def __init__(self, source: Source, is_meant: Selection) -> None:
        self._source, self._is_meant = source, is_meant
        self._known: dict[str, dict[str, _Told]] = {}
        self._newest: tuple[Any, ...] = ()
        self._looked_at: datetime | None = None

    def refreshed(self, session: Session) -> tuple[Sequence[Group], list[Change]]:
        """What it looked at, and what has changed since the last look: what is no more first, then the oldest."""
        newest, now = self._source.newest(session), utc_now()
        if newest == self._newest:
            return (), []
        groups, lost = self._looked(session, newest)
        self._newest, self._looked_at = newest, now
        changes = [("DELETED", json.loads(each.text)) for owner in lost for each in self._known.pop(owner).values()]
        for group in groups:
            changes += self._taken(group)
        return groups, sorted(changes, key=lambda change: (change[0] != "DELETED", _version(change[1])))

    def _looked(self, session: Session, newest: tuple[Any, ...]) -> tuple[Sequence[Group], Collection[str]]:
        """Groups that may have changed, and the owners that are there no longer."""
        if self._looked_at is None or self._source.existing is None:
            groups = list(self._source.look(session, Asked()))
            return groups, self._known.keys() - {group.owner for group in groups}
        groups = list(self._source.look(session, Asked(since=self._looked_at - _LONGEST_WRITE)))
        come = sum(group.owner not in self._known for group in groups)
        if newest[0] is not None and newest[0] == self._newest[0] + come:
            return groups, ()
        return groups, self._known.keys() - self._source.existing(session, self._known.keys())

    def _taken(self, group: Group) -> Iterator[Change]:
        before, now = self._known.get(group.owner, {}), dict[str, _Told]()
        for each in () if group.is_gone else filter(self._is_meant, group.objects):
            uid, version = each["metadata"]["uid"], each["metadata"]["resourceVersion"]
            if uid not in before:
                yield "ADDED", each
            elif before[uid].version != version:
                yield "MODIFIED", each
            now[uid] = _Told(version, to_json(each))
        yield from (("DELETED", json.loads(told.text)) for uid, told in before.items() if uid not in now)
        self._known[group.owner] = now


def _key(found: Object) -> tuple[str | None, str]:
    return found["metadata"].get("namespace"), found["metadata"]["name"]


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])


def _milliseconds_of(found: Object) -> int:
    return _version(found) // _PER_MILLISECOND
