"""Secrets in a job document: detection by name or form, removal, and masking."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

from app.domain.errors import BadSpec
from app.domain.spec.model import BaseModel, JobDocument, Located, OutputConfig, Source

MASK = "***"
MODEL_PATH, OUTPUT_PATH = "training_config.base_model", "output_config"  # of parts that may have credentials
CODE_LOGIN = "training_config.framework.custom_code_credentials"
_ENVIRONMENT = "training_config.environment"
_Part = TypeVar("_Part", bound=Located)
Place = BaseModel | Source | OutputConfig
# Rather one too many: a masked value still reaches the job, a missed one is shown to everybody in the project.
_SECRET_NAME = re.compile(
    r"KEY|PASS|PWD|AUTH(?!OR(?!IZ))|TOKEN(?!IZER)|SECRET|CREDENTIAL|CREDS|PRIVATE|(?:^|_)PAT(?:_|$)|DATABASE_URL|DSN",
    re.IGNORECASE,
)
# scheme://user:password@host, and scheme://token@host.
_SECRET_VALUE = re.compile(r"://(?:[^/\s@]+|[^/\s:@]*:\S+)@")
# Signature parameters of URLs grant access to any holder: X-Amz-Signature, sig, AWSAccessKeyId, token …
_SIGNATURE = re.compile(rf"sig|hmac|jwt|{_SECRET_NAME.pattern}", re.IGNORECASE)


def is_secret(name: str, value: str = "") -> bool:
    """Whether this environment variable must be encrypted and masked, by its name or its value."""
    # Word by word, up to the last @, which bounds the time of the regular expression.
    words = (word[: word.rfind("@") + 1] for word in value.split())
    return _SECRET_NAME.search(name) is not None or any(_SECRET_VALUE.search(word) for word in words)


def take_secrets(document: JobDocument, variables: Collection[str] = ()) -> tuple[JobDocument, dict[str, str]]:
    """The document with masked secrets, and dotted path → secret (for a signed URL the whole URL).

    ``variables`` of the environment are secret whatever their names and values.

    Raises BadSpec for a value that was already masked when it was submitted.
    """
    secrets = _secrets_of(document, variables)
    training, data, output = document.training_config, document.data_config, document.output_config
    environment = {
        name: MASK if f"{_ENVIRONMENT}.{name}" in secrets else value for name, value in training.environment.items()
    }
    output = output.changed(hub_token=MASK) if output.hub_token else output
    framework = training.framework
    if logins := framework.custom_code_credentials:
        framework = framework.changed(custom_code_credentials=dict.fromkeys(logins, MASK))
    sources = tuple(_masked(source).changed(path=unsigned(source.path)) for source in data.sources)
    masked = document.changed(
        training_config=training.changed(
            environment=environment, base_model=_masked(training.base_model), framework=framework
        ),
        data_config=data.changed(sources=sources),
        output_config=_masked(output),
    )
    if document.tracking:
        trackers = (each.changed(token=MASK) if each.token else each for each in document.tracking)
        masked = masked.changed(tracking=tuple(trackers))
    return _without_passwords(_without_contents(_with_masked_roles(masked, secrets))), secrets


def _with_masked_roles(document: JobDocument, secrets: Mapping[str, str]) -> JobDocument:
    if not any(path.startswith("tasks.") for path in secrets):
        return document
    tasks = []
    for i, role in enumerate(document.tasks):
        given = role.training_config.environment
        masked = {
            name: MASK if f"tasks.{i}.{_ENVIRONMENT}.{name}" in secrets else value for name, value in given.items()
        }
        tasks.append(role.changed(training_config=role.training_config.changed(environment=masked)) if given else role)
    return document.changed(tasks=tuple(tasks))


def _secrets_of(document: JobDocument, variables: Collection[str]) -> dict[str, str]:
    secrets = {}
    if token := document.output_config.hub_token:
        secrets["output_config.hub_token"] = token
    for name, value in document.training_config.environment.items():
        if name in variables or is_secret(name, value):
            secrets[f"{_ENVIRONMENT}.{name}"] = value
    secrets |= dict(_of_roles(document, variables))
    secrets |= dict(_contents(document))
    secrets |= {tracker_token_path(i): each.token for i, each in enumerate(document.tracking) if each.token}
    secrets |= {
        f"{CODE_LOGIN}.{name}": value
        for name, value in document.training_config.framework.custom_code_credentials.items()
    }
    logins = document.resource_config.registry_logins
    secrets |= {registry_password_path(i): each.password for i, each in enumerate(logins)}
    for path, value in secrets.items():
        _refuse_mask(value, path)
    for i, source in enumerate(document.data_config.sources):
        if _is_signed(source.path, source_path(i)):
            secrets[source_path(i)] = source.path
    for part, at in parts_with_credentials(document):
        for name, value in part.credentials.items():
            path = credential_path(at, name)
            _refuse_mask(value, path)
            secrets[path] = value
    return secrets


def _of_roles(document: JobDocument, variables: Collection[str]) -> Iterator[tuple[str, str]]:
    """Dotted path and value of the roles' own variables."""
    for i, role in enumerate(document.tasks):
        for name, value in role.training_config.environment.items():
            if name in variables or is_secret(name, value):
                yield f"tasks.{i}.{_ENVIRONMENT}.{name}", value


