"""What makes Kubernetes' clients feel at home: discovery, namespaces, and models; pods and events stand beside."""

import re
from datetime import datetime
from functools import partial
from typing import Any

from flask import Blueprint, Response, current_app, request
from sqlalchemy.orm import Session

from app.compat.every_job import MOST_JOBS
from app.compat.ome import discovery, jobs_routes, lookup, pods_routes, runtimes_routes
from app.compat.ome.answers import listed, told
from app.compat.ome.dialect import API_VERSION, BASE
from app.compat.ome.from_native import STATES, milliseconds, moment, name_of
from app.compat.ome.queries import ListQuerySchema, ObjectQuerySchema, ReadQuerySchema
from app.compat.ome.sources import Object, Source, fixed, of_jobs
from app.compat.ome.to_native import DIALECT
from app.domain.errors import NotFound
from app.domain.locations import NO_MODEL
from app.http.context import caller, dialect, plane
from app.http.description import description
from app.http.envelope import Reply, json_response
from app.http.operation import operation
from app.models import Project
from app.security.permissions import Permission
from app.services import job_lists, projects
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
    return listed(Source(kind="BaseModel", look=fixed(partial(_models, namespace=namespace))), query)


@blueprint.get(f"{_IN}/basemodels/<model_name>")
@operation("Read a base model", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_model(namespace: str, model_name: str, query: Query) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        found = {each["metadata"]["name"]: each for each in _models(session, namespace)}
    if model_name not in found:
        raise _not_found("basemodels", model_name)
    return told(found[model_name])


@blueprint.get(f"{_IN}/finetunedweights")
@operation(
    "List the weights that training jobs make", permission=Permission.VIEW, query=ListQuerySchema, refuses=(400,)
)
def list_weights(namespace: str, query: Query) -> Reply:  # noqa: ARG001
    return listed(
        Source(kind="FineTunedWeight", look=of_jobs(lambda _, jobs: [[_weight(each)] for each in jobs])), query
    )


@blueprint.get(f"{_IN}/finetunedweights/<object_name>")
@operation("Read the weights that a training job makes", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_weights(namespace: str, object_name: str, query: Query) -> Reply:  # noqa: ARG001
    try:
        with plane().db.read() as session:
            return told(_weight(lookup.find(session, namespace, object_name)))
    except NotFound as error:
        raise _not_found("finetunedweights", object_name) from error


def _namespace(project: Project) -> dict[str, Any]:
    metadata = {
        "name": project.name, "uid": project.name, "resourceVersion": str(milliseconds(project.created_at)),
        "creationTimestamp": moment(project.created_at),
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {}, "status": {"phase": "Active"},
    }  # fmt: skip


def _models(session: Session, namespace: str) -> list[Object]:
    """What training jobs of the namespace begin with."""
    used = job_lists.base_models(session, caller(), DIALECT, most=MOST_JOBS)
    # One of those that have the same name here.
    named = {_dns(each.model_id): each for each in used if each.model_id != NO_MODEL}
    return [
        _object(
            "BaseModel", name, namespace, (each.first_at, each.changed_at), {"storage": {"storageUri": each.model_id}}
        )
        for name, each in named.items()
    ]


def _weight(found: JobDetails) -> Object:
    """What a job makes."""
    states = {"Succeeded": "Ready", "Failed": "Failed", "Running": "In_Training", "Suspended": "In_Training"}
    job, name = found.job, name_of(found)
    spec = {
        "baseModelRef": {"name": _dns(found.spec["training_config"]["base_model"]["model_id"])},
        "storage": {"storageUri": (found.spec.get("output_config") or {}).get("output_path") or ""},
        "trainingJobRef": {"name": name, "namespace": job.project},
    }
    made = _object("FineTunedWeight", name, job.project, (job.created_at, job.updated_at), spec)
    return made | {"status": {"state": states.get(STATES[job.state], "Creating")}}


def _object(
    kind: str, name: str, namespace: str, times: tuple[datetime, datetime], spec: dict[str, Any]
) -> dict[str, Any]:
    """`times`: when it was made, and changed."""
    metadata = {
        "name": name, "namespace": namespace, "uid": f"{kind.lower()}-{name}",
        "resourceVersion": str(milliseconds(times[1])), "creationTimestamp": moment(times[0]),
    }  # fmt: skip
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _not_found(plural: str, name: str) -> NotFound:
    return NotFound(f'{plural}.ome.io "{name[:64]}" not found')


def _dns(name: str) -> str:
    """A name of Kubernetes for it."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:253] or "none"
