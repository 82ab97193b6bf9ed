"""Request bodies of Kubernetes' clients: objects and patches, in JSON or YAML."""

import json
from typing import Any

import yaml
from flask import request
from marshmallow import Schema

from app.compat.naming import name_suffix
from app.compat.ome.api.patches import APPLY, JSON_PATCH, MERGE
from app.domain.errors import InvalidRequest
from app.http.errors import BadShape, MalformedJson, UnsupportedMediaType
from app.http.request_body import check_content, parse, validated, whole_body

_JSON, _YAML = "application/json", "application/yaml"
OPERATIONS = "operations"  # the key of a document that holds the list of a JSON patch


class ObjectBody:
    """An object that a schema checks."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:
        return _read((_JSON, _YAML), optional=optional, max_nesting=max_nesting)

    def load(self, document: dict[str, Any]) -> dict[str, Any]:
        return loaded(self._schema, document)


class PatchBody:
    """A patch, in the form of its Content-Type; the patched object is checked after it was applied."""

    def read(self, *, optional: bool, max_nesting: int) -> dict[str, Any]:
        return _read((MERGE, JSON_PATCH, APPLY), optional=optional, max_nesting=max_nesting)

    def load(self, document: dict[str, Any]) -> dict[str, Any]:
        return document


def loaded(schema: Schema, document: dict[str, Any]) -> dict[str, Any]:
    """The checked object, with a name made from generateName where it has none. Raises BadShape."""
    found: dict[str, Any] = validated(schema, document)
    metadata = found["metadata"]
    if metadata.get("name"):
        return found
    if not metadata.get("generateName"):
        raise BadShape([("metadata.name", "is needed, or generateName, with which a name begins")])
    return {**found, "metadata": {**metadata, "name": metadata["generateName"] + name_suffix(5)}}


def delete_options() -> dict[str, Any]:
    """DeleteOptions, the optional body of DELETE: dryRun and preconditions."""
    options = _read((_JSON, _YAML), optional=True, max_nesting=8)
    if options.get("dryRun") not in (None, [], ["All"]):
        raise InvalidRequest('must be ["All"], or left out', field="dryRun")
    if not isinstance(options.get("preconditions") or {}, dict):
        raise InvalidRequest("must be an object", field="preconditions")
    return options


def _read(accepted: tuple[str, ...], *, optional: bool, max_nesting: int) -> dict[str, Any]:
    raw = whole_body()
    if optional and not raw.strip():
        return {}
    kind = request.mimetype or _JSON  # as for Kubernetes' API server: its Python client sends objects without a type
    if kind not in accepted:
        raise UnsupportedMediaType(f"send it with one of the Content-Types {', '.join(accepted)}")
    document = _yaml(raw) if kind in (_YAML, APPLY) else parse(raw)
    if kind == JSON_PATCH:
        if not isinstance(document, list):
            raise InvalidRequest("the body must be a list of operations")
        document = {OPERATIONS: document}
    elif not isinstance(document, dict):
        raise InvalidRequest("the body must be an object")
    elif OPERATIONS in document:
        raise InvalidRequest("is not a field of an object", field=OPERATIONS)
    check_content(document, max_nesting=max_nesting)
    return document


class _NoAliasLoader(yaml.SafeLoader):
    """A loader without aliases, by which a few lines could expand to more values than memory holds."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise MalformedJson("aliases of YAML are not accepted; write out their values")
        return super().compose_node(parent, index)


def _yaml(raw: bytes) -> object:
    """Values that JSON has: no NaN, and no dates, which YAML makes of unquoted text."""
    try:
        found = yaml.load(raw.decode(), Loader=_NoAliasLoader)  # noqa: S506 – a SafeLoader
        return parse(json.dumps(found).encode())
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise MalformedJson("the body is not valid YAML") from error
    except (TypeError, ValueError) as error:
        raise MalformedJson(f"the body has a value that JSON can't represent: {error}") from error