def _contents(document: JobDocument) -> Iterator[tuple[str, str]]:
    """Dotted path and text of the files of mounts."""
    for number, mount in enumerate(document.resource_config.mounts):
        for at, file in enumerate(mount.files):
            yield f"resource_config.mounts.{number}.files.{at}.content", file.content


def _without_contents(document: JobDocument) -> JobDocument:
    resources = document.resource_config
    if not any(mount.files for mount in resources.mounts):
        return document
    mounts = (
        mount.changed(files=tuple(file.changed(content=MASK) for file in mount.files)) if mount.files else mount
        for mount in resources.mounts
    )
    return document.changed(resource_config=resources.changed(mounts=tuple(mounts)))


def _without_passwords(document: JobDocument) -> JobDocument:
    resources = document.resource_config
    if not resources.registry_logins:
        return document
    masked = tuple(login.changed(password=MASK) for login in resources.registry_logins)
    return document.changed(resource_config=resources.changed(registry_logins=masked))


def _is_signed(location: str, field: str) -> bool:
    for _, equals, value in _query(location):
        if equals:
            _refuse_mask(value, field)
    return unsigned(location) != location


def _masked(part: _Part) -> _Part:
    return part.changed(credentials=dict.fromkeys(part.credentials, MASK)) if part.credentials else part


def parts_with_credentials(document: JobDocument) -> list[tuple[Place, str]]:
    """(part, its dotted path) of everything in a document that names a place and may say how that is opened."""
    return [
        (document.training_config.base_model, MODEL_PATH),
        *((source, f"data_config.sources.{i}") for i, source in enumerate(document.data_config.sources)),
        (document.output_config, OUTPUT_PATH),
    ]


def credential_path(at: str, name: str) -> str:
    """The dotted path of one credential of the part of a document at ``at``."""
    return f"{at}.credentials.{name}"


def with_secrets(document: JobDocument, secrets: Mapping[str, str]) -> JobDocument:
    """Undo ``take_secrets``; paths that are not in the document are ignored."""
    found = document.to_json()
    for path, value in secrets.items():
        *parents, last = path.split(".")
        node: Any = found
        for name in parents:
            node = node[int(name)] if isinstance(node, list) else node.get(name, {})
        if last in node:
            node[last] = value
    return JobDocument.from_json(found)


def secret_variables(paths: Iterable[str]) -> list[str]:
    """The names of the environment's variables among these paths of secrets, whatever the names look like."""
    found = (path.partition(f"{_ENVIRONMENT}.") for path in paths)
    return [name for before, at, name in found if at and (not before or before.startswith("tasks."))]


def source_path(index: int) -> str:
    """Dotted path of a data source's location."""
    return f"data_config.sources.{index}.path"


def tracker_token_path(index: int) -> str:
    """Dotted path of a tracking service's token."""
    return f"tracking.{index}.token"


def registry_password_path(index: int) -> str:
    """Dotted path of the password of a registry's login."""
    return f"resource_config.registry_logins.{index}.password"


def unsigned(location: str) -> str:
    """The location with URL signatures masked, as shown in documents."""
    parameters = [
        name + equals + (MASK if value and _SIGNATURE.search(unquote(name)) else value)
        for name, equals, value in _query(location)
    ]
    return f"{location.partition('?')[0]}?{'&'.join(parameters)}" if parameters else location


def _query(location: str) -> list[tuple[str, str, str]]:
    """(name, "=", value) of a URL's parameters; empty for other locations, where ``?`` is a wildcard."""
    base, _, query = location.partition("?")
    is_url = base.lower().startswith(("http://", "https://"))
    return [pair.partition("=") for pair in query.split("&")] if is_url and query else []


def _refuse_mask(value: str, field: str) -> None:
    if value == MASK:
        raise BadSpec(f"{MASK} stands for a secret that is not shown; give its value, or leave it out", field=field)
