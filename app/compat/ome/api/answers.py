"""Replies with objects and lists of them: as JSON or as tables, in pages, or as watches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from flask import Response, request

from app.compat.ome.api import tables
from app.compat.ome.api.selectors import selected
from app.compat.ome.api.sources import ListOptions, Object, ObjectGroup, ObjectSource
from app.compat.ome.api.watches import watched
from app.compat.ome.from_native import resource_version
from app.domain.errors import InvalidRequest
from app.host.clock import utc_now
from app.http.context import plane
from app.http.envelope import Reply

_PART = "~"  # in a continue token, before the number of objects already returned of an incomplete group


def list_or_watch(source: ObjectSource, query: Mapping[str, Any]) -> Reply | Response:
    """The selected objects of the source as a list, or with ``watch`` as a stream of their changes."""
    tabulate = _tabulate()
    if query["watch"]:
        return watched(source, query, lambda each: each if tabulate is None else _as_table(each, tabulate))
    return list_reply(source, query)


def list_reply(source: ObjectSource, query: Mapping[str, Any]) -> Reply:
    """The resourceVersion is the time before the query: later changes may be missing from the list."""
    started, limit = utc_now(), query["limit"]
    is_selected = selected(query["labelSelector"], query["fieldSelector"])
    after, _, returned = query["continue"].partition(_PART)
    with plane().db.read() as session:
        groups = source.list_groups(session, ListOptions(after=after) if limit or after else ListOptions())
        found = _after(groups, after, _count(returned))
        matching = ((place, each) for place, each in found if is_selected(each))
        page = list(islice(matching, limit + 1 if limit else None))
    metadata = {"resourceVersion": resource_version(started, 0)}
    if limit and len(page) > limit:
        metadata["continue"] = page[limit - 1][0]
        del page[limit:]
    items = [each for _, each in page]
    if (tabulate := _tabulate()) is not None:
        return Reply(tabulate(source.kind, items, metadata, now=utc_now()))
    return Reply({"apiVersion": source.api_version, "kind": f"{source.kind}List", "metadata": metadata, "items": items})


def object_reply(found: Object, status: int = 200, warnings: Sequence[str] = ()) -> Reply:
    tabulate = _tabulate()
    return Reply(found if tabulate is None else _as_table(found, tabulate), status, warnings=warnings)


def _after(groups: Iterable[ObjectGroup], after: str, returned: int) -> Iterator[tuple[str, Object]]:
    """Objects, each with its continue token: the last group returned whole, and how many objects of the next one."""
    for group in groups:
        for number, each in enumerate(group.objects, 1):
            is_last = number == len(group.objects)
            if number > returned and not group.is_deleted:
                yield (group.position if is_last else f"{after}{_PART}{number}"), each
        after, returned = group.position, 0


def _count(text: str) -> int:
    if text and not (text.isdecimal() and len(text) < 6):
        raise InvalidRequest("must be the continue token of the previous page", field="continue")
    return int(text or 0)


def _tabulate() -> tables.Tabulate | None:
    return tables.table_format(request.headers.get("Accept", ""), request.args.get("includeObject", "Metadata"))


def _as_table(found: Object, tabulate: tables.Tabulate) -> Object:
    metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
    return tabulate(found["kind"], [found], metadata, now=utc_now())
