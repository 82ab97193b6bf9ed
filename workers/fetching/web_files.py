"""Fetches files over HTTP: from any host, through the IPFS gateway, or from shares with the submitting user's token."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from app.domain.spec.credentials import HEADERS, PASSWORD, TOKEN, USER, headers_of
from workers.fetching.cache import STEP_BYTES, CacheEntry
from workers.fetching.content_ids import RAW, ContentId, Malformed, content_id
from workers.fetching.context import Context, fetched, reader_of, target_of
from workers.fetching.failures import FetchRefused, Missing, NotThere, Trouble, Unusable
from workers.fetching.items import FetchedFile, Item
from workers.fetching.shares import fetch_directory, names_directory, share_request
from workers.fetching.unixfs import write_file
from workers.fetching.uris import SHARES, authority, base_name, content, scheme_of, shown
from workers.fetching.web import Download, DownloadRequest, NotModified

_MOST_OVERHEAD = 1 << 20


def fetch(context: Context, item: Item) -> list[FetchedFile]:
    """Raises FetchFailed."""
    if scheme_of(item.location) in SHARES and names_directory(item):
        return fetch_directory(context, item)
    request, lasting = _request(context, item)
    name = _file_name(item)
    target, cache = target_of(item, name), context.cache
    key = f"{item.location} {request.url}{reader_of(item)}"
    with cache.alone(key):
        known = cache.entry(key)
        # Link first: a linked file cannot be evicted during the request.
        if known is not None and cache.link(known.sha256, target) is None:
            known = None
        if known is not None and lasting:
            return [fetched(item, name, known.sha256)]
        try:
            sha256 = _download(context, item, request.knowing(known.version if known is not None else ""), key, target)
        except NotModified:
            sha256 = known.sha256 if known is not None else ""
        except Missing as error:
            if scheme_of(item.location) in SHARES:
                raise NotThere(f"{error.message}; the URI of a directory ends with a slash") from error
            raise
    return [fetched(item, name, sha256)]


def _download(context: Context, item: Item, request: DownloadRequest, key: str, target: Path) -> str:
    cache, steps = context.cache, _Steps(context)
    with cache.scratch(0) as directory:
        part = directory / "data"
        download = Download(context.settings, request, before_bytes=steps.announced, on_bytes=steps.arrived)
        version = download.to(part)
        part = _checked(context, item, part)
        size = part.stat().st_size
        target.unlink(missing_ok=True)
        sha256 = cache.adopt(part, target)
    cache.remember(key, CacheEntry(location=shown(item.location), version=version, sha256=sha256, size=size))
    return sha256


def _checked(context: Context, item: Item, part: Path) -> Path:
    """The downloaded file, or for IPFS the file that it contains, verified against its content id. Raises
    FetchFailed.
    """
    if scheme_of(item.location) != "ipfs":
        return part
    where = content(item.location)
    root = content_id(where.container)
    if _is_one_block(root, where.path):
        try:
            root.check(part.read_bytes())
        except Malformed as error:
            raise Trouble(f"the IPFS gateway answers with {error}") from error
        return part
    context.cache.make_room(part.stat().st_size)
    whole = part.with_name("file")
    write_file(part, root, unquote(where.path), whole, max_bytes=item.max_bytes)
    if whole.stat().st_size == 0:
        raise Unusable("it is empty")
    return whole


def _is_one_block(root: ContentId, path: str) -> bool:
    return root.codec == RAW and not path.strip("/")


class _Steps:
    """Reserves cache space: all at once when the size is known, otherwise one step ahead."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._room = 0

    def announced(self, size: int) -> None:
        self._room = size or STEP_BYTES
        self._context.cache.make_room(self._room if size else 0)

    def arrived(self, count: int) -> None:
        self._context.heart.arrived(count)
        self._room -= count
        if self._room <= 0:
            self._room = STEP_BYTES
            self._context.cache.make_room(1)


def _request(context: Context, item: Item) -> tuple[DownloadRequest, bool]:
    """The request, and whether its answer is immutable."""
    scheme, settings = scheme_of(item.location), context.settings
    limits: dict[str, Any] = {"max_bytes": item.max_bytes, "max_bytes_name": item.limit_name}
    if scheme == "ipfs":
        if not settings.ipfs_gateway:
            raise FetchRefused("this node has no IPFS gateway; have the administrator set TRAINYARD_FETCH_IPFS_GATEWAY")
        where = content(item.location)
        url = f"{settings.ipfs_gateway.rstrip('/')}/ipfs/{where.container}/{quote(where.path, safe='/%')}".rstrip("/")
        # Fetch blocks instead of the file: only they can be verified against the content id
        # (specs.ipfs.tech/http-gateways).
        raw = _is_one_block(content_id(where.container), where.path)
        url += "?format=raw" if raw else "?format=car&dag-scope=entity"
        headers = {"Accept": f"application/vnd.ipld.{'raw' if raw else 'car'}"}
        limits["max_bytes"] = item.max_bytes + item.max_bytes // 20 + _MOST_OVERHEAD  # links and ids beside the file
        return DownloadRequest(url=url, headers=headers, trusted=authority(settings.ipfs_gateway), **limits), True
    if scheme in SHARES:
        return share_request(context, item), False
    if not item.credentials:
        return DownloadRequest(url=item.location, headers={}, **limits), False
    refusal = "the server does not accept the credentials that the job has for it; correct them"
    return DownloadRequest(
        url=item.location, headers=_own(item.credentials), personal=True, refusal=refusal, **limits
    ), False


def _own(credentials: Mapping[str, str]) -> dict[str, str]:
    """Authentication headers for one location, sent only to its own origin."""
    if HEADERS in credentials:
        return headers_of(credentials[HEADERS], field=HEADERS)
    if TOKEN in credentials:
        return {"Authorization": f"Bearer {credentials[TOKEN]}"}
    pair = f"{credentials[USER]}:{credentials[PASSWORD]}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _file_name(item: Item) -> str:
    name = unquote(base_name(item.location)).replace("/", "_").replace("\0", "_")
    return name if name not in (".", "..") and len(name.encode()) <= 255 else "data"
