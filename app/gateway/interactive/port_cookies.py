"""Cookies between browsers and ports of jobs: ours never reach a job, and a job sets none of ours or for others."""

import re
from collections.abc import Iterable

from app.domain.port_addresses import PortAddress

NAME = "trainyard-port"
MOST_TOKENS = 8  # of one request that are tried: pages of other hosts may have set cookies of this name
_OURS = "trainyard-"
_PREFIXES = ("__host-", "__secure-", "__http-", "__host-http-")  # that browsers give a meaning
_ATTRIBUTES = ("expires", "max-age", "secure", "httponly", "samesite", "partitioned", "priority")
_COOKIE = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,2048}")


def name_at(address: PortAddress) -> str:
    """With TLS a name that browsers accept from this origin alone (RFC 6265bis, cookie name prefixes)."""
    if not address.is_secure:
        return NAME
    return f"__Secure-{NAME}" if address.prefix else f"__Host-{NAME}"


def tokens(headers: Iterable[str], address: PortAddress) -> list[str]:
    """What may be tokens of this port in the Cookie headers of a request."""
    wanted = name_at(address)
    found = [value for name, value in _pairs(headers) if name == wanted and _TOKEN.fullmatch(value)]
    return found[:MOST_TOKENS]


def without_ours(headers: Iterable[str]) -> str:
    """The Cookie header that the job gets; empty if nothing is left."""
    return "; ".join(
        f"{name}={value}" if name else value for name, value in _pairs(headers) if not _is_ours(name or value)
    )


def setting(address: PortAddress, token: str, *, seconds: int) -> str:
    """The Set-Cookie header that keeps a token of the port."""
    path = f"{address.prefix}/"
    secure = "; Secure" if address.is_secure else ""
    return f"{name_at(address)}={token}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"


def of_job(header: str, address: PortAddress, *, keeps_prefix: bool) -> str | None:
    """A Set-Cookie header of the job as the browser gets it: for this host and below this path; None: it is dropped."""
    pair, *rest = (part.strip() for part in header.split(";"))
    name, equals, _ = pair.partition("=")
    # Browsers send a cookie without a name as its value alone, which may look like one of ours.
    if not equals or not _COOKIE.fullmatch(name.strip()) or _is_ours(name.strip()):
        return None
    if address.prefix and name.strip().lower().startswith("__host-"):
        return None  # demands the path /, which is that of all ports here
    kept, path = [pair], ""
    for attribute in rest:
        key, _, value = attribute.partition("=")
        if key.strip().lower() == "path":
            path = value.strip()
        elif key.strip().lower() in _ATTRIBUTES:
            kept.append(attribute)
    if path.startswith("/"):
        kept.append(f"Path={_below(path, address, keeps_prefix=keeps_prefix)}")
    return "; ".join(kept)


def _below(path: str, address: PortAddress, *, keeps_prefix: bool) -> str:
    if not address.prefix:
        return path
    if keeps_prefix and (path == address.prefix or path.startswith(f"{address.prefix}/")):
        return path
    return f"{address.prefix}/" if keeps_prefix else f"{address.prefix}{path}"


def _pairs(headers: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Names and values; what has no ``=`` has no name."""
    for header in headers:
        for part in header.split(";"):
            name, equals, value = part.strip().partition("=")
            if equals:
                yield name.strip(), value.strip()
            elif name:
                yield "", name


def _is_ours(name: str) -> bool:
    lowered = name.lower()
    for prefix in sorted(_PREFIXES, key=len, reverse=True):
        lowered = lowered.removeprefix(prefix)
    return lowered.startswith(_OURS)
