"""Runtimes as resources of Kubernetes over HTTP: of one namespace, or of all."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flask import Blueprint, request
from sqlalchemy.orm import Session

from app.compat.naming import named_as
from app.compat.ome import patches
from app.compat.ome.answers import answered, told
from app.compat.ome.bodies import ObjectBody, PatchBody, delete_options, loaded
from app.compat.ome.dialect import BASE
from app.compat.ome.manifests import ChangeSchema, RuntimeSchema
from app.compat.ome.objects import (
    MODIFIED,
    AlreadyThere,
    Rehearsed,
    changed_by,
    is_rehearsal,
    kept_of,
    refuse_other,
    refuse_other_name,
    secret_variables,
)
from app.compat.ome.queries import ObjectQuerySchema, WatchQuerySchema, WriteQuerySchema
from app.compat.ome.runtimes import BUILT_IN, CLUSTER_KIND, KIND, built_in, object_of
from app.compat.ome.sources import OF_RUNTIMES, Source, fixed
from app.compat.ome.to_native import trainer_of
from app.domain.errors import BadSpec, Conflict, NotFound
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.operation import operation
from app.models import TrainingRuntime
from app.security.permissions import Permission
from app.services import training_runtimes
from app.services.idempotency import forget
from app.services.training_runtimes import OF_THE_CLUSTER

blueprint = Blueprint("runtimes", __name__)
_OBJECT = RuntimeSchema()
_READER = ObjectBody(_OBJECT)
_ALL, _OF_A_NAMESPACE = f"{BASE}/clustertrainingruntimes", f"{BASE}/namespaces/<namespace>/trainingruntimes"
Query = dict[str, Any]
Object = Mapping[str, Any]


@blueprint.get(_ALL)
@operation(
    "List or watch the ClusterTrainingRuntimes", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,)
)
def list_of_cluster(query: Query) -> Any:
    return _listed(OF_THE_CLUSTER, query)


@blueprint.get(_OF_A_NAMESPACE)
@operation(
    "List or watch the TrainingRuntimes of a namespace", permission=Permission.VIEW, query=WatchQuerySchema,
    refuses=(400,),
)  # fmt: skip
def list_of_namespace(namespace: str, query: Query) -> Any:
    return _listed(namespace, query)


@blueprint.post(_ALL)
@operation(
    "Create a ClusterTrainingRuntime", permission=Permission.CLUSTER_ADMIN, query=WriteQuerySchema, body=RuntimeSchema,
    reader=_READER, status=201,
)  # fmt: skip
def create_of_cluster(query: Query, body: dict[str, Any]) -> Reply:
    return told(_create(OF_THE_CLUSTER, body, query), 201)


@blueprint.post(_OF_A_NAMESPACE)
@operation(
    "Create a TrainingRuntime", permission=Permission.MANAGE, query=WriteQuerySchema, body=RuntimeSchema,
    reader=_READER, status=201,
)  # fmt: skip
def create_of_namespace(namespace: str, query: Query, body: dict[str, Any]) -> Reply:
    return told(_create(namespace, body, query), 201)


@blueprint.get(f"{_ALL}/<cluster_runtime_name>")
@operation("Read a ClusterTrainingRuntime", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_of_cluster(cluster_runtime_name: str, query: Query) -> Reply:  # noqa: ARG001
    return told(_read(OF_THE_CLUSTER, cluster_runtime_name))


@blueprint.get(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation("Read a TrainingRuntime", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_of_namespace(namespace: str, runtime_name: str, query: Query) -> Reply:  # noqa: ARG001
    return told(_read(namespace, runtime_name))


@blueprint.put(f"{_ALL}/<cluster_runtime_name>")
@operation(
    "Replace a ClusterTrainingRuntime", permission=Permission.CLUSTER_ADMIN, query=WriteQuerySchema,
    body=RuntimeSchema, reader=_READER,
)  # fmt: skip
def replace_of_cluster(cluster_runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return told(_replace(OF_THE_CLUSTER, cluster_runtime_name, body, query))


@blueprint.put(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation(
    "Replace a TrainingRuntime", permission=Permission.MANAGE, query=WriteQuerySchema, body=RuntimeSchema,
    reader=_READER,
)  # fmt: skip
def replace_of_namespace(namespace: str, runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return told(_replace(namespace, runtime_name, body, query))


@blueprint.patch(f"{_ALL}/<cluster_runtime_name>")
@operation(
    "Change a ClusterTrainingRuntime by a patch, or apply it", permission=Permission.CLUSTER_ADMIN,
    query=WriteQuerySchema, body=ChangeSchema, reader=PatchBody(), takes=patches.MERGE, also={201: ChangeSchema},
)  # fmt: skip
def patch_of_cluster(cluster_runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return _patch(OF_THE_CLUSTER, cluster_runtime_name, body, query)


@blueprint.patch(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation(
    "Change a TrainingRuntime by a patch, or apply it", permission=Permission.MANAGE, query=WriteQuerySchema,
    body=ChangeSchema, reader=PatchBody(), takes=patches.MERGE, also={201: ChangeSchema},
)  # fmt: skip
def patch_of_namespace(namespace: str, runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return _patch(namespace, runtime_name, body, query)


@blueprint.delete(f"{_ALL}/<cluster_runtime_name>")
@operation("Delete a ClusterTrainingRuntime", permission=Permission.CLUSTER_ADMIN, query=WriteQuerySchema)
def delete_of_cluster(cluster_runtime_name: str, query: Query) -> Reply:
    return _delete(OF_THE_CLUSTER, cluster_runtime_name, query)


@blueprint.delete(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation("Delete a TrainingRuntime", permission=Permission.MANAGE, query=WriteQuerySchema)
def delete_of_namespace(namespace: str, runtime_name: str, query: Query) -> Reply:
    return _delete(namespace, runtime_name, query)


def _kind(project: str) -> str:
    return KIND if project else CLUSTER_KIND


def _listed(project: str, query: Query) -> Any:
    source = Source(
        kind=_kind(project), look=fixed(partial(_objects, project=project)), losses=OF_RUNTIMES, existing=None,
        newest=partial(training_runtimes.newest, project=project),
    )  # fmt: skip
    return answered(source, query)


def _objects(session: Session, project: str) -> list[dict[str, Any]]:
    """By name."""
    found = [object_of(each) for each in training_runtimes.of(session, project)]
    if project == OF_THE_CLUSTER:
        made = {each["metadata"]["name"] for each in found}
        found += [built_in(name) for name in BUILT_IN if name not in made]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def _read(project: str, name: str) -> dict[str, Any]:
    with plane().db.read() as session:
        row = training_runtimes.find(session, project, name)
        if row is not None:
            return object_of(row)
    if project == OF_THE_CLUSTER and name in BUILT_IN:
        return built_in(name)
    raise NotFound(f'{_kind(project).lower()}s.ome.io "{name[:64]}" not found')


def _create(project: str, wanted: Object, query: Query) -> dict[str, Any]:
    name = wanted["metadata"]["name"]
    refuse_other(wanted, _kind(project), project, name)
    try:
        return _written(training_runtimes.create, project, wanted, query)
    except Conflict as error:
        raise AlreadyThere(
            f'{_kind(project).lower()}s.ome.io "{name}" already exists', field="metadata.name"
        ) from error


def _replace(project: str, name: str, wanted: Object, query: Query) -> dict[str, Any]:
    """What is built in is made when it is changed."""
    refuse_other(wanted, _kind(project), project, name)
    current = _read(project, name)
    said = wanted["metadata"].get("resourceVersion")
    if said is not None and said != current["metadata"]["resourceVersion"]:
        raise Conflict(MODIFIED)
    with plane().db.read() as session:
        is_made = training_runtimes.find(session, project, name) is not None
    if not is_made:
        return _written(training_runtimes.create, project, wanted, query)
    expected = current["metadata"]["generation"] if said is not None else None
    return _written(partial(training_runtimes.change, expected=expected), project, wanted, query)


def _written(write: Callable[..., TrainingRuntime], project: str, wanted: Object, query: Query) -> dict[str, Any]:
    """By `write`; in a dry run what it would be."""
    remember = _rehearse if "dryRun" in query else forget
    try:
        row = write(plane().db, caller(), project, wanted["metadata"]["name"], remember=remember, **_parts(wanted))
    except Rehearsed as ended:
        return ended.found
    return object_of(row)


def _rehearse(_session: Session, row: TrainingRuntime) -> None:
    raise Rehearsed(object_of(row))


def _patch(project: str, name: str, body: Object, query: Query) -> Reply:
    try:
        current = _read(project, name)
    except NotFound:
        if request.mimetype != patches.APPLY:
            raise
        refuse_other_name(body, name)
        return told(_create(project, loaded(_OBJECT, dict(body)), query), 201)
    return told(_replace(project, name, loaded(_OBJECT, changed_by(current, body)), query))


def _delete(project: str, name: str, query: Query) -> Reply:
    current = _read(project, name)
    if current["metadata"]["uid"] == name:  # which is built in; of others it is a UUID
        raise Conflict(f"{name} is built in and stays")
    if not is_rehearsal(delete_options(), current) and "dryRun" not in query:
        training_runtimes.delete(plane().db, caller(), project, name)
    return Reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {"name": name}})


def _parts(wanted: Object) -> dict[str, Any]:
    with named_as({}, rest="spec.template"):
        trainer_of(wanted["spec"])  # that jobs can be made of it
    if secret := next(secret_variables(wanted["spec"]), None):
        said = "looks like a secret, which all who may read the runtime would see; say it in each job"
        raise BadSpec(said, field=f"spec.{secret}")
    return {"spec": wanted["spec"], **kept_of(wanted["metadata"])}
