"""The object stores behind s3://, oci:// and obs://, as fsspec file systems with the operator's credentials."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import s3fs
from botocore.exceptions import BotoCoreError, ClientError

from app.domain.errors import BadSpec
from app.domain.spec.credentials import ENDPOINT, KEY, KEY_ID, NO_ACCESS, REGION, SESSION, Access
from app.domain.spec.locations.hosts import refuse_private_host
from config.fetching import FetchSettings
from workers.fetching.addresses import GuardedSockets
from workers.fetching.failures import FetchFailed, FetchRefused, NotThere, Trouble
from workers.fetching.listing import ListedPath
from workers.fetching.outbound import may_leave, outbound_proxy
from workers.fetching.uris import BUCKETS, place

# Not all exceptions of the client are OSErrors.
ERRORS = (OSError, BotoCoreError, ClientError)
OWN = "the credentials that the job has for it"
DENIED = frozenset({"401", "403", "InvalidToken", "InvalidClientTokenId", "UnrecognizedClientException"})
OTHER_REGIONS = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"})
_PRIVATE = f"{ENDPOINT} leads to a private address; have the administrator list its host in TRAINYARD_FETCH_ALLOW"
_AMAZON = "s3.amazonaws.com"  # the end of the name of each of its endpoints
# Buckets that the client makes a part of the host, also with addresses that have buckets in the path.
_IN_HOST = ("--x-s3", "--xa-s3", "--op-s3")
CONNECT_SECONDS = 30
READ_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class StorageService:
    """Connection parameters of one scheme's service."""

    endpoint: str
    region: str
    key: str
    secret: str
    buckets: tuple[str, ...]
    session: str = ""
    gate: GuardedSockets | None = None  # of a service that a document names; the operator's may be anywhere
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)  # scheme → URL with a login


def service(scheme: str, settings: FetchSettings, access: Access = NO_ACCESS) -> StorageService:
    """The operator's service unless ``access`` names one; the operator's keys are sent to the operator's service only.

    Raises FetchRefused when no service is configured, or the document names a private address.
    """
    names = ("endpoint", "region", "key", "secret", "buckets")
    found = StorageService(**{name: getattr(settings, f"{scheme}_{name}") for name in names})
    if access.region:
        found = replace(found, region=access.region, endpoint=_in_region(found, access.region))
    if access.endpoint:
        found = replace(
            found,
            endpoint=access.endpoint,
            region=access.region,
            key="",
            secret="",
            gate=_gate(access.endpoint, settings.allow),
        )
    if access.credentials:
        key, secret, session = (access.credentials.get(name, "") for name in (KEY_ID, KEY, SESSION))
        found = replace(found, key=key, secret=secret, session=session)
    if scheme != "s3" and not found.endpoint:
        raise FetchRefused(
            f"this node knows no service for {scheme}://; name it by {ENDPOINT}, or have the administrator set "
            f"TRAINYARD_FETCH_{scheme.upper()}_ENDPOINT"
        )
    return _proxied(found, settings)


def _proxied(found: StorageService, settings: FetchSettings) -> StorageService:
    """With the proxy that leads to it, if there is one. Raises FetchRefused for a host that it may not be asked for."""
    proxy, host = outbound_proxy(settings), urlsplit(found.endpoint).hostname or _AMAZON
    if proxy is None or not proxy.is_for(host):
        return found
    if found.gate is not None:
        if not may_leave(host, found.gate.port, settings.allow):
            raise FetchRefused(_PRIVATE)
        found.gate.is_proxied = True
    return replace(found, proxies=dict.fromkeys(("http", "https"), proxy.url))


def _in_region(known: StorageService, region: str) -> str:
    """The operator's service in another region, where its host has a label that names the region."""
    parts = urlsplit(known.endpoint)
    if not known.region or f".{known.region}." not in parts.netloc:
        return known.endpoint
    return parts._replace(netloc=parts.netloc.replace(f".{known.region}.", f".{region}.")).geturl()


def _gate(endpoint: str, allow: tuple[str, ...]) -> GuardedSockets:
    """Raises FetchRefused."""
    try:
        refuse_private_host(endpoint, allow, field=ENDPOINT)
    except BadSpec as error:
        raise FetchRefused(f"{ENDPOINT}: {error.message}") from error
    gate, parts = GuardedSockets(allow), urlsplit(endpoint)
    gate.host, gate.port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    return gate


