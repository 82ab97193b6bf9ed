"""Credentials and options of one place in a job document: which its URI takes, and what they mean."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from app.domain.errors import BadSpec
from app.domain.spec.locations.code import FORM, GIT, git_commit, is_git
from app.domain.spec.locations.hosts import address_of, authority_of, check_host, is_allowed, refuse_private_host
from app.domain.spec.locations.paths import FILE, is_hub_id, kind_of
from app.domain.spec.locations.uploads import UPLOAD
from app.domain.spec.model import Located
from app.domain.spec.secrets import CODE_LOGIN, MASK, credential_path

CREDENTIALS, OPTIONS = "credentials", "storage_options"
KEY_ID, KEY, SESSION, ENDPOINT, REGION = (
    "access_key_id",
    "secret_access_key",
    "session_token",
    "endpoint_url",
    "region",
)
TOKEN, USER, PASSWORD, HEADERS, NAMESPACE = "token", "username", "password", "headers", "namespace"

_S3 = (KEY_ID, KEY, SESSION, ENDPOINT, REGION)
# By the kind of place; the names are those of the AWS tools, of KServe, and of OME's secrets.
KEYS: Mapping[str, tuple[str, ...]] = {
    "s3": _S3,
    "oci": _S3,
    "obs": _S3,
    "http": (TOKEN, USER, PASSWORD, HEADERS),
    "hf": (TOKEN,),
}
HOST = "host"  # of a repository: they are sent to no other, whichever code a job or a trial names
GIT_KEYS = (TOKEN, USER, PASSWORD, HOST)
OPTION_KEYS: Mapping[str, tuple[str, ...]] = {
    "s3": (REGION, ENDPOINT),
    "oci": (REGION, ENDPOINT, NAMESPACE),
    "obs": (REGION, ENDPOINT),
}
# What one place needs at least: one of these sets, and nothing of the others.
_NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("s3", "oci", "obs"), ((KEY_ID, KEY),)),
    "http": ((TOKEN,), (USER, PASSWORD), (HEADERS,)),
    "hf": ((TOKEN,),),
    GIT: ((TOKEN,), (USER, PASSWORD)),
}
# What downloads say themselves.
_NOT_ADDED = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "upgrade",
        "range",
        "if-range",
        "if-none-match",
        "if-modified-since",
        "accept-encoding",
    }
)
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_LINE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
_REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_URL = re.compile(r"https?://[^/?#@\s]+/?")


@dataclass(frozen=True, kw_only=True)
class Access:
    """How one place is opened: what its ``credentials`` and ``storage_options`` say, in the open."""

    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def region(self) -> str:
        return self.options.get(REGION) or self.credentials.get(REGION) or ""

    @property
    def endpoint(self) -> str:
        """The URL of a service that the document names itself; empty for the one of the settings."""
        named = self.options.get(ENDPOINT) or self.credentials.get(ENDPOINT) or ""
        if named or not (self.options.get(NAMESPACE) and self.credentials and self.region):
            return named
        return f"https://{self.options[NAMESPACE]}.compat.objectstorage.{self.region}.oraclecloud.com"


NO_ACCESS = Access()


def access_of(part: Located, at: str, secrets: Mapping[str, str]) -> Access:
    """Of the part of a stored document at this dotted path; ``secrets`` are the job's, opened."""
    return Access(
        credentials={
            name: secrets[credential_path(at, name)]
            for name in part.credentials
            if credential_path(at, name) in secrets
        },
        options=part.storage_options,
    )


def texts_of(secrets: Mapping[str, str]) -> Iterator[str]:
    """Every text that must be shown nowhere: the secrets, and each value of those that are headers."""
    for path, value in secrets.items():
        if path != f"{CODE_LOGIN}.{HOST}":  # no secret
            yield value
        if path.endswith(f"{CREDENTIALS}.{HEADERS}"):
            yield from headers_of(value, field=path).values()


