"""The operator's HTTP proxy on the way to public hosts: what goes through it, and how it is asked for a connection.

It takes CONNECT as RFC 9110, section 9.3.6, says, with Basic authentication (RFC 7617).
"""

import base64
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from app.domain.spec.locations.hosts import address_of, is_allowed, is_public

SETTING = "TRAINYARD_FETCH_PROXY"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_INNER = ("localhost", "local", "internal", "home.arpa")  # last labels of names that are never public
PROXY_HEAD_BYTES = 16384  # the longest answer to CONNECT, without what follows it


@dataclass(frozen=True, kw_only=True)
class OutboundProxy:
    """``direct``: hosts that are reached without it: names, `.domain` for all names below one, and networks."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    direct: tuple[str, ...] = ()

    def is_for(self, host: str) -> bool:
        """Whether a connection to this host goes through it."""
        name = host.lower().rstrip(".")
        return not any(_is_listed(name, entry.lower()) for entry in self.direct)

    @property
    def url(self) -> str:
        """As programs take it, with the login."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user else ""
        return f"http://{login}{_bracketed(self.host)}:{self.port}"

    def connect_request(self, host: str, port: int) -> bytes:
        """Raises UnicodeEncodeError for a name that is not in ASCII."""
        authority = f"{_bracketed(host)}:{port}"
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if self.user:
            login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            lines.append(f"Proxy-Authorization: Basic {login}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")


_WAYS_OUT = {
    "403": ": it refuses this host; ask its operator to allow it, or list the host in TRAINYARD_FETCH_NO_PROXY",
    "407": f": it wants a login; set {SETTING}_USER and {SETTING}_SECRET",
}


def refusal(head: bytes) -> str:
    """Why a proxy has not connected, by its answer; empty if it has."""
    found = _STATUS.match(head)
    if found is None:
        return f"the proxy of {SETTING} does not answer as an HTTP proxy; check its host and port"
    code = found[1].decode()
    return "" if code.startswith("2") else f"the proxy of {SETTING} answers {code}{_WAYS_OUT.get(code, '')}"


def may_be_asked(host: str, addresses: Sequence[str], allow: tuple[str, ...]) -> bool:
    """Whether the proxy may be asked for a host that a job names, which leads to these addresses here.

    Not if one is private and the operator does not allow it. A name without an address here, as in networks whose
    names the proxy alone resolves, must at least be none of those that are never public.
    """
    name = host.lower().rstrip(".")
    if addresses:
        found = [address_of(each) for each in addresses]
        return all(each is not None and (is_public(each) or is_allowed(name, each, allow)) for each in found)
    if is_allowed(name, None, allow):
        return True
    is_inner = "." not in name or any(name.endswith(f".{label}") for label in _INNER)
    return address_of(name) is None and not is_inner


def _is_listed(name: str, entry: str) -> bool:
    if entry.startswith("."):
        return name.endswith(entry)
    address = address_of(name)
    if address is None or name == entry:
        return name == entry
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
