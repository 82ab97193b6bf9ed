"""Which headers of a request a job gets, and which of its answer the browser gets."""

import base64
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tornado.httputil import HTTPHeaders

from app.domain.port_addresses import TOKEN, PortAddress
from app.gateway.interactive import port_cookies

# Of one connection, not of a message (RFC 9110, section 7.6.1), and what frames a message: both are made anew.
_OF_CONNECTION = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "content-length",
        "upgrade",
        "http2-settings",
        "expect",
    ]
)
_SAID_BY_US = ("x-forwarded-", "x-trainyard-")
_REMOVED_OF_REQUEST = frozenset(("host", "cookie", "forwarded", "x-real-ip", "authorization", "referer"))
# Of an answer: what speaks for a whole origin or domain, which other jobs and the platform are on as well, and what
# proxies before us would act on.
_REMOVED_OF_ANSWER = frozenset(
    [
        "set-cookie",
        "location",
        "service-worker-allowed",
        "clear-site-data",
        "strict-transport-security",
        "alt-svc",
        "report-to",
        "reporting-endpoints",
        "nel",
        "expect-ct",
        "public-key-pins",
        "origin-trial",
        "accept-ch",
        "origin-agent-cluster",
        "x-sendfile",
        "x-lighttpd-send-file",
        "x-reproxy-url",
        "set-login",
        "set-cookie2",
        "surrogate-control",
        "surrogate-key",
        "cdn-cache-control",
        "x-lighttpd-send-tempfile",
        "cache-control",
    ]
)
_ACTED_ON_BY_PROXIES = "x-accel-"
_SHARED = ("public", "private", "s-maxage", "proxy-revalidate")  # directives that are ours to say
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")  # noqa: S104 – named by a job, not bound
_KEY = re.compile(r"ty_[0-9a-z]{12}_|tyjob\.", re.IGNORECASE)  # how keys of the platform begin, anywhere
_KEY_OF_OURS = re.compile(r"(?<![A-Za-z0-9])(ty_|tyjob\.)", re.IGNORECASE)  # also of a mistyped one, as a word
_NO_WORD = re.compile(r"[^A-Za-z0-9_.-]+")  # between keys and tokens


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Who asks, as the job gets it: the client's address, and the name of the person or key."""

    address: str
    user: str


def for_job(headers: HTTPHeaders, address: PortAddress, asker: Asker, *, is_ours: Callable[[str], bool]) -> HTTPHeaders:
    """What the job gets, without what frames the body. ``is_ours``: whether a word of Authorization is the platform's,
    which the job must not see.
    """
    sent = HTTPHeaders({"Host": address.host})
    for name, value in _passed(headers, _REMOVED_OF_REQUEST, _SAID_BY_US):
        if not _KEY.search(value):
            sent.add(name, value)
    cookies = port_cookies.without_ours(headers.get_list("Cookie"))
    if cookies and not _KEY.search(cookies):
        sent["Cookie"] = cookies
    own = [value for value in headers.get_list("Authorization") if not _is_platform_key(value, is_ours)]
    if len(own) == 1:
        sent["Authorization"] = own[0]
    referer = headers.get("Referer", "")
    if referer and TOKEN not in unquote(referer) and not _KEY.search(referer):
        sent["Referer"] = referer
    sent["X-Forwarded-For"] = asker.address
    sent["X-Forwarded-Host"] = address.host
    sent["X-Forwarded-Proto"] = "https" if address.is_secure else "http"
    if address.prefix:
        sent["X-Forwarded-Prefix"] = address.prefix
    sent["X-Trainyard-User"] = asker.user
    return sent


