"""Routes of discovery, namespaces and FineTunedWeights."""

from typing import Any

from flask import Blueprint, Response, current_app, request

from app.compat.ome.api import discovery, lookup, pods, stored_models, training_jobs, training_runtimes
from app.compat.ome.api.answers import list_reply, object_reply
from app.compat.ome.api.queries import ObjectListQuerySchema, ObjectQuerySchema, ReadQuerySchema
from app.compat.ome.api.sources import Object, ObjectSource, groups_of_jobs, groups_of_objects
from app.compat.ome.dialect import API_VERSION, BASE
from app.compat.ome.from_native import milliseconds, model_named_by, moment, name_of, training_job_of
from app.domain.errors import NotFound
from app.domain.lifecycle.states import JobState
from app.http.context import caller, dialect, plane
from app.http.description import description
from app.http.envelope import Reply, json_response
from app.http.operation import operation
from app.security.permissions import Permission
from app.services.access import projects
from app.services.jobs.details import JobDetails
from app.services.requests.pagination import PageRequest
from app.services.rows import Project

blueprint = Blueprint("ome", __name__)
blueprint.register_blueprint(training_jobs.blueprint)
blueprint.register_blueprint(pods.blueprint)
blueprint.register_blueprint(training_runtimes.blueprint)
blueprint.register_blueprint(stored_models.blueprint)
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
@operation(
    "Read the OpenAPI document for clients: no definitions", permission=None, query=ReadQuerySchema, media="document"
)
def get_openapi(query: Query) -> Response:  # noqa: ARG001
    if "protobuf" in request.headers.get("Accept", ""):
        return Response(discovery.openapi_binary(), mimetype=discovery.OPENAPI_BINARY_TYPE)
    return json_response(discovery.OPENAPI)


@blueprint.get(f"{BASE}/openapi.json")
@operation("This description", permission=None, media="document")
def openapi_json() -> Response:
    return json_response(description(current_app, dialect()))


@blueprint.get("/api/v1/namespaces")
@operation("List the namespaces: projects", permission=Permission.VIEW, query=ObjectListQuerySchema, refuses=(400,))
def list_namespaces(query: Query) -> Reply:
    with plane().db.read() as session:
        page = projects.page(session, caller(), PageRequest(size=_MOST_NAMESPACES, order="name"))
        found = [_namespace(each) for each in page.items]
    return list_reply(
        ObjectSource(kind="Namespace", list_groups=groups_of_objects(lambda _: found), api_version="v1"), query
    )


@blueprint.get(_NAMESPACE)
@operation("Read a namespace", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_namespace(namespace: str, query: Query) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        return object_reply(_namespace(projects.require(session, namespace)))


@blueprint.get(f"{_IN}/finetunedweights")
@operation(
    "List the weights that training jobs have produced",
    permission=Permission.VIEW,
    query=ObjectListQuerySchema,
    refuses=(400,),
)
def list_weights(namespace: str, query: Query) -> Reply:  # noqa: ARG001
    return list_reply(
        ObjectSource(
            kind="FineTunedWeight", list_groups=groups_of_jobs(lambda _, jobs: [_weights(each) for each in jobs])
        ),
        query,
    )


@blueprint.get(f"{_IN}/finetunedweights/<weights_name>")
@operation("Read the weights that a training job has produced", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_weights(namespace: str, weights_name: str, query: Query) -> Reply:  # noqa: ARG001
    with plane().db.read() as session:
        missing = NotFound(f'finetunedweights.ome.io "{weights_name[:64]}" not found')
        try:
            found = _weights(lookup.find_with_pods(session, namespace, weights_name))
        except NotFound as error:
            raise missing from error
    if not found:
        raise missing
    return object_reply(found[0])


def _namespace(project: Project) -> dict[str, Any]:
    metadata = {
        "name": project.name,
        "uid": project.name,
        "resourceVersion": str(milliseconds(project.created_at)),
        "creationTimestamp": moment(project.created_at),
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {}, "status": {"phase": "Active"}}


def _weights(found: JobDetails) -> list[Object]:
    """The FineTunedWeight of a job; none unless it has completed and written a model."""
    job, name, place = found.job, name_of(found), (found.job.report or {}).get("model_uri")
    if job.state is not JobState.COMPLETED or not place:
        return []
    spec = {
        "baseModelRef": {"name": model_named_by(found)},
        "storage": {"storageUri": place},
        "trainingJobRef": {"name": training_job_of(found), "namespace": job.project},
    }
    metadata = {
        "name": name,
        "namespace": job.project,
        "uid": f"finetunedweight-{name}",
        "resourceVersion": str(milliseconds(job.updated_at)),
        "creationTimestamp": moment(job.finished_at),
    }
    status = {"state": "Ready"}
    return [
        {"apiVersion": API_VERSION, "kind": "FineTunedWeight", "metadata": metadata, "spec": spec, "status": status}
    ]
