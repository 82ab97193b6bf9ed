"""Kubernetes' discovery API: groups, versions and kinds. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from app.compat.ome.dialect import API_VERSION, GROUP, VERSION

_ALL = ["create", "delete", "get", "list", "patch", "update", "watch"]
_READ = ["get", "list"]
_SERVED = {"groupVersion": API_VERSION, "version": VERSION}
API_VERSIONS = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
GROUP_OF_OME = {
    "kind": "APIGroup",
    "apiVersion": "v1",
    "name": GROUP,
    "versions": [_SERVED],
    "preferredVersion": _SERVED,
}
GROUPS = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [GROUP_OF_OME]}


def _resource(name: str, kind: str, verbs: list[str], *, namespaced: bool = True, short: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "singularName": kind.lower(),
        "namespaced": namespaced,
        "kind": kind,
        "verbs": verbs,
        **({"shortNames": [short]} if short else {}),
    }


RESOURCES: dict[str, Any] = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": API_VERSION,
    "resources": [
        _resource("trainingjobs", "TrainingJob", _ALL, short="tj"),
        _resource("trainingjobs/status", "TrainingJob", ["get"]),
        _resource("trainingruntimes", "TrainingRuntime", _ALL),
        _resource("clustertrainingruntimes", "ClusterTrainingRuntime", _ALL, namespaced=False),
        _resource("basemodels", "BaseModel", _ALL),
        _resource("finetunedweights", "FineTunedWeight", _READ),
    ],
}
CORE = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "v1",
    "resources": [
        _resource("namespaces", "Namespace", _READ, namespaced=False, short="ns"),
        _resource("pods", "Pod", [*_READ, "watch"], short="po"),
        _resource("pods/log", "Pod", ["get"]),
        _resource("events", "Event", ["list", "watch"], short="ev"),
    ],
}
_DRY_RUN = {"name": "dryRun", "in": "query", "type": "string"}
_KIND = "x-kubernetes-group-version-kind"
# OpenAPI 2 without definitions, so that clients leave the validation of manifests to the server. The paths are for
# kubectl before 1.27, which reads from them which kinds accept dryRun in a patch.
OPENAPI: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Trainyard", "version": VERSION},
    "paths": {
        f"/apis/{API_VERSION}/{scope}{each['name']}/{{name}}": {
            "patch": {
                "parameters": [_DRY_RUN],
                "responses": {"200": {"description": "OK"}},
                _KIND: {"group": GROUP, "version": VERSION, "kind": each["kind"]},
            }
        }
        for each in RESOURCES["resources"]
        if "patch" in each["verbs"]
        for scope in ["namespaces/{namespace}/" if each["namespaced"] else ""]
    },
}
OPENAPI_BINARY_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def openapi_binary() -> bytes:
    """``OPENAPI`` as gnostic's openapi_v2.Document: field 1 is swagger, 2 info, 8 paths."""
    info = _field(1, OPENAPI["info"]["title"]) + _field(2, OPENAPI["info"]["version"])
    paths = b"".join(
        _field(2, _field(1, path) + _field(2, _field(8, _patch(item["patch"]))))
        for path, item in OPENAPI["paths"].items()
    )
    return _field(1, OPENAPI["swagger"]) + _field(2, info) + _field(8, paths)


def _patch(operation: Mapping[str, Any]) -> bytes:
    """Gnostic's Operation: field 8 is parameters, 9 responses, 13 extensions, whose values are YAML."""
    parameter = _field(2, "query") + _field(4, _DRY_RUN["name"]) + _field(6, _DRY_RUN["type"])
    ok = _field(1, "200") + _field(2, _field(1, _field(1, operation["responses"]["200"]["description"])))
    kind = _field(1, _KIND) + _field(2, _field(2, json.dumps(operation[_KIND])))
    return _field(8, _field(1, _field(2, _field(3, parameter)))) + _field(9, _field(1, ok)) + _field(13, kind)


def _field(number: int, content: str | bytes) -> bytes:
    """A length-delimited field of protobuf: its key, the length as a varint, and the content."""
    data = content.encode() if isinstance(content, str) else content
    length, left = bytearray(), len(data)
    while left > 127:  # a byte of a varint has seven bits
        length.append(left & 127 | 128)
        left >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, left]) + data
