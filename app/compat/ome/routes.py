"""What makes Kubernetes' clients feel at home: discovery, namespaces, and models; pods and events stand beside."""

import re
from typing import Any

from flask import Blueprint, Response, current_app, request

from app.compat.ome import discovery, jobs_routes, lookup, pods_routes, runtimes_routes
from app.compat.ome.answers import listed, told
from app.compat.ome.dialect import API_VERSION, BASE
from app.compat.ome.from_native import STATES, milliseconds, moment, name_of
from app.compat.ome.queries import ListQuerySchema, ObjectQuerySchema, ReadQuerySchema
from app.compat.ome.sources import Source, fixed
from app.domain.errors import NotFound
from app.http.context import caller, dialect, plane
from app.http.description import description
from app.http.envelope import Reply, json_response
from app.http.operation import operation
from app.models import Project
from app.security.permissions import Permission
from app.services import projects
from app.services.job_details import JobDetails
from app.services.pages import PageRequest

blueprint = Blueprint("ome", __name__)
blueprint.register_blueprint(jobs_routes.blueprint)
blueprint.register_blueprint(pods_routes.blueprint)
blueprint.register_blueprint(runtimes_routes.blueprint)
_NAMESPACE = "/api/v1/namespaces/<namespace>"
_IN = f"{BASE}/namespaces/<namespace>"
_MOST_NAMESPACES = 10_000
Query = dict[str, Any]


@blueprint.get("/api")
@operation("List the versions of the core group", permission=None, query=ReadQuerySchema)
def list_versions(query: Query) -> Reply:  # noqa: ARG001
    return Reply(discovery.API_VERSIONS)


@blueprint.get("/apis")
@operation("List the groups", permission=None, query=ReadQuerySchema)
def list_groups(query: Query) -> Reply:  # noqa: ARG001
    return Reply(discovery.GROUPS)


@blueprint.get("/apis/ome.io")
@operation("Read the group", permission=None, query=ReadQuerySchema)
def get_group(query: Query) -> Reply:  # noqa: ARG001
    return Reply(discovery.GROUP_OF_OME)


@blueprint.get(BASE)
@operation("List the kinds of the group", permission=None, query=ReadQuerySchema)
def list_kinds(query: Query) -> Reply:  # noqa: ARG001
    return Reply(discovery.RESOURCES)


@blueprint.get("/api/v1")
@operation("List the kinds of the core group", permission=None, query=ReadQuerySchema)
def list_core_kinds(query: Query) -> Reply:  # noqa: ARG001
    return Reply(discovery.CORE)


@blueprint.get("/version")
@operation("Read the version", permission=None, query=ReadQuerySchema)
def get_version(query: Query) -> Reply:  # noqa: ARG001
    return Reply({"major": "1", "minor": "20", "gitVersion": "v1.20.0+trainyard", "platform": "linux/amd64"})


@blueprint.get("/openapi/v2")
@operation("Read what clients check manifests by: nothing", permission=None, query=ReadQuerySchema, media="document")
def get_openapi(query: Query) -> Response:  # noqa: ARG001
    if "protobuf" in request.headers.get("Accept", ""):
        return Response(discovery.openapi_binary(), mimetype=discovery.OPENAPI_BINARY_TYPE)
    return json_response(discovery.OPENAPI)


@blueprint.get(f"{BASE}/openapi.json")
@operation("This description", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))


@blueprint.get("/api/v1/namespaces")
@operation("List the namespaces: projects", permission=Permission.VIEW, query=ListQuerySchema, refuses=(400,))
def list_namespaces(query: Query) -> Reply:
    with plane().db.read() as session:
        page = projects.page(session, caller(), PageRequest(size=_MOST_NAMESPACES, order="name"))
        found = [_namespace(each) for each in page.items]
    return listed(Source(kind="Namespace", look=fixed(lambda _: found), api_version="v1"), query)


@blueprint.get(_NAMESPACE)
@operation("Read a namespace", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_namespace(namespace: str, query: Query) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        return told(_namespace(projects.require(session, namespace)))


@blueprint.get(f"{_IN}/basemodels")
@operation("List the base models of training jobs", permission=Permission.VIEW, query=ListQuerySchema, refuses=(400,))
def list_models(namespace: str, query: Query) -> Reply:
    models = list(_models(namespace).values())
    return listed(Source(kind="BaseModel", look=fixed(lambda _: models)), query)


@blueprint.get(f"{_IN}/basemodels/<model_name>")
@operation("Read a base model", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_model(namespace: str, model_name: str, query: Query) -> Reply:  # noqa: ARG001
    return told(_one(_models(namespace), model_name, "basemodels"))


@blueprint.get(f"{_IN}/finetunedweights")
@operation(
    "List the weights that training jobs make", permission=Permission.VIEW, query=ListQuerySchema, refuses=(400,)
)
def list_weights(namespace: str, query: Query) -> Reply:
    weights = list(_weights(namespace).values())
    return listed(Source(kind="FineTunedWeight", look=fixed(lambda _: weights)), query)


@blueprint.get(f"{_IN}/finetunedweights/<object_name>")
@operation("Read the weights that a training job makes", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_weights(namespace: str, object_name: str, query: Query) -> Reply:  # noqa: ARG001
    return told(_one(_weights(namespace), object_name, "finetunedweights"))


def _namespace(project: Project) -> dict[str, Any]:
    metadata = {
        "name": project.name, "uid": project.name, "resourceVersion": str(milliseconds(project.created_at)),
        "creationTimestamp": moment(project.created_at),
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {}, "status": {"phase": "Active"},
    }  # fmt: skip


def _models(namespace: str) -> dict[str, dict[str, Any]]:
    """By name: what training jobs of the namespace begin with."""
    with plane().db.read() as session:
        named = {each.spec["training_config"]["base_model"]["model_id"]: each for each in lookup.rows(session)}
    return {
        _dns(model): _object("BaseModel", _dns(model), namespace, each, {"storage": {"storageUri": model}})
        for model, each in named.items()
    }


def _weights(namespace: str) -> dict[str, dict[str, Any]]:
    states = {"Succeeded": "Ready", "Failed": "Failed", "Running": "In_Training", "Suspended": "In_Training"}
    with plane().db.read() as session:
        found = lookup.rows(session)
    weights = {}
    for each in found:
        spec = {
            "baseModelRef": {"name": _dns(each.spec["training_config"]["base_model"]["model_id"])},
            "storage": {"storageUri": (each.spec.get("output_config") or {}).get("output_path") or ""},
            "trainingJobRef": {"name": name_of(each), "namespace": namespace},
        }
        weight = _object("FineTunedWeight", name_of(each), namespace, each, spec)
        weights[name_of(each)] = weight | {"status": {"state": states.get(STATES[each.job.state], "Creating")}}
    return weights


def _object(kind: str, name: str, namespace: str, found: JobDetails, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": name, "namespace": namespace, "uid": f"{kind.lower()}-{name}",
        "resourceVersion": str(milliseconds(found.job.updated_at)), "creationTimestamp": moment(found.job.created_at),
    }  # fmt: skip
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _one(found: dict[str, dict[str, Any]], name: str, plural: str) -> dict[str, Any]:
    if name not in found:
        raise NotFound(f'{plural}.ome.io "{name[:64]}" not found')
    return found[name]


def _dns(name: str) -> str:
    """A name of Kubernetes for it."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:253] or "none"
