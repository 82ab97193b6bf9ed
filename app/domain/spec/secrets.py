"""Secrets in a job document: detection by name or form, removal, and masking."""

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import unquote

from app.domain.errors import BadSpec

MASK = "***"
MODEL_PATH, OUTPUT_PATH = "training_config.base_model", "output_config"  # of parts that may have credentials
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


def take_secrets(document: dict[str, Any], variables: Collection[str] = ()) -> dict[str, str]:
    """Mask the document's secrets in place; returns dotted path → secret (for a signed URL the whole URL).

    ``variables`` of the environment are secret whatever their names and values.

    Raises BadSpec for a value that was already masked when it was submitted.
    """
    secrets = {}
    output, environment = document["output_config"], document["training_config"]["environment"]
    if output.get("hub_token"):
        secrets["output_config.hub_token"] = _given(output["hub_token"], "output_config.hub_token")
        output["hub_token"] = MASK
    for name, value in environment.items():
        if name in variables or is_secret(name, value):
            path = f"training_config.environment.{name}"
            secrets[path] = _given(value, path)
            environment[name] = MASK
    for i, source in enumerate(document["data_config"]["sources"]):
        path = source_path(i)
        for _, equals, value in _query(source["path"]):
            if equals and value == MASK:
                _given(value, path)
        shown = unsigned(source["path"])
        if shown != source["path"]:
            secrets[path], source["path"] = source["path"], shown
    for part, at in parts_with_credentials(document):
        for name, value in (part.get("credentials") or {}).items():
            path = credential_path(at, name)
            secrets[path] = _given(value, path)
            part["credentials"][name] = MASK
    return secrets


def parts_with_credentials(document: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """(part, its dotted path) of everything in a document that names a place and may say how that is opened."""
    return [
        (document["training_config"]["base_model"], MODEL_PATH),
        *((source, f"data_config.sources.{i}") for i, source in enumerate(document["data_config"]["sources"])),
        (document["output_config"], OUTPUT_PATH),
    ]


def credential_path(at: str, name: str) -> str:
    """The dotted path of one credential of the part of a document at ``at``."""
    return f"{at}.credentials.{name}"


def put_secrets_back(document: dict[str, Any], secrets: Mapping[str, str]) -> None:
    """Undo ``take_secrets`` in place; paths that are not in the document are ignored."""
    for path, value in secrets.items():
        *parents, last = path.split(".")
        node: Any = document
        for name in parents:
            node = node[int(name)] if isinstance(node, list) else node.get(name, {})
        if last in node:
            node[last] = value


def source_path(index: int) -> str:
    """Dotted path of a data source's location."""
    return f"data_config.sources.{index}.path"


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


def _given(value: str, field: str) -> str:
    if value == MASK:
        raise BadSpec(f"{MASK} stands for a secret that is not shown; give its value, or leave it out", field=field)
    return value
