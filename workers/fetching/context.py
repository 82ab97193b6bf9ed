"""Common context of the fetchers, and what they share: a file is cached once and linked as its target."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from config.fetching import FetchSettings
from workers.fetching.cache import Cache, CacheEntry
from workers.fetching.child.server import ProgressReporter
from workers.fetching.failures import FetchRefused, FetchTooLarge, Trouble, Unusable
from workers.fetching.items import FetchedFile, Item
from workers.fetching.listing import ListedPath
from workers.fetching.uris import shown

AT_ONCE = 6


@dataclass(frozen=True, kw_only=True)
class Context:
    settings: FetchSettings
    cache: Cache
    heart: ProgressReporter
    secrets: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file to fetch: ``key`` identifies it, and ``download`` writes it into a new file."""

    key: str
    name: str
    found: ListedPath
    download: Callable[[Path], None]


def fetch_all(context: Context, item: Item, remotes: Iterable[Remote]) -> list[FetchedFile]:
    """Several at once, in their order. Raises FetchFailed."""
    wanted = list(remotes)
    _refuse_colliding([remote.name for remote in wanted])
    refuse_larger(item, sum(remote.found.size for remote in wanted))
    if item.kind == "data" and any(remote.found.size == 0 for remote in wanted):
        empty = next(remote for remote in wanted if remote.found.size == 0)
        raise Unusable(f"{empty.name} is empty")
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        return [each.result() for each in [pool.submit(_fetch, context, item, remote) for remote in wanted]]
    finally:
        # After a failure the other downloads are abandoned: they end with this process.
        pool.shutdown(wait=False, cancel_futures=True)


def _refuse_colliding(names: list[str]) -> None:
    """Object stores allow names that directories cannot: ``a`` beside ``a/b``."""
    files = set(map(PurePosixPath, names))
    both = next((parent for path in files for parent in path.parents if parent in files), None)
    if both is not None:
        raise FetchRefused(f"{str(both)[:200]!r} is a file, and a directory of others; rename one of them")


def refuse_larger(item: Item, size: int) -> None:
    """Raises FetchTooLarge."""
    if size > item.max_bytes:
        raise FetchTooLarge(f"its {size} bytes are more than {item.max_bytes} ({item.limit_name})")


def target_of(item: Item, name: str) -> Path:
    """The target path of a file. Raises FetchRefused for a name outside the directory."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or any(part in ("..", ".") or len(part.encode()) > 255 for part in parts):
        raise FetchRefused(f"{name[:200]!r} can't be the name of a file here; rename it")
    return Path(item.target, *parts)


def reader_of(item: Item) -> str:
    """Digest that separates readers with their own credentials; empty for the operator's.

    Part of every cache key: content fetched by one reader is not served to another who may only list it.
    """
    if not item.credentials:
        return ""
    text = json.dumps([item.location, dict(item.credentials)], sort_keys=True)
    return f" as {hashlib.sha256(text.encode()).hexdigest()}"


def fetched(item: Item, name: str, sha256: str) -> FetchedFile:
    path = target_of(item, name)
    return FetchedFile(path=str(path), name=name, size_bytes=path.stat().st_size, sha256=sha256)


def _fetch(context: Context, item: Item, remote: Remote) -> FetchedFile:
    cache, found, target = context.cache, remote.found, target_of(item, remote.name)
    if found.sha256 and cache.link(found.sha256, target) is not None:
        return fetched(item, remote.name, found.sha256)
    with cache.alone(remote.key):
        known = cache.entry(remote.key)
        is_same = known is not None and found.version != "" and known.version == found.version
        if known is not None and is_same and cache.link(known.sha256, target) is not None:
            return fetched(item, remote.name, known.sha256)
        with cache.scratch(found.size) as directory:
            part = directory / "data"
            remote.download(part)
            if part.stat().st_size != found.size:
                raise Trouble(
                    f"{remote.name}: {part.stat().st_size} bytes of {found.size} arrived; is it being changed?"
                )
            sha256 = cache.adopt(part, target, expected=found.sha256)
        entry = CacheEntry(location=shown(item.location), version=found.version, sha256=sha256, size=found.size)
        cache.remember(remote.key, entry)
    return fetched(item, remote.name, sha256)
