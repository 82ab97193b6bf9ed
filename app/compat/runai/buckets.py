"""S3 volumes of a training that name a service or keys → data sources of the native document, which nodes fetch.

Others are directories of the operator's, as in `volumes`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from app.compat.secrets import secret_values
from app.domain.errors import BadSpec
from app.domain.spec.credentials import CREDENTIALS, ENDPOINT, KEY, KEY_ID, OPTIONS
from app.http.context import backend
from app.schemas.spec.field_verdicts import warning
from app.services.access.secret_files import Reference

# Key of the native credentials → the field that names the secret's key, and the usual one of Run:ai's secrets.
_KEYS = {KEY_ID: ("secretKeyOfAccessKeyId", "AccessKeyId"), KEY: ("secretKeyOfSecretKey", "SecretKey")}


class StorageBucket(NamedTuple):
    """``source``: its index in `data_config.sources`; ``login``: key of the credentials → the key of a secret."""

    source: int
    field: str
    name: str
    url: str
    login: Mapping[str, Reference]


def bucket_of(volume: Mapping[str, Any], source: int, field: str) -> StorageBucket | None:
    """None for a directory of the operator's."""
    secret, url = volume.get("accessKeySecret"), str(volume.get("url") or "")
    if not volume.get("bucket") or not (secret or url):
        return None
    at = f"{field}.accessKeySecret"
    keys = {part: Reference(secret, volume.get(key) or usual, at) for part, (key, usual) in _KEYS.items() if secret}
    return StorageBucket(source, field, volume["bucket"], url, keys)


def keys_without_secret(storage: Mapping[str, Any]) -> Iterator[str]:
    """A warning for each name of a key of a secret that no field names."""
    for number, each in enumerate(storage.get("s3") or []):
        for name, _ in _KEYS.values():
            if each.get(name) and not (each.get("accessKeySecret") or each.get("exclude")):
                yield warning(f"spec.storage.s3.{each.get('name', number)}.{name}", "there is no accessKeySecret")


def open_buckets(
    document: dict[str, Any],
    buckets: Sequence[StorageBucket],
    project: str,
    may_read: Callable[[str], bool],
    warnings: list[str],
) -> None:
    """Turn the directories of buckets into places that nodes fetch, with the keys of the project's secrets.

    Where a secret is missing, the directory is read, with a warning. Raises BadSpec where jobs may not read that.
    """
    for bucket in buckets:
        source = document["data_config"]["sources"][bucket.source]
        try:
            found = _credentials(project, bucket)
        except BadSpec as error:
            if not may_read(source["path"]):
                raise
            why = f"{error.message} (without it the directory {source['path']} below a storage root is read)"
            warnings.append(warning(f"{bucket.field}.accessKeySecret", why))
            continue
        source["path"] = f"s3://{bucket.name}/."
        source |= {CREDENTIALS: found} if found else {}
        source |= {OPTIONS: {ENDPOINT: bucket.url}} if bucket.url else {}


def _credentials(project: str, bucket: StorageBucket) -> dict[str, str]:
    """Raises BadSpec."""
    if bucket.login and backend().settings.security.secrets_dir is None:
        raise BadSpec(
            "secrets are not configured; ask the administrator to set TRAINYARD_SECURITY_SECRETS_DIR",
            field=f"{bucket.field}.accessKeySecret",
        )
    return secret_values(project, bucket.login)
