"""The parent's side of fetching: passes a list of items to one child process, which returns their files in the
cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from config.fetching import CacheSettings, FetchSettings
from workers.attempt_failed import AttemptFailed
from workers.fetching.child.client import run_child
from workers.fetching.items import FetchedFile, Item, settings_to_json
from workers.fetching.outbound import proxy_variables
from workers.fetching.uris import scheme_of, shown

NOUNS = {"data": "data source", "model": "base model", "code": "code directory"}


class TooLargeHere(AttemptFailed):
    """It exceeds the caller's limit, and may be used by callers with a larger one."""


@dataclass(frozen=True, kw_only=True)
class FetchOrder:
    """Cache location, limits and secrets for a fetch."""

    fetch: FetchSettings
    cache: CacheSettings
    root: Path
    secrets: Mapping[str, str]


def fetch(order: FetchOrder, items: Sequence[Item]) -> list[tuple[Item, list[FetchedFile]]]:
    """The files of each item. Raises AttemptFailed (including TooLargeHere) for the first that fails."""
    if not items:
        return []
    what = ", ".join(_named(item) for item in items[:3])
    request = {
        "fetch": settings_to_json(order.fetch),
        "cache_bytes": order.cache.max_bytes,
        "root": str(order.root),
        "secrets": dict(order.secrets),
        "items": [asdict(item) for item in items],
    }
    answers = run_child(
        "workers.fetching",
        request,
        what=what,
        stalled_seconds=order.fetch.stalled_seconds,
        # A hub may be behind the machine's proxy; other hosts named by jobs must not be reached through it.
        proxies=not order.fetch.proxy and all(_is_of_hub(item) for item in items),
        # Only the hub's client reads these: the other ones have settings of their own, and check each host first.
        variables=proxy_variables(order.fetch) if any(_is_of_hub(item) for item in items) else {},
    )
    return [(item, _files(item, answer)) for item, answer in zip(items, answers, strict=False)]


def _files(item: Item, answer: Mapping[str, Any]) -> list[FetchedFile]:
    failure = answer.get("failure")
    if failure is None:
        return [FetchedFile(**file) for file in answer["files"]]
    failed = TooLargeHere if failure.get("too_large") else AttemptFailed
    raise failed(failure["error_type"], f"{_named(item)}: {failure['message']}")


def _named(item: Item) -> str:
    return f"{NOUNS[item.kind]} {shown(item.location)}"


def _is_of_hub(item: Item) -> bool:
    return item.hub_id or scheme_of(item.location) == "hf"
