"""Requests to an HTTP proxy, see RFC 9110 section 9.3.6 (CONNECT) and RFC 9112 section 3.2.2 (absolute form)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

MOST_HEAD_BYTES = 32 << 10
_LINE = re.compile(rb"([A-Z]{1,20}) (\S{1,8192}) HTTP/1\.[01]")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?")
_OWN_HEADERS = (b"proxy-authorization", b"proxy-connection", b"connection", b"keep-alive")


class BadProxyRequest(ValueError):
    """The head of a request that no proxy serves."""


@dataclass(frozen=True)
class ProxyRequest:
    """``forwarded`` is the head to send on, before ``length`` bytes; empty for a tunnel, which begins with TLS."""

    host: str
    port: int
    forwarded: bytes = b""
    length: int = 0

    @property
    def is_tunnel(self) -> bool:
        return not self.forwarded


def parse(head: bytes) -> ProxyRequest:
    """A request from its head, up to and with the empty line. Raises BadProxyRequest."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _LINE.fullmatch(first)
    if found is None or any(b"\n" in line or b"\r" in line or line[:1] in b" \t" for line in lines):
        raise BadProxyRequest("the request is malformed")
    method, target = found[1], found[2].decode("latin-1")
    if method == b"CONNECT":
        host, colon, port = target.rpartition(":")
        return ProxyRequest(_checked_host(host), _checked_port(port if colon else ""))
    try:
        url = urlsplit(target)
        host, url_port = url.hostname or "", url.port
    except ValueError as error:
        raise BadProxyRequest("the URL is malformed") from error
    if url.scheme != "http" or url.username or url.password:
        raise BadProxyRequest("only http:// URLs without a user are sent as they are; others begin with CONNECT")
    port = str(80 if url_port is None else url_port)
    authority = host if port == "80" else f"{host}:{port}"
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in (*_OWN_HEADERS, b"host")]
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    # One request for each connection: the host of a second one would not be checked.
    headers = [b"Host: " + authority.encode(), b"Connection: close", *kept]
    line = method + b" " + path.encode("latin-1") + b" HTTP/1.1"
    forwarded = b"\r\n".join([line, *headers, b"", b""])
    return ProxyRequest(_checked_host(host), _checked_port(port), forwarded, _body_length(kept))


def _body_length(lines: Sequence[bytes]) -> int:
    """What follows the body could be a request for a host that was not checked, so its end must be beyond doubt."""
    lengths = []
    for name, _, value in (line.partition(b":") for line in lines):
        if name.strip().lower() == b"transfer-encoding":
            raise BadProxyRequest("a body needs a Content-Length, not a Transfer-Encoding; or use https")
        if name.strip().lower() == b"content-length":
            lengths.append(value.strip())
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]{1,18}", each) for each in lengths):
        raise BadProxyRequest("the Content-Length is malformed")
    return int(lengths[0]) if lengths else 0


def _checked_host(host: str) -> str:
    if not _HOST.fullmatch(host):
        raise BadProxyRequest("the host is a name or an IPv4 address")
    return host.lower().rstrip(".")


def _checked_port(port: str) -> int:
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 1 << 16):
        raise BadProxyRequest("the port is a number from 1 to 65535")
    return int(port)
