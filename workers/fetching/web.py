"""HTTP downloads under a policy for bytes, time, redirects and addresses.

Requests are conditional on the known version: an unchanged file costs one answer without a body.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO

import aiohttp
from yarl import URL

from app.domain.errors import BadSpec
from app.domain.spec.locations.hosts import refuse_private_host
from app.domain.spec.locations.outbound_proxy import SETTING
from config.fetching import FetchSettings
from workers.fetching.addresses import GuardedSockets
from workers.fetching.failures import FetchRefused, FetchTooLarge, Missing, NotThere, Trouble, Unusable
from workers.fetching.outbound import may_leave, outbound_proxy

TRIES = 3
RETRY_SECONDS = 0.5
CONNECT_SECONDS = 30.0
SETTLED = timedelta(seconds=2)
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
PRIVATE = (
    "it leads to a loopback, link-local or private address; use a public host, or have the administrator list this one "
    "in TRAINYARD_FETCH_ALLOW"
)


@dataclass(frozen=True, kw_only=True)
class DownloadRequest:
    """``url`` with ``headers`` for its own origin only. ``trusted`` ones, as ``host:port``, may be private.

    ``personal``: the content may depend on the user, so that a modification time says nothing about another user's
    copy.
    """

    url: str
    headers: Mapping[str, str]
    max_bytes: int
    known: str = ""  # the version in the cache
    trusted: tuple[str, ...] = ()
    personal: bool = False
    refusal: str = "the server denies read access"  # meaning of a 401 or 403
    max_bytes_name: str = "TRAINYARD_FETCH_MAX_BYTES"
    method: str = "GET"  # or HEAD, to check read access

    def knowing(self, version: str) -> "DownloadRequest":
        """The same request, conditional on a version other than this one."""
        return replace(self, known=version)


class NotModified(Exception):
    """The cached version is current."""


class _Broken(Exception):
    """The answer or the connection ended early: the download can be resumed."""


class Download:
    """One download. ``before_bytes`` receives the announced size, if any."""

    def __init__(
        self,
        settings: FetchSettings,
        request: DownloadRequest,
        *,
        before_bytes: Callable[[int], None],
        on_bytes: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._request = request
        self._before_bytes = before_bytes
        self._on_bytes = on_bytes
        self._gate = GuardedSockets(settings.allow, request.trusted)
        self._proxy = outbound_proxy(settings)
        self._arrived = 0
        self._validator = ""  # a strong one: allows resuming

    def to(self, path: Path) -> str:
        """Write the file; returns the server's version of it, empty when it reports none.

        Raises NotModified, FetchFailed.
        """
        with path.open("wb") as file:
            return asyncio.run(self._fetch(file))

    def check(self) -> None:
        """Check by a HEAD request that the server would send the file. Raises FetchFailed."""
        self._request = replace(self._request, method="HEAD")
        self.to(Path(os.devnull))

    async def _fetch(self, file: BinaryIO) -> str:
        timeout = aiohttp.ClientTimeout(
            total=self._settings.max_seconds, sock_connect=CONNECT_SECONDS, sock_read=self._settings.stalled_seconds
        )
        connector = aiohttp.TCPConnector(socket_factory=self._gate.socket, force_close=True)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            for attempt in range(TRIES):
                try:
                    return await self._try(session, file)
                except _Broken as error:
                    trouble = str(error)
                await asyncio.sleep(RETRY_SECONDS * 2**attempt)
        raise Trouble(trouble)

    async def _try(self, session: aiohttp.ClientSession, file: BinaryIO) -> str:
        """Raises _Broken for failures that a retry may fix."""
        self._gate.refused = False
        try:
            return await self._follow(session, file)
        except aiohttp.ClientPayloadError as error:
            raise _Broken(f"the answer is incomplete after {self._arrived} bytes") from error
        except TimeoutError as error:
            raise _Broken(f"nothing arrives from {self._gate.host}") from error
        except aiohttp.ClientProxyConnectionError as error:
            raise _Broken(f"the proxy of {SETTING} can't be reached: {_cause(error)}") from error
        except aiohttp.ClientConnectionError as error:
            if self._gate.refused:
                raise FetchRefused(PRIVATE) from error
            raise _Broken(f"{self._gate.host} can't be reached: {_cause(error)}") from error
        except aiohttp.InvalidURL as error:
            raise FetchRefused("it is no valid URL, or redirects to one that isn't") from error
        except aiohttp.ClientHttpProxyError as error:
            raise Trouble(f"the proxy of {SETTING} answers {error.status} for {self._gate.host}") from error
        except aiohttp.ClientError as error:
            raise Trouble(f"{self._gate.host} does not answer with valid HTTP: {type(error).__name__}") from error

    async def _follow(self, session: aiohttp.ClientSession, file: BinaryIO) -> str:
        """Follow redirects, each of them checked."""
        url = _url(self._request.url)
        origin = url.origin()
        for _ in range(self._settings.max_redirects + 1):
            self._check(url)
            headers = self._headers() | (dict(self._request.headers) if url.origin() == origin else {})
            through = await self._through(url)
            async with session.request(
                self._request.method, url, headers=headers, allow_redirects=False, proxy=through
            ) as answer:
                if answer.status not in REDIRECTS or "Location" not in answer.headers:
                    return await self._receive(answer, file)
                following = _without_user(url.join(_url(answer.headers["Location"])))
            if url.scheme == "https" and following.scheme != "https":
                raise FetchRefused(
                    f"{url.host} redirects from https to {following.scheme}, which would be readable on the way"
                )
            url = following
        raise FetchRefused(
            f"it is redirected more than {self._settings.max_redirects} times (TRAINYARD_FETCH_MAX_REDIRECTS)"
        )

    def _check(self, url: URL) -> None:
        if url.scheme not in ("http", "https") or not url.host:
            raise FetchRefused(f"it redirects to {url.scheme or 'nothing'}://, which is not followed")
        self._gate.host, self._gate.port = url.host, url.port or 0
        if not self._gate.is_trusted():
            try:
                refuse_private_host(f"{url.scheme}://{url.authority}/", self._settings.allow, field="")
            except BadSpec as error:
                raise FetchRefused(PRIVATE) from error

    async def _through(self, url: URL) -> URL | None:
        """The proxy for it, if there is one. Raises FetchRefused for a host that it may not be asked for."""
        host, port = url.host or "", url.port or 0
        self._gate.is_proxied = self._proxy is not None and self._proxy.is_for(host)
        if self._proxy is None or not self._gate.is_proxied:
            return None
        if not self._gate.is_trusted() and not await asyncio.to_thread(may_leave, host, port, self._settings.allow):
            raise FetchRefused(PRIVATE)
        return URL(self._proxy.url)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity", "User-Agent": "trainyard"}
        if self._arrived:
            return headers | {"Range": f"bytes={self._arrived}-", "If-Range": self._validator}
        return headers | _conditions(self._request.known)

    async def _receive(self, answer: aiohttp.ClientResponse, file: BinaryIO) -> str:
        if answer.status == 304 and self._request.known and not self._arrived:
            raise NotModified
        self._check_status(answer)
        version = _version(answer, personal=self._request.personal)
        if self._request.method == "HEAD":
            return version
        if version and version == self._request.known and not self._arrived:
            raise NotModified  # a server that ignores conditional headers
        if answer.status != 206:
            self._arrived = 0
            file.seek(0)
            file.truncate()
        etag = answer.headers.get("ETag", "")
        plain = "Content-Encoding" not in answer.headers
        self._validator = etag if plain and etag.startswith('"') else ""
        await self._take(answer, file, plain=plain)
        return version

    def _check_status(self, answer: aiohttp.ClientResponse) -> None:
        status, host = answer.status, answer.url.host
        if status == 206 and self._arrived and _starts_at(answer) == self._arrived:
            return
        if status == 407 and self._gate.is_proxied:  # plain HTTP: it answers in place of the server
            raise Trouble(f"the proxy of {SETTING} answers 407 for {host}")
        if status in PASSING:
            raise _Broken(f"{host} answers {status}")
        if status in (404, 410):
            raise Missing(f"{host} has no such file ({status})")
        if status in (401, 403):
            raise NotThere(f"{self._request.refusal} ({host} answers {status})")
        if status != 200:
            raise NotThere(f"{host} answers {status} instead of a file")

    async def _take(self, answer: aiohttp.ClientResponse, file: BinaryIO, *, plain: bool) -> None:
        """Receive the body, which may be longer than announced, or endless."""
        length = answer.content_length if plain else None
        if length is not None:
            self._refuse_larger(self._arrived + length)
        self._before_bytes(length or 0)
        try:
            async for chunk in answer.content.iter_any():
                self._arrived += len(chunk)
                self._refuse_larger(self._arrived)
                self._on_bytes(len(chunk))
                file.write(chunk)
        except (aiohttp.ClientError, TimeoutError):
            if not self._validator:
                self._arrived = 0
            raise
        if self._arrived == 0:
            raise Unusable("it is empty")

    def _refuse_larger(self, size: int) -> None:
        if size > self._request.max_bytes:
            raise FetchTooLarge(f"it is larger than {self._request.max_bytes} bytes ({self._request.max_bytes_name})")


def _url(text: str) -> URL:
    try:
        # Unchanged: requoting would invalidate signatures.
        return URL(text, encoded=text.isascii())
    except ValueError as error:
        raise FetchRefused("it is no valid URL, or redirects to one that isn't") from error


def _without_user(url: URL) -> URL:
    return url.with_user(None) if url.raw_user is not None or url.raw_password is not None else url


def _version(answer: aiohttp.ClientResponse, *, personal: bool) -> str:
    validators = {name: answer.headers.get(name, "") for name in ("ETag", "Last-Modified")}
    is_old = not personal and _is_settled(validators["Last-Modified"], answer.headers.get("Date", ""))
    return json.dumps(validators) if validators["ETag"] or is_old else ""


def _is_settled(modified: str, now: str) -> bool:
    """Whether a later change would be visible: these times have a resolution of one second."""
    try:
        return parsedate_to_datetime(now) - parsedate_to_datetime(modified) > SETTLED
    except (ValueError, TypeError):
        return False


def _conditions(known: str) -> dict[str, str]:
    if not known:
        return {}
    validators = json.loads(known)
    if validators["ETag"]:
        return {"If-None-Match": validators["ETag"]}
    return {"If-Modified-Since": validators["Last-Modified"]}


def _starts_at(answer: aiohttp.ClientResponse) -> int | None:
    found = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(found[1]) if found is not None else None


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