def for_browser(headers: HTTPHeaders, address: PortAddress, *, keeps_prefix: bool, port: int) -> HTTPHeaders:
    """What the browser gets of a job's answer, without what frames the body."""
    sent = HTTPHeaders()
    for name, value in _passed(headers, _REMOVED_OF_ANSWER, (*_SAID_BY_US, _ACTED_ON_BY_PROXIES)):
        sent.add(name, value)
    for cookie in headers.get_list("Set-Cookie"):
        if kept := port_cookies.of_job(cookie, address, keeps_prefix=keeps_prefix):
            sent.add("Set-Cookie", kept)
    if "Location" in headers and (led := _location(headers["Location"], address, keeps_prefix=keeps_prefix, port=port)):
        sent["Location"] = led
    sent["Cache-Control"] = _private(headers.get_list("Cache-Control"))
    return sent


def upgrade_headers(headers: HTTPHeaders) -> HTTPHeaders:
    """Those that ask for a WebSocket, or grant it (RFC 6455, section 4)."""
    sent = HTTPHeaders({"Connection": "Upgrade", "Upgrade": "websocket"})
    for name in ("Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Accept"):
        if name in headers:
            sent[name] = headers[name]
    return sent


def is_own_origin(headers: HTTPHeaders, address: PortAddress) -> bool:
    """Whether a page of the port itself asks, or no page."""
    origin = headers.get("Origin")
    if origin is None:
        return True
    if origin == "null":  # of a page that sends no referrers, among others
        return headers.get("Sec-Fetch-Site") == "same-origin"
    return origin.lower() == address.origin


def _passed(headers: HTTPHeaders, removed: frozenset[str], starts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    named = {name.strip().lower() for value in headers.get_list("Connection") for name in value.split(",")}
    for name, value in headers.get_all():
        lowered = name.lower()
        # Many servers take `_` for `-`, by which a client could say what is ours to say.
        if "_" in name or lowered in removed or lowered in _OF_CONNECTION or lowered in named:
            continue
        if not lowered.startswith(starts):
            yield name, value


def _is_platform_key(value: str, is_ours: Callable[[str], bool]) -> bool:
    """Whether a value of Authorization has a key of the platform, or a token of one, whatever its scheme is."""
    scheme, *rest = value.split(None, 1)[:2] or [""]
    shown = [value]
    if scheme.lower() == "basic" and rest:
        with contextlib.suppress(ValueError):
            shown.append(base64.b64decode(rest[0] + "==").decode("latin-1"))
    return any(_KEY_OF_OURS.search(each) or any(map(is_ours, _NO_WORD.split(each))) for each in shown)


def _private(values: Iterable[str]) -> str:
    """Who may see an answer is ours to say, each time: no cache that others share may keep it."""
    said = [part.strip() for value in values for part in value.split(",")]
    return ", ".join(["private", *(each for each in said if each and each.partition("=")[0].lower() not in _SHARED)])


def _location(value: str, address: PortAddress, *, keeps_prefix: bool, port: int) -> str | None:
    """Where a redirect of the job leads in the browser: below the port's prefix, if to the job itself."""
    if not _VISIBLE.fullmatch(value) or "\\" in value:
        return None
    try:
        parts = urlsplit(value)
        named = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.netloc:
        if parts.scheme not in ("http", "https", ""):
            return None
        if parts.netloc.lower() != address.host and (named[0] not in _LOOPBACK or named[1] not in (port, None)):
            return value  # another site
    elif parts.scheme:
        return None  # such as javascript:
    elif not parts.path.startswith("/"):
        return value  # relative to the page
    path = parts.path or "/"
    if address.prefix and not (keeps_prefix and _is_below(path, address.prefix)):
        path = address.prefix + path
    more = (f"?{parts.query}" if parts.query else "") + (f"#{parts.fragment}" if parts.fragment else "")
    return (address.origin if parts.netloc or path.startswith("//") else "") + path + more


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def user_text(name: str) -> str:
    """The name of a person as a header value: what is not visible ASCII is percent-encoded."""
    return "".join(
        each
        if each.isascii() and _VISIBLE.fullmatch(each) and each != "%"
        else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in name[:200]
    )