def filesystem(scheme: str, known: StorageService) -> s3fs.S3FileSystem:
    """An s3fs file system; only for child processes. Raises FetchRefused."""
    if scheme not in BUCKETS:
        raise FetchRefused(f"{scheme}:// is no object store")
    # Only what the settings say: neither this machine's files nor its metadata service.
    os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    return s3fs.S3FileSystem(
        anon=not known.key,
        key=known.key or None,
        secret=known.secret or None,
        token=known.session or None,
        endpoint_url=known.endpoint or None,
        client_kwargs={"region_name": known.region} if known.region else {},
        config_kwargs={
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"max_attempts": 3, "mode": "standard"},
            "proxies": dict(known.proxies),  # also none: this machine's variables are not looked at
            **({} if known.gate is None else _guarded(known.gate)),
        },
        use_listings_cache=False,
        skip_instance_cache=True,
    )


def _guarded(gate: GuardedSockets) -> dict[str, Any]:
    """The client connects to the host that was looked up, and no bucket makes another of it."""
    return {"connector_args": {"socket_factory": gate.socket}, "s3": {"addressing_style": "path"}}


def checked_path(location: str, known: StorageService) -> str:
    """``bucket/key``. Raises FetchRefused for a bucket that the operator does not list, or that names another host."""
    where = place(location)
    buckets = known.buckets
    if known.gate is not None and where.container.endswith(_IN_HOST):
        raise FetchRefused(
            f"bucket {where.container}: directory buckets and buckets of Outposts are read from the operator's service "
            f"alone; leave {ENDPOINT} out, or name a general purpose bucket"
        )
    if buckets and where.container not in buckets:
        raise FetchRefused(
            f"bucket {where.container} is none of those that jobs may use ({', '.join(buckets)}); use one of them, or "
            f"have the administrator add it to TRAINYARD_FETCH_{where.scheme.upper()}_BUCKETS"
        )
    path = "" if where.path.rstrip("/") == "." else where.path  # the whole bucket
    return f"{where.container}/{path}"


class Objects:
    """A lister over an object store. Raises NotThere, FetchRefused, Trouble."""

    def __init__(
        self, files: s3fs.S3FileSystem, scheme: str, known: StorageService, access: Access = NO_ACCESS
    ) -> None:
        self._files = files
        self._scheme = scheme
        self._known = known
        self._has_own = bool(access.credentials)

    def info(self, path: str) -> ListedPath | None:
        try:
            return _found(self._files.info(path))
        except FileNotFoundError:
            return None
        except ERRORS as error:
            raise self.failure(error) from error

    def children(self, path: str) -> Iterable[ListedPath]:
        try:
            listed = self._files.ls(path, detail=True, refresh=True)
        except FileNotFoundError:
            return
        except ERRORS as error:
            raise self.failure(error) from error
        for each in listed:
            # Consoles represent an empty folder by a placeholder object.
            if each["name"].rstrip("/") != path.rstrip("/") and not each["name"].endswith("/"):
                yield _found(each)

    def failure(self, error: Exception) -> FetchFailed:
        """The failure for an error of the service."""
        if self._known.gate is not None and self._known.gate.refused:
            return FetchRefused(_PRIVATE)
        if _code(error) in OTHER_REGIONS:
            setting = f"TRAINYARD_FETCH_{self._scheme.upper()}_REGION"
            return FetchRefused(f"the service is in another region: {error}; say it by {REGION}, or {setting}"[:500])
        if self._has_own and is_denied(error):
            return NotThere(f"the service does not accept {OWN}; correct {KEY_ID} and {KEY}, or let them read it")
        if isinstance(error, PermissionError):
            setting = f"TRAINYARD_FETCH_{self._scheme.upper()}_KEY"
            return NotThere(f"the service does not let this node read it; its key is set by {setting}")
        if isinstance(error, FileNotFoundError):
            return NotThere("it does not exist")
        return Trouble(f"the service behind {self._scheme}:// failed: {error or type(error).__name__}"[:500])


def is_denied(error: BaseException) -> bool:
    """Whether a service does not let these credentials in, or does not know them; not all such codes have a class."""
    return isinstance(error, PermissionError) or _code(error) in DENIED


def _code(error: BaseException) -> str:
    """The error code of the service; empty if its client reports none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ClientError):
            return str(cause.response.get("Error", {}).get("Code", ""))
        cause = cause.__cause__
    return ""


def _found(info: Mapping[str, Any]) -> ListedPath:
    if info["type"] == "directory":
        return ListedPath(path=info["name"].rstrip("/"), kind="directory")
    tag = str(info.get("ETag") or info.get("LastModified") or "")
    return ListedPath(path=info["name"], size=int(info["size"]), version=f"{tag} {info['size']}" if tag else "")
