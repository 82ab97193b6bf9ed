"""The object stores behind s3://, oci:// and obs://, as fsspec file systems with the operator's credentials."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import s3fs
from botocore.exceptions import BotoCoreError, ClientError

from config.fetching import FetchSettings
from workers.fetching.failures import NotThere, Refused, Trouble
from workers.fetching.listing import Found
from workers.fetching.uris import BUCKETS, place

# Not all exceptions of the client are OSErrors.
ERRORS = (OSError, BotoCoreError, ClientError)
CONNECT_SECONDS = 30
READ_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Service:
    """Connection parameters of one scheme's service."""

    endpoint: str
    region: str
    key: str
    secret: str
    buckets: tuple[str, ...]


def service(scheme: str, settings: FetchSettings) -> Service:
    """Raises Refused when the operator has not configured it."""
    names = ("endpoint", "region", "key", "secret", "buckets")
    found = Service(**{name: getattr(settings, f"{scheme}_{name}") for name in names})
    if scheme != "s3" and not found.endpoint:
        raise Refused(
            f"this node has no service for {scheme}://; have the administrator set "
            f"TRAINYARD_FETCH_{scheme.upper()}_ENDPOINT"
        )
    return found


def filesystem(scheme: str, settings: FetchSettings) -> Any:
    """An s3fs file system; only for child processes. Raises Refused."""
    if scheme not in BUCKETS:
        raise Refused(f"{scheme}:// is no object store")
    known = service(scheme, settings)
    # Only the settings apply: neither this machine's files nor its metadata service.
    os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    return s3fs.S3FileSystem(
        anon=not known.key,
        key=known.key or None,
        secret=known.secret or None,
        endpoint_url=known.endpoint or None,
        client_kwargs={"region_name": known.region} if known.region else {},
        config_kwargs={
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"max_attempts": 3, "mode": "standard"},
        },
        use_listings_cache=False,
        skip_instance_cache=True,
    )


def checked_path(location: str, settings: FetchSettings) -> str:
    """``bucket/key``. Raises Refused for a bucket that the operator does not list."""
    where = place(location)
    buckets = service(where.scheme, settings).buckets
    if buckets and where.container not in buckets:
        raise Refused(
            f"bucket {where.container} is none of those that jobs may use ({', '.join(buckets)}); use one of them, or "
            f"have the administrator add it to TRAINYARD_FETCH_{where.scheme.upper()}_BUCKETS"
        )
    return f"{where.container}/{where.path}"


class Objects:
    """A lister over an object store. Raises NotThere, Trouble."""

    def __init__(self, files: Any, scheme: str) -> None:
        self._files = files
        self._scheme = scheme

    def info(self, path: str) -> Found | None:
        try:
            return _found(self._files.info(path))
        except FileNotFoundError:
            return None
        except ERRORS as error:
            raise self.failure(error) from error

    def children(self, path: str) -> Iterable[Found]:
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

    def failure(self, error: Exception) -> NotThere | Trouble:
        """The failure for an error of the service."""
        if isinstance(error, PermissionError):
            setting = f"TRAINYARD_FETCH_{self._scheme.upper()}_KEY"
            return NotThere(f"the service does not let this node read it; its key is set by {setting}")
        if isinstance(error, FileNotFoundError):
            return NotThere("it does not exist")
        return Trouble(f"the service behind {self._scheme}:// failed: {error or type(error).__name__}"[:500])


def _found(info: Mapping[str, Any]) -> Found:
    if info["type"] == "directory":
        return Found(path=info["name"].rstrip("/"), kind="directory")
    tag = str(info.get("ETag") or info.get("LastModified") or "")
    return Found(path=info["name"], size=int(info["size"]), version=f"{tag} {info['size']}" if tag else "")
