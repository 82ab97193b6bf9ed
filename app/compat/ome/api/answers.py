"""Objects and lists of them as Kubernetes' API answers: as they are, as tables, or in pages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from flask import request

from app.compat.ome.api import tables
from app.compat.ome.api.selectors import selected
from app.compat.ome.api.sources import Asked, Group, Object, Source
from app.compat.ome.api.watches import watched
from app.compat.ome.from_native import resource_version
from app.domain.errors import InvalidRequest
from app.host.clock import utc_now
from app.http.context import plane
from app.http.envelope import Reply

_PART = "~"  # begins what is said of a group that a page ended within


def answered(source: Source, query: Mapping[str, Any]) -> Any:
    """Those of the source that are meant, as a list or as a stream of their changes."""
    tabulate = _tabulate()
    if query["watch"]:
        return watched(source, query, lambda each: each if tabulate is None else _alone(each, tabulate))
    return listed(source, query)


def listed(source: Source, query: Mapping[str, Any]) -> Reply:
    """What has changed since it began to look may be missing, so that is its version."""
    begun, limit = utc_now(), query["limit"]
    is_meant = selected(query["labelSelector"], query["fieldSelector"])
    after, _, told_of_next = query["continue"].partition(_PART)
    with plane().db.read() as session:
        groups = source.look(session, Asked(after=after) if limit or after else Asked())
        found = _after(groups, after, _number(told_of_next))
        meant = ((place, each) for place, each in found if is_meant(each))
        shown = list(islice(meant, limit + 1 if limit else None))
    metadata = {"resourceVersion": resource_version(begun, 0)}
    if limit and len(shown) > limit:
        metadata["continue"] = shown[limit - 1][0]
        del shown[limit:]
    items = [each for _, each in shown]
    if (tabulate := _tabulate()) is not None:
        return Reply(tabulate(source.kind, items, metadata, now=utc_now()))
    return Reply({"apiVersion": source.api_version, "kind": f"{source.kind}List", "metadata": metadata, "items": items})


def told(found: Object, status: int = 200, warnings: Sequence[str] = ()) -> Reply:
    tabulate = _tabulate()
    return Reply(found if tabulate is None else _alone(found, tabulate), status, warnings=warnings)


def _after(groups: Iterable[Group], after: str, told_of_next: int) -> Iterator[tuple[str, Object]]:
    """Objects, each with the place behind it: the last group that is told whole, and how many of the next are told."""
    for group in groups:
        for number, each in enumerate(group.objects, 1):
            is_last = number == len(group.objects)
            if number > told_of_next and not group.is_gone:
                yield (group.position if is_last else f"{after}{_PART}{number}"), each
        after, told_of_next = group.position, 0


def _number(text: str) -> int:
    if text and not (text.isdecimal() and len(text) < 6):
        raise InvalidRequest("must be what the list before had", field="continue")
    return int(text or 0)


def _tabulate() -> tables.Tabulate | None:
    return tables.asked_for(request.headers.get("Accept", ""), request.args.get("includeObject", "Metadata"))


def _alone(found: Object, tabulate: tables.Tabulate) -> Object:
    metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
    return tabulate(found["kind"], [found], metadata, now=utc_now())
