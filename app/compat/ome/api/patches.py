"""Merge patches, JSON patches and server-side apply. Pure."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.errors import Conflict, InvalidRequest

MERGE, JSON_PATCH, APPLY = "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"
_MOST_COPIED = 1_048_576  # characters; repeated copies grow exponentially


def merged(target: object, patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7386. Also used for server-side apply: fields that it does not name are unchanged."""
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value) if isinstance(value, Mapping) else value
    return found


def patched(target: Mapping[str, Any], operations: Sequence[Any]) -> dict[str, Any]:
    """RFC 6902. Raises InvalidRequest for an invalid patch, Conflict when a test fails."""
    found: object = copy.deepcopy(dict(target))
    for number, each in enumerate(operations):
        if not isinstance(each, Mapping) or not isinstance(each.get("path"), str):
            raise InvalidRequest("must be an operation with op and path", field=str(number))
        found = _applied(found, each, str(number))
    if not isinstance(found, dict):
        raise InvalidRequest("leaves no object", field="")
    return found


def _applied(document: object, operation: Mapping[str, Any], field: str) -> object:
    kind, path = operation.get("op"), _parts(operation["path"])
    if kind in ("move", "copy"):
        source = _parts(str(operation.get("from", "")))
        value = copy.deepcopy(_at(document, source, field))
        if kind == "copy" and len(json.dumps([document, value])) > _MOST_COPIED:
            raise InvalidRequest(f"makes the object larger than {_MOST_COPIED} characters", field=field)
        if kind == "move":
            document = _removed(document, source, field)
        return _added(document, path, value, field)
    if kind == "remove":
        return _removed(document, path, field)
    if kind not in ("add", "replace", "test") or "value" not in operation:
        raise InvalidRequest("op must be add, remove, replace, move, copy or test, with its value", field=field)
    if kind == "test":
        if _at(document, path, field) != operation["value"]:
            raise Conflict(f"the test of {operation['path']} failed")
        return document
    if kind == "replace":
        _at(document, path, field)
        document = _removed(document, path, field) if path else document
    return _added(document, path, operation["value"], field)


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _is_index(part: str) -> bool:
    return part.isdecimal() and len(part) < 9


def _at(document: object, path: Sequence[str], field: str) -> object:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and _is_index(part) and int(part) < len(document):
            document = document[int(part)]
        else:
            raise InvalidRequest(f"there is no /{'/'.join(path)}", field=field)
    return document


def _removed(document: object, path: Sequence[str], field: str) -> object:
    _at(document, path, field)
    if not path:
        return {}
    parent = _at(document, path[:-1], field)
    if isinstance(parent, dict):
        del parent[path[-1]]
    elif isinstance(parent, list):
        del parent[int(path[-1])]
    return document


def _added(document: object, path: Sequence[str], value: object, field: str) -> object:
    if not path:
        return value
    parent = _at(document, path[:-1], field)
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list) and (path[-1] == "-" or (_is_index(path[-1]) and int(path[-1]) <= len(parent))):
        parent.insert(len(parent) if path[-1] == "-" else int(path[-1]), value)
    else:
        raise InvalidRequest(f"there is no place for /{'/'.join(path)}", field=field)
    return document
