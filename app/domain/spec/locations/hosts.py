"""SSRF guard: rejects URIs with loopback, private, link-local and unspecified addresses."""

import ipaddress
import re
import socket
import unicodedata
from urllib.parse import unquote

from app.domain.errors import BadSpec

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_AUTHORITY = re.compile(r"^[^:]+://([^/?#]*)")
# URL parsers disagree on spaces and backslashes: one may open what another refuses.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
_NOT_IN_HOSTS = re.compile(r"[\x00-\x20\x7f\\/?#@]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII | re.IGNORECASE)
LONGEST_NAME = 253
_PORT = re.compile(r":([0-9]{1,5})?$")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# The range that registries assign; Python's `is_global` includes site-local and wrapped addresses, too.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
# Not public, though Python (some versions or all) calls them global: metadata services of clouds (192.0.0.192 serves
# credentials on Oracle, 168.63.129.16 configuration on Azure), and documentation ranges.
_NOT_FOR_ALL = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "168.63.129.16/32", "3fff::/20")))


def refuse_private_host(
    uri: str, allow: tuple[str, ...], *, field: str, setting: str = "TRAINYARD_FETCH_ALLOW"
) -> None:
    """Refuse a URI whose host is a literal loopback, link-local or otherwise private address.

    ``setting`` is the name of the setting that ``allow`` comes from.
    """
    host = _host(uri, field=field)
    address = address_of(host)
    if is_allowed(host, address, allow):
        return
    if host == "localhost" or host.endswith(".localhost") or (address is not None and not is_public(address)):
        raise BadSpec(
            "the URI names a loopback, link-local or private address; use a public host, or have the administrator "
            f"list this one in {setting}",
            field=field,
        )


def check_host(uri: str, *, field: str) -> None:
    """Refuse a host that is neither a valid name nor an address in canonical form.

    Names follow RFC 1123, plus underscores, which container networks use. A host that ends in a number is an address
    to some URL parsers and a name to others (https://url.spec.whatwg.org/#ends-in-a-number-checker).
    """
    authority = authority_of(uri)
    host = authority.partition(":")[0]
    if authority.startswith("["):
        if not _is_address(ipaddress.IPv6Address, authority[1:].partition("]")[0]):
            raise BadSpec("what stands in [ ] is an IPv6 address without a zone, such as [2001:db8::1]", field=field)
    elif _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        if not _is_address(ipaddress.IPv4Address, host):
            raise BadSpec(
                "a host that ends in a number is an IPv4 address; write it as four decimal numbers without "
                "leading zeros, such as 192.0.2.1",
                field=field,
            )
    elif len(host) > LONGEST_NAME or not all(map(_is_label, host.removesuffix(".").split("."))):
        raise BadSpec(
            f"a host name has at most {LONGEST_NAME} characters, and between its dots 1 to 63 letters, digits, dashes "
            "and underscores, none with a dash at its ends; write it as it is looked up, not percent-encoded",
            field=field,
        )


def authority_of(uri: str) -> str:
    """The part between ``://`` and the path."""
    match = _AUTHORITY.match(uri)
    return match[1] if match is not None else ""


def address_of(host: str) -> Address | None:
    """The address that a host denotes, in any notation that C libraries accept; None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # 127.1, 2130706433, 0x7f.1 and 0177.0.0.1 are addresses to every C library.
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):  # ValueError: text that C can't represent
        return None


def holder_of(address: str) -> str:
    """Identity of the holder of an address: for IPv6 the /64 network, the smallest that is assigned to a holder."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))


def is_public(address: Address) -> bool:
    """Whether this is a public internet address; wrapped addresses are unwrapped first."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in part for part in _NOT_FOR_ALL)


def is_allowed(host: str, address: Address | None, allow: tuple[str, ...]) -> bool:
    """Whether the operator allows this host, or a network with its address."""
    return any(host == entry.lower() or _in_network(address, entry) for entry in allow)


def _is_address(kind: type[Address], text: str) -> bool:
    try:
        return "%" not in text and kind(text) is not None
    except ValueError:
        return False


def _is_label(label: str) -> bool:
    if not _LABEL.fullmatch(label):
        return False
    if not label.lower().startswith("xn--"):
        return True
    try:
        return bool(label[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return False


def _host(uri: str, *, field: str) -> str:
    if _AUTHORITY.match(uri) is None or _AMBIGUOUS.search(uri):
        raise BadSpec("the URI is malformed; the form is scheme://host/path without spaces", field=field)
    host = unicodedata.normalize("NFKC", authority_of(uri).rpartition("@")[2]).lower()
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
    else:
        host, colon, port = host.partition(":")
        rest = colon + port
    _check_port(rest, field=field)
    host = unquote(host).rstrip(".")
    if not host or _NOT_IN_HOSTS.search(host):
        raise BadSpec("the URI names no host; the form is scheme://host/path", field=field)
    return host


def _check_port(rest: str, *, field: str) -> None:
    match = _PORT.fullmatch(rest)
    if rest and (match is None or int(match[1] or 80) not in range(1, 65536)):
        raise BadSpec("the port of the URI is a number from 1 to 65535", field=field)


def _in_network(address: Address | None, entry: str) -> bool:
    try:
        return address is not None and address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
