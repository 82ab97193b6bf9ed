"""What clients of Kubernetes ask before anything else: which groups, versions and kinds there are. Pure."""

from typing import Any

from app.compat.ome.dialect import API_VERSION, GROUP, VERSION

_ALL = ["create", "delete", "get", "list", "patch", "update", "watch"]
_READ = ["get", "list"]
_SERVED = {"groupVersion": API_VERSION, "version": VERSION}
API_VERSIONS = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
GROUP_OF_OME = {
    "kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [_SERVED], "preferredVersion": _SERVED,
}  # fmt: skip
GROUPS = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [GROUP_OF_OME]}


def _resource(name: str, kind: str, verbs: list[str], *, namespaced: bool = True, short: str = "") -> dict[str, Any]:
    return {
        "name": name, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": verbs,
        **({"shortNames": [short]} if short else {}),
    }  # fmt: skip


RESOURCES = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION,
    "resources": [
        _resource("trainingjobs", "TrainingJob", _ALL, short="tj"),
        _resource("trainingjobs/status", "TrainingJob", ["get"]),
        _resource("trainingruntimes", "TrainingRuntime", [verb for verb in _ALL if verb != "watch"]),
        _resource(
            "clustertrainingruntimes", "ClusterTrainingRuntime", [verb for verb in _ALL if verb != "watch"],
            namespaced=False,
        ),
        _resource("basemodels", "BaseModel", _READ),
        _resource("finetunedweights", "FineTunedWeight", _READ),
    ],
}  # fmt: skip
CORE = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
    "resources": [
        _resource("namespaces", "Namespace", _READ, namespaced=False, short="ns"),
        _resource("pods", "Pod", _READ, short="po"),
        _resource("pods/log", "Pod", ["get"]),
        _resource("events", "Event", ["list"], short="ev"),
    ],
}  # fmt: skip
# OpenAPI 2 without a definition: clients check nothing of a manifest themselves, and what is wrong is told here.
OPENAPI: dict[str, Any] = {"swagger": "2.0", "info": {"title": "Trainyard", "version": VERSION}, "paths": {}}
OPENAPI_BINARY_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def openapi_binary() -> bytes:
    """The same as the message Document of gnostic's openapi_v2: swagger is its field 1, info 2, paths 8."""
    info = _field(1, OPENAPI["info"]["title"].encode()) + _field(2, OPENAPI["info"]["version"].encode())
    return _field(1, OPENAPI["swagger"].encode()) + _field(2, info) + _field(8, b"")


def _field(number: int, content: bytes) -> bytes:
    """One of protobuf's with a length, which is below 128 here."""
    return bytes([number << 3 | 2, len(content)]) + content
