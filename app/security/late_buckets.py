"""Shared token buckets for a process that seldom needs them."""

from functools import cached_property
from importlib import import_module

from app.domain.token_bucket import Draw, Rate
from app.security.rate_limits import Buckets


class LateBuckets:
    """Shared buckets that are made at their first use: Redis' client needs 8 MB, and a gateway seldom has a use.

    The first use raises ValueError for a URL that is not one of Redis: the process checks it at its start.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def draw(self, name: str, rate: Rate, requested: int) -> Draw:
        return self._shared.draw(name, rate, requested)

    @cached_property
    def _shared(self) -> Buckets:
        made: Buckets = import_module("app.security.shared_buckets").SharedBuckets(self._url)
        return made
