"""Parses URIs of data and models, and formats them without their secrets."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from workers.fetching.failures import FetchRefused

WEB = frozenset({"http", "https"})
BUCKETS = frozenset({"s3", "oci", "obs"})
SHARES = frozenset({"scaidrive", "scaiatlas"})
# may be configured as directories of this installation
VOLUMES = {"pvc": "volume claim", "oci": "bucket", "obs": "bucket"}
SCHEMES = WEB | BUCKETS | SHARES | {"file", "pvc", "ipfs", "hf"}

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@'\"]+@")
_QUERY = re.compile(r"((?:https?|scaidrive|scaiatlas|ipfs)://[^\s?#'\"<>]*)[?#][^\s'\"<>]*", re.IGNORECASE)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_CID = re.compile(r"[A-Za-z0-9]{10,128}")


@dataclass(frozen=True, kw_only=True)
class ParsedUri:
    """``container`` is the bucket, claim, share, host or content id; ``path`` is relative to it, without a leading
    slash.
    """

    scheme: str
    container: str
    path: str


@dataclass(frozen=True, kw_only=True)
class HubPlace:
    """``path`` is empty for the whole repository; it may be a file, a directory or a glob."""

    kind: str  # model or dataset
    repository: str
    revision: str | None
    path: str


def scheme_of(location: str) -> str:
    """``file`` also for a bare path."""
    found = _SCHEME.match(location)
    return found[1].lower() if found is not None else "file"


def shown(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Without user names and passwords, queries (they may be signatures), and the given secrets."""
    for secret in secrets:
        if len(secret) > 3:
            text = text.replace(secret, "***")
    return _QUERY.sub(r"\1?…", _CREDENTIALS.sub("…@", text))


def place(location: str) -> ParsedUri:
    """``scheme://container/path``. Raises FetchRefused for another form."""
    scheme, separator, rest = location.partition("://")
    container, _, path = rest.partition("/")
    if not separator or not container:
        raise FetchRefused(f"the form is {scheme}://name/path")
    return ParsedUri(scheme=scheme.lower(), container=container, path=path)


def volume(location: str) -> ParsedUri:
    """A path in a volume claim or in a bucket that is a directory."""
    found = place(location)
    form = _CLAIM if found.scheme == "pvc" else _BUCKET
    if not form.fullmatch(found.container) or ".." in found.container:
        noun = VOLUMES[found.scheme]
        raise FetchRefused(
            f"{found.container} is no name of a {noun}; the form is {found.scheme}://{noun.split()[-1]}/path"
        )
    return found


def content(location: str) -> ParsedUri:
    """An IPFS content id and a path below it."""
    found = place(location)
    path = found.path.partition("?")[0].partition("#")[0]
    if not _CID.fullmatch(found.container):
        raise FetchRefused(f"{found.container[:80]} is no content id; the form is ipfs://cid/path")
    return ParsedUri(scheme="ipfs", container=found.container, path=path)


def hub_place(location: str) -> HubPlace:
    """``hf://datasets/owner/name[@revision][/path]`` or, for models, ``hf://owner/name[@revision][/path]``."""
    rest = location.partition("://")[2]
    is_dataset = rest.startswith("datasets/")
    head, marker, tail = rest.removeprefix("datasets/").partition("@")
    revision: str | None = None
    if marker and head.count("/") == 1:
        revision, path = _revision(tail)
    else:
        head, path = _two_parts(rest.removeprefix("datasets/"))
    names = head.split("/")
    if len(names) != 2 or not all(_HUB_NAME.fullmatch(name) for name in names):
        raise FetchRefused(
            "the form is hf://datasets/owner/name[@revision][/path], or hf://owner/name[@revision] for models"
        )
    return HubPlace(kind="dataset" if is_dataset else "model", repository=head, revision=revision, path=path.strip("/"))


def authority(url: str) -> tuple[str, ...]:
    """``host:port`` of an HTTP URL, alone in a tuple; empty without a host."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme.lower() == "https" else 80)
    return (f"{parts.hostname}:{port}",) if parts.hostname else ()


def base_name(location: str) -> str:
    """The last part of a URI's path; ``data`` when there is none."""
    path = urlsplit(location).path if scheme_of(location) in WEB else location.partition("://")[2]
    return unquote(path).rstrip("/").rpartition("/")[2] or "data"


def _revision(tail: str) -> tuple[str, str]:
    """(revision, path); the hub's own references, such as refs/pr/1, contain slashes."""
    parts = tail.split("/")
    length = 3 if parts[0] == "refs" else 1
    return unquote("/".join(parts[:length])), "/".join(parts[length:])


def _two_parts(text: str) -> tuple[str, str]:
    parts = text.split("/", 2)
    return "/".join(parts[:2]), parts[2] if len(parts) > 2 else ""
