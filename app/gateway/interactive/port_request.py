"""A request for a port of a job, read strictly: what it asks for, and by which credentials."""

import re
from dataclasses import dataclass
from urllib.parse import unquote_plus

from tornado.httputil import HTTPHeaders, RequestStartLine

from app.domain.port_addresses import TOKEN, PortAddress
from app.gateway.interactive import port_cookies
from app.gateway.interactive.port_headers import is_own_origin
from app.gateway.interactive.port_refusals import PortRefused, bad_request

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SAFE = ("GET", "HEAD")
MOST_TARGET = 16 << 10
CHUNKED = -1  # the length of a body that says none
MOST_TOKENS = 4  # in one URL that are tried
_TARGET = re.compile(r"/[\x21-\x22\x24-\x7e]*")  # visible ASCII without #
_WEBSOCKET_KEY = re.compile(r"[A-Za-z0-9+/]{22}==")
_BACK = re.compile(r"%2e", re.IGNORECASE)
_SLASH = re.compile(r"%2f|%5c|\\", re.IGNORECASE)
_UPGRADE = "websocket"


@dataclass(frozen=True, kw_only=True)
class PortRequest:
    """``path`` is as it came, with the prefix; ``query`` without our token. ``length`` is that of the body."""

    address: PortAddress
    method: str
    path: str
    query: str
    url_tokens: tuple[str, ...]
    cookie_tokens: tuple[str, ...]
    key: str  # in the Authorization header; may be of the job's own
    length: int
    is_websocket: bool

    @property
    def has_body(self) -> bool:
        return self.length != 0

    def target(self, *, keeps_prefix: bool) -> str:
        """What the job is asked for."""
        path = self.path if keeps_prefix else self.path.removeprefix(self.address.prefix)
        return path + (f"?{self.query}" if self.query else "")

    @property
    def clean_url(self) -> str:
        """The URL without the token."""
        return self.address.origin + self.path + (f"?{self.query}" if self.query else "")


def read(start: RequestStartLine, headers: HTTPHeaders, address: PortAddress) -> PortRequest:
    """Raises PortRefused."""
    if start.version != "HTTP/1.1":
        raise PortRefused(505, "ports are served with HTTP/1.1")
    if start.method not in METHODS:
        raise PortRefused(405, f"ports are asked with {', '.join(METHODS)}", Allow=", ".join(METHODS))
    if len(start.path) > MOST_TARGET or not _TARGET.fullmatch(start.path):
        raise bad_request(f"the path must begin with / and have at most {MOST_TARGET} visible ASCII characters")
    path, _, query = start.path.partition("?")
    if leaves(path.removeprefix(address.prefix)):
        raise bad_request("the path leads out of the port's own")
    query, found = _without_token(query)
    is_websocket = _asks_for_websocket(start.method, headers)
    length = _length(start.method, headers)
    if is_websocket and length:
        raise bad_request("a request for a WebSocket has no body")
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return PortRequest(
        address=address,
        method=start.method,
        path=path,
        query=query,
        url_tokens=found,
        cookie_tokens=tuple(port_cookies.tokens(headers.get_list("Cookie"), address)),
        key=key.strip() if scheme.lower() == "bearer" else "",
        length=length,
        is_websocket=is_websocket,
    )


def check_page(request: PortRequest, headers: HTTPHeaders) -> None:
    """Refuse what pages of other sites, and of other ports, ask with the cookies of a person. Raises PortRefused."""
    foreign = PortRefused(403, f"only pages of {request.address.origin} itself may ask this")
    if not is_own_origin(headers, request.address):
        raise foreign
    # Browsers say where a request comes from; a link may lead here, a frame or a script elsewhere may not.
    if headers.get("Sec-Fetch-Site") in ("same-site", "cross-site"):
        is_visit = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
        if not is_visit or request.method not in SAFE:
            raise foreign


def leaves(path: str) -> bool:
    """Whether a path, read as servers and browsers may read it, leads above its beginning."""
    depth = 0
    for part in _SLASH.sub("/", _BACK.sub(".", path)).split("/"):
        name = part.partition(";")[0]
        depth += -1 if name == ".." else 0 if name in ("", ".") else 1
        if depth < 0:
            return True
    return False


def _without_token(query: str) -> tuple[str, tuple[str, ...]]:
    kept, found = [], []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) == TOKEN:
            found.append(unquote_plus(value))
        else:
            kept.append(part)
    return "&".join(kept), tuple(found[:MOST_TOKENS])


def _asks_for_websocket(method: str, headers: HTTPHeaders) -> bool:
    """Raises PortRefused; any other upgrade is not passed on, as HTTP allows."""
    upgrades = [each.strip().lower() for each in headers.get("Upgrade", "").split(",")]
    options = [each.strip().lower() for each in headers.get("Connection", "").split(",")]
    if _UPGRADE not in upgrades or "upgrade" not in options:
        return False
    if method != "GET" or headers.get("Sec-WebSocket-Version") != "13":
        raise PortRefused(426, "WebSockets begin with GET, in version 13", Sec_WebSocket_Version="13")
    if not _WEBSOCKET_KEY.fullmatch(headers.get("Sec-WebSocket-Key", "")):
        raise bad_request("Sec-WebSocket-Key must be 16 bytes in base64")
    return True


def _length(method: str, headers: HTTPHeaders) -> int:
    """How long the body is, by exactly one of the two headers that say it. Raises PortRefused."""
    lengths, codings = headers.get_list("Content-Length"), headers.get_list("Transfer-Encoding")
    if lengths and codings:
        raise bad_request("a request has Content-Length or Transfer-Encoding, not both")
    if codings:
        if len(codings) > 1 or codings[0].lower() != "chunked":
            raise PortRefused(501, "the only transfer coding is chunked")
        if method not in ("POST", "PUT", "PATCH"):
            raise PortRefused(411, f"a body of {method} needs Content-Length")
        return CHUNKED
    if not lengths:
        return 0
    if len(lengths) > 1 or not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 18:
        raise bad_request("Content-Length must be one whole number")
    return int(lengths[0])
