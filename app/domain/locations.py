"""Where models, data and scripts may lie: local paths under the roots, and which URIs are refused at once."""

import ipaddress
import os.path
import re
import socket
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from app.domain.errors import BadSpec, NotSupportedYet

# Documented schemes that no fetcher exists for yet.
REMOTE_SCHEMES = ("http", "https", "s3", "hf", "oci", "obs", "pvc", "ipfs", "scaidrive", "scaiatlas")

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")
_AUTHORITY = re.compile(r"^[^:]+://([^/?#]*)")
_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?$", re.ASCII)
# Spaces and backslashes are read differently by different URL parsers: what one refuses another would open.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
_NOT_IN_PATHS = re.compile(r"[\x00-\x1f\x7f\\]")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, kw_only=True)
class ReadingRules:
    """What jobs may read. ``real_path`` follows links where the caller can see the disk."""

    roots: tuple[str, ...]
    data_dir: str = ""  # the platform's own directory: only its ``files`` may be read
    storage_dir: str = ""  # where the storage keeps every project's results; empty: in ``files``, or not on this disk
    fetch_allow: tuple[str, ...] = ()
    real_path: Callable[[str], str] = os.path.normpath


def check_source(location: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a data source or script that this version cannot read, or that nobody may read."""
    path = local_path(location, field=field)
    if path is None:
        _refuse_remote(location, rules, field=field)
    else:
        check_path(path, rules, field=field)


def check_model(model_id: str, rules: ReadingRules, *, field: str) -> None:
    """The same for a base model, which may also be named by its id on a model hub."""
    if not is_hub_id(model_id):
        check_source(model_id, rules, field=field)


def is_hub_id(model_id: str) -> bool:
    """Whether it has the form ``name`` or ``owner/name``; a relative directory may have that form too."""
    return _HUB_ID.match(model_id) is not None and ".." not in model_id


def local_path(location: str, *, field: str) -> str | None:
    """The path that a bare path or a ``file://`` URI names; None for any other URI."""
    scheme = _SCHEME.match(location)
    if scheme is None:
        return location
    if scheme[1].lower() != "file":
        return None
    rest = location[len("file:") :]
    for prefix in ("///", "//localhost/"):
        if rest.startswith(prefix):
            return "/" + unquote(rest[len(prefix) :])
    raise BadSpec("a file URI names an absolute path on this cluster: file:///directory/file", field=field)


def candidates(path: str, rules: ReadingRules) -> Iterator[str]:
    """The absolute paths a local path may mean: itself, or below each root when it is relative."""
    if path.startswith("/"):
        yield rules.real_path(path)
    else:
        yield from (rules.real_path(os.path.join(root, path)) for root in rules.roots)  # noqa: PTH118 - text only


def check_path(path: str, rules: ReadingRules, *, field: str) -> None:
    """Refuse a path outside every root. Whether something lies there is looked up where the job runs."""
    if not path or _NOT_IN_PATHS.search(path) or path.startswith("~"):
        raise BadSpec(
            "a path is absolute, or relative to one of the storage roots, without backslashes; ~ is not expanded",
            field=field,
        )
    if not any(readable(candidate, rules) for candidate in candidates(path, rules)):
        raise BadSpec(
            "the path lies outside every directory that jobs may read; move the files below one of them, "
            "or have the administrator add the directory to TRAINYARD_STORAGE_ROOTS",
            field=field,
        )


def readable(real_path: str, rules: ReadingRules) -> bool:
    """Whether jobs may read this absolute path, links already followed."""
    roots = [rules.real_path(root) for root in rules.roots]
    if not any(_within(real_path, root) for root in roots):
        return False
    results = _results(rules)
    if any(_within(each, real_path) for each in results):
        return False  # a directory that holds every project's results
    if not rules.data_dir:
        return True
    own = rules.real_path(rules.data_dir)
    if _within(own, real_path):
        return False  # a directory that holds keys
    readable_within = [own + "/files", *(each for each in results if _within(each, own))]
    return not _within(real_path, own) or any(_within(real_path, each) for each in readable_within)


def job_of_path(real_path: str, rules: ReadingRules) -> str | None:
    """The id of the job in whose stored files the path lies, so that the caller can check the project."""
    for results in _results(rules):
        if real_path.startswith(results + "/"):
            return real_path[len(results) + 1 :].split("/", 1)[0]
    return None


def _results(rules: ReadingRules) -> list[str]:
    """The directories in which each job has one with its results."""
    stores = [rules.real_path(rules.data_dir) + "/files"] if rules.data_dir else []
    if rules.storage_dir:
        stores.append(rules.real_path(rules.storage_dir))
    return [f"{store}/jobs" for store in stores]


def refuse_private_host(uri: str, allow: tuple[str, ...], *, field: str) -> None:
    """Refuse a URI whose host is written as a loopback, link-local or otherwise private address."""
    host = _host(uri, field=field)
    address = _address(host)
    if _allowed(host, address, allow):
        return
    if host == "localhost" or host.endswith(".localhost") or (address is not None and not _is_public(address)):
        raise BadSpec(
            "the URI names a loopback, link-local or private address; use a public host, or have the administrator "
            "list this one in TRAINYARD_FETCH_ALLOW",
            field=field,
        )


def _refuse_remote(location: str, rules: ReadingRules, *, field: str) -> None:
    scheme = location.split(":", 1)[0].lower()
    if scheme not in REMOTE_SCHEMES:
        known = ", ".join(f"{name}://" for name in ("file", *REMOTE_SCHEMES))
        raise BadSpec(f"unknown scheme {scheme[:32]!r}; known: a bare path, {known}", field=field)
    refuse_private_host(location, rules.fetch_allow, field=field)
    raise NotSupportedYet(
        f"{scheme}:// is not supported by this version; give a path or a file:// URI below one of the storage roots",
        field=field,
    )


def _host(uri: str, *, field: str) -> str:
    authority = _AUTHORITY.match(uri)
    if authority is None or _AMBIGUOUS.search(uri):
        raise BadSpec("the URI is malformed; the form is scheme://host/path without spaces", field=field)
    host = unicodedata.normalize("NFKC", authority[1].rpartition("@")[2]).lower()
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    host = unquote(host).rstrip(".")
    if not host:
        raise BadSpec("the URI names no host; the form is scheme://host/path", field=field)
    return host


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        # 127.1, 2130706433, 0x7f.1 and 0177.0.0.1 are addresses to every C library.
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
    return address.is_global and not address.is_multicast


def _allowed(host: str, address: Address | None, allow: tuple[str, ...]) -> bool:
    return any(host == entry.lower() or _in_network(address, entry) for entry in allow)


def _in_network(address: Address | None, entry: str) -> bool:
    try:
        return address is not None and address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
