"""The proxy through which this node's downloads leave its network, and the check of hosts before it is asked."""

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from app.domain.spec.locations.outbound_proxy import PROXY_HEAD_BYTES, OutboundProxy, may_be_asked, refusal
from config.fetching import FetchSettings

_HTTP = 80


class ProxyRefuses(OSError):
    """The operator's proxy does not connect."""


def outbound_proxy(settings: FetchSettings) -> OutboundProxy | None:
    """That of TRAINYARD_FETCH_PROXY; None where downloads leave directly."""
    parts = urlsplit(settings.proxy)
    if not parts.hostname:
        return None
    return OutboundProxy(
        host=parts.hostname,
        port=parts.port or _HTTP,
        user=settings.proxy_user,
        password=settings.proxy_secret,
        direct=settings.no_proxy,
    )


def proxy_variables(settings: FetchSettings) -> Mapping[str, str]:
    """The variables by which libraries find it; empty without one."""
    proxy = outbound_proxy(settings)
    if proxy is None:
        return {}
    return {"http_proxy": proxy.url, "https_proxy": proxy.url, "no_proxy": ",".join(proxy.direct)}


def may_leave(host: str, port: int, allow: tuple[str, ...]) -> bool:
    """Whether the proxy may be asked for this host of a job, whose name is resolved here first."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    return may_be_asked(host, [str(info[4][0]) for info in found], allow)


def connected(proxy: OutboundProxy, host: str, port: int, *, seconds: float) -> socket.socket:
    """A connection to the host through the proxy. Raises OSError, of which ProxyRefuses says what it answered."""
    connection = socket.create_connection((proxy.host, proxy.port), seconds)
    try:
        connection.sendall(proxy.connect_request(host, port))
        if why := refusal(_head(connection)):
            raise ProxyRefuses(why)
    except BaseException:
        connection.close()
        raise
    return connection


def _head(connection: socket.socket) -> bytes:
    """Byte by byte: what follows it is the server's."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < PROXY_HEAD_BYTES:
        piece = connection.recv(1)
        if not piece:
            break
        head += piece
    return head
