"""Secret and parameters of a storage spec → credentials and storage options of a native location."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from app.compat.ome.places import KEYS, OF_DATA, OF_DATASETS, namespace_of, place
from app.domain.errors import BadSpec
from app.domain.spec import credentials as native
from app.domain.spec.credentials import CREDENTIALS, OPTIONS, REGION
from app.domain.spec.model import Located
from app.http.context import backend
from app.schemas.spec.field_verdicts import warning
from app.services.access.secret_files import values_of

_AUTH = ("auth_type", "auth")  # authentication of OME's agents in Oracle's cloud
# Native key → files of a secret that may hold it, also under the names of AWS tools and KServe.
_S3_FILES = {
    native.KEY_ID: (native.KEY_ID, "AWS_ACCESS_KEY_ID", "awsAccessKeyID"),
    native.KEY: (native.KEY, "AWS_SECRET_ACCESS_KEY", "awsSecretAccessKey"),
    native.SESSION: (native.SESSION, "AWS_SESSION_TOKEN"),
    native.ENDPOINT: (native.ENDPOINT, "AWS_ENDPOINT_URL"),
    REGION: (REGION, "AWS_REGION", "AWS_DEFAULT_REGION"),
}
_HOST, _API_KEY = "https-host", "private_key"
_FILES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "s3": _S3_FILES,
    "obs": _S3_FILES,
    "oci": {**_S3_FILES, _API_KEY: (_API_KEY,)},
    "http": {**{key: (key,) for key in native.KEYS["http"]}, _HOST: (_HOST,)},
    "hf": {native.TOKEN: (native.TOKEN, "HF_TOKEN")},
}


class StorageAccess(NamedTuple):
    """Credentials and options of a native location, and a warning for each field without effect."""

    part: Mapping[str, Any]
    warnings: list[str]


def check(storage: Mapping[str, Any], field: str) -> list[str]:
    """The warnings of a storage spec outside of a job. Raises BadSpec for parameters that no job can use."""
    kind, options = _kind(storage, field), _options(storage, field)
    key = _key(storage, field)
    if kind not in native.KEYS:
        return _without_effect(storage, field)
    _check({OPTIONS: options}, storage, kind, field, key or KEYS[0])
    return []  # the secret is read only for a job


def opened(namespace: str, storage: Mapping[str, Any], field: str) -> StorageAccess:
    """Read the secret of a storage spec. Raises BadSpec with the field of the manifest."""
    if not storage.get("storageUri"):
        return StorageAccess({}, _without_effect(storage, field))
    kind, options = _kind(storage, field), _options(storage, field)
    found: dict[str, Any] = {}
    key = _key(storage, field)
    if key is not None and kind in native.KEYS:
        found[CREDENTIALS] = _secret(namespace, storage, kind, field=f"{field}.{key}")
    if kind in native.OPTION_KEYS and (space := namespace_of(storage["storageUri"])):
        has_region = REGION in {**options, **found.get(CREDENTIALS, {})}
        options = {native.NAMESPACE: space, **options} if has_region else options
    if options:
        found[OPTIONS] = options
    if kind in native.KEYS:
        _check(found, storage, kind, field, key or KEYS[0])
    if kind not in native.KEYS or _is_directory(kind, found):
        return StorageAccess({}, _without_effect(storage, field))
    return StorageAccess(found, [])


def _check(found: dict[str, Any], storage: Mapping[str, Any], kind: str, field: str, key: str) -> None:
    """The native rules; errors name the field of the manifest."""
    try:
        native.check_access(Located.from_json(found), place(storage["storageUri"]), kind, _allow(), at=field)
    except BadSpec as error:
        error.field = (error.field or field).replace(f"{field}.{OPTIONS}", f"{field}.parameters")
        if error.field.startswith(f"{field}.{CREDENTIALS}"):
            error.field, error.message = f"{field}.{key}", f"the secret {storage[key]}: {error.message}"
        raise


def _key(storage: Mapping[str, Any], field: str) -> str | None:
    """The field that names the secret. Raises BadSpec where both do, with different names."""
    given = [key for key in KEYS if storage.get(key)]
    if len({storage[key] for key in given}) > 1:
        raise BadSpec(
            f"is {storage[given[1]]}, but {given[0]} is {storage[given[0]]}; keep one of them",
            field=f"{field}.{given[1]}",
        )
    return given[0] if given else None


def _secret(namespace: str, storage: Mapping[str, Any], kind: str, *, field: str) -> dict[str, str]:
    name, directory = storage[field.rpartition(".")[2]], backend().settings.security.secrets_dir
    if directory is None:
        raise BadSpec(
            "secrets are not configured; ask the administrator to set TRAINYARD_SECURITY_SECRETS_DIR", field=field
        )
    found = values_of(directory, namespace, name, _FILES[kind], field=field)
    if found.pop(_API_KEY, None) and native.KEY not in found:
        raise BadSpec(
            f"the secret {name} is an API signing key; oci:// is reached by its S3-compatible interface, which takes "
            f"a customer secret key: {native.KEY_ID} and {native.KEY}",
            field=field,
        )
    host = urlsplit(storage["storageUri"]).hostname or ""
    if found.pop(_HOST, host) != host:
        raise BadSpec(f"the secret {name} is for another host than {host} ({_HOST}); name its own", field=field)
    if not found:
        raise BadSpec(
            f"the secret {name} has none of the keys that this place takes: {native.needed(kind)}", field=field
        )
    return found


def _options(storage: Mapping[str, Any], field: str) -> dict[str, str]:
    """The parameters of the service. Raises BadSpec for other authentication, unknown names, and non-strings."""
    found = {}
    for name, value in (storage.get("parameters") or {}).items():
        where = f"{field}.parameters.{name[:64]}"
        if name in OF_DATA and field == OF_DATASETS:
            continue
        if name in _AUTH:
            raise BadSpec(
                f"{name} is not supported: a service is reached with the secret of storageKey, or with the operator's "
                "keys; leave it out",
                field=where,
            )
        if not isinstance(value, str) or not value:
            raise BadSpec("must be a non-empty string", field=where)
        key = native.ENDPOINT if name == "endpoint" else name
        if key in found:
            raise BadSpec(f"endpoint and {native.ENDPOINT} are the same; keep one of them", field=where)
        found[key] = value
    known = {name for names in native.OPTION_KEYS.values() for name in names}
    if unknown := sorted(found.keys() - known):
        more = f"; of datasets also {' and '.join(OF_DATA)}" if field == OF_DATASETS else ""
        raise BadSpec(
            f"unknown parameter {unknown[0][:64]!r}; known: {', '.join(sorted(known))}{more}",
            field=f"{field}.parameters.{unknown[0][:64]}",
        )
    return found


def _without_effect(storage: Mapping[str, Any], field: str) -> list[str]:
    """Warnings of a location that needs no access of its own."""
    why = "has no effect: the location is a directory of this installation, or is read with the operator's settings"
    names = [name for name in storage.get("parameters") or {} if not (name in OF_DATA and field == OF_DATASETS)]
    keys = [key for key in KEYS if storage.get(key)]
    return [warning(f"{field}.{name}", why) for name in (*keys, *(f"parameters.{name}" for name in names))]


def _is_directory(kind: str, found: Mapping[str, Any]) -> bool:
    access = native.Access(credentials=found.get(CREDENTIALS) or {}, options=found.get(OPTIONS) or {})
    return backend().settings.fetch.directory_of(kind) is not None and not access.endpoint


def _kind(storage: Mapping[str, Any], field: str) -> str:
    return native.kind_of_place(place(storage["storageUri"].removeprefix("local://")), field=f"{field}.storageUri")


def _allow() -> tuple[str, ...]:
    return backend().settings.fetch.allow