def headers_of(text: str, *, field: str) -> dict[str, str]:
    """The headers of a JSON object. Raises BadSpec, which never quotes a value."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found or not all(isinstance(each, str) for each in found.values()):
        raise BadSpec('headers is a JSON object of texts, such as {"X-Api-Key": "…"}', field=field)
    for name, value in found.items():
        if _HEADER.fullmatch(name) is None or name.lower() in _NOT_ADDED or _LINE.fullmatch(value) is None:
            raise BadSpec(
                f"headers: {name[:64]!r} is no header that a request may add, or its value is empty or has line breaks",
                field=field,
            )
    return found


def kind_of_place(location: str, *, field: str, is_model: bool = False, source: str | None = None) -> str:
    """The kind of place; the id of a model of a hub is one of the hub, unless ``source`` makes it local."""
    if is_model and is_hub_id(location) and source != "local":
        return "hf"
    return kind_of(location, field=field)


def check_access(part: Located, location: str, kind: str, allow: tuple[str, ...], *, at: str) -> None:
    """Raise BadSpec when the credentials or options of this part of a document do not fit its place.

    ``allow``: hosts that may be private, and to which credentials may go unencrypted.
    """
    credentials, options = part.credentials, part.storage_options
    if credentials:
        _check_credentials(credentials, location, kind, allow, field=f"{at}.{CREDENTIALS}")
    if options:
        _check_options(options, location, kind, field=f"{at}.{OPTIONS}")
    if NAMESPACE in options and REGION not in {**options, **credentials}:
        raise BadSpec("namespace has no effect without region; add it", field=f"{at}.{OPTIONS}.{NAMESPACE}")
    for name in (REGION, ENDPOINT):
        if name in options and credentials.get(name, options[name]) != options[name]:
            raise BadSpec(
                f"{name} is {options[name][:128]}, but the credentials are for another one; leave one of them out",
                field=f"{at}.{OPTIONS}.{name}",
            )
    for values, where in ((credentials, CREDENTIALS), (options, OPTIONS)):
        if ENDPOINT in values:
            _check_endpoint(values[ENDPOINT], allow, field=f"{at}.{where}.{ENDPOINT}")
        _check_form(values, REGION, _REGION, field=f"{at}.{where}.{REGION}")
    _check_form(options, NAMESPACE, _NAMESPACE, field=f"{at}.{OPTIONS}.{NAMESPACE}")


def check_code_credentials(found: Mapping[str, str], location: str | None, *, field: str) -> None:
    """Raise BadSpec when what opens a repository is incomplete, or the code is none of a repository."""
    if not location or not is_git(location):
        raise BadSpec(
            f"they open a Git repository, and custom_code_dir names none; leave them out, or name the code as {FORM}",
            field=field,
        )
    _check_credentials(found, location, GIT, (), field=field)
    host = git_commit(location, field=field).host
    if found.get(HOST, host) != host:
        raise BadSpec(
            f"they are for repositories of {found[HOST][:128]}, and the code is at {host}; give what opens that one",
            field=f"{field}.{HOST}",
        )


def _check_credentials(
    found: Mapping[str, str], location: str, kind: str, allow: tuple[str, ...], *, field: str
) -> None:
    known = GIT_KEYS if kind == GIT else KEYS.get(kind)
    if known is None:
        raise BadSpec(f"{shown_kind(location, kind)} is read without credentials; leave them out", field=field)
    _refuse_unknown(found, known, location, kind, field=field)
    for name, value in found.items():
        form, words = (
            (_LINE, "without line breaks")
            if name in (USER, PASSWORD, HEADERS)
            else (_VISIBLE, "of ASCII letters, digits and signs")
        )
        if value == MASK:
            raise BadSpec(f"{MASK} masks a secret; give its value", field=f"{field}.{name}")
        if name != HEADERS and form.fullmatch(value) is None:
            raise BadSpec(f"{name} is a text that is not empty, {words}", field=f"{field}.{name}")
    given = found.keys() - {SESSION, ENDPOINT, REGION, HOST}
    if given not in [set(each) for each in _NEEDED[kind]]:
        raise BadSpec(f"{shown_kind(location, kind)} takes {needed(kind)}; given: {_listed(given)}", field=field)
    if ":" in found.get(USER, ""):
        raise BadSpec("username has no colon (RFC 7617)", field=f"{field}.{USER}")
    if HEADERS in found:
        headers_of(found[HEADERS], field=f"{field}.{HEADERS}")
    if kind == "http":
        _refuse_open_way(location, allow, field=field)


def _check_options(found: Mapping[str, str], location: str, kind: str, *, field: str) -> None:
    known = OPTION_KEYS.get(kind)
    if known is None:
        raise BadSpec(f"{shown_kind(location, kind)} has no options; leave them out", field=field)
    _refuse_unknown(found, known, location, kind, field=field)


def _refuse_unknown(found: Mapping[str, str], known: tuple[str, ...], location: str, kind: str, *, field: str) -> None:
    unknown = sorted(found.keys() - set(known))
    if unknown:
        raise BadSpec(
            f"unknown key {unknown[0][:64]!r}; {shown_kind(location, kind)} knows {', '.join(known)}",
            field=f"{field}.{unknown[0][:64]}",
        )


def _check_form(found: Mapping[str, str], name: str, form: re.Pattern[str], *, field: str) -> None:
    if name in found and form.fullmatch(found[name]) is None:
        raise BadSpec(f"{name} is of small letters, digits and dashes", field=field)


def _check_endpoint(url: str, allow: tuple[str, ...], *, field: str) -> None:
    if _URL.fullmatch(url) is None:
        raise BadSpec("endpoint_url has the form https://host or https://host:port, without a path", field=field)
    refuse_private_host(url, allow, field=field)
    check_host(url, field=field)
    _refuse_open_way(url, allow, field=field)


def _refuse_open_way(url: str, allow: tuple[str, ...], *, field: str) -> None:
    authority = authority_of(url)
    named = authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
    host = named.lower().rstrip(".")
    if url.lower().startswith("http://") and not is_allowed(host, address_of(host), allow):
        raise BadSpec(
            "credentials would be readable on the way; use https://, or have the administrator list the host in "
            "TRAINYARD_FETCH_ALLOW",
            field=field,
        )


def needed(kind: str) -> str:
    """What credentials of this kind of place must have, in words."""
    return ", or ".join(" and ".join(each) for each in _NEEDED[kind])


def shown_kind(location: str, kind: str) -> str:
    if kind == FILE:
        return "a place on the disks of this cluster"
    if kind == UPLOAD:
        return "an uploaded file"
    return f"{location.partition('://')[0].lower() if '://' in location else kind}://"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none of them"
