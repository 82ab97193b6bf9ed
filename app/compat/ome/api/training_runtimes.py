"""Routes of TrainingRuntimes and ClusterTrainingRuntimes."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, Response

from app.compat.naming import Naming
from app.compat.ome.api import patches
from app.compat.ome.api.answers import object_reply
from app.compat.ome.api.bodies import ObjectBody, PatchBody
from app.compat.ome.api.objects import secret_variables
from app.compat.ome.api.queries import ObjectQuerySchema, WatchQuerySchema, WriteQuerySchema
from app.compat.ome.api.sources import AuditActions
from app.compat.ome.api.stored_objects import StoredKind
from app.compat.ome.dialect import BASE
from app.compat.ome.fields import RUNTIME_FIELDS, runtime_warnings
from app.compat.ome.manifests import ChangeSchema, RuntimeSchema
from app.compat.ome.runtimes import BUILT_IN, CLUSTER_KIND, KIND
from app.compat.ome.templates import check_roles
from app.compat.ome.to_native import trainer_of
from app.domain.errors import BadSpec
from app.http.envelope import Reply
from app.http.operation import operation
from app.schemas.spec.field_verdicts import refuse
from app.security.permissions import Permission
from app.services import kubernetes_objects
from app.services.kubernetes_objects import CLUSTER_SCOPE

blueprint = Blueprint("runtimes", __name__)
_OBJECT = RuntimeSchema()
_READER = ObjectBody(_OBJECT)
_TEMPLATE = Naming({}, "spec.template")
_ALL, _OF_A_NAMESPACE = f"{BASE}/clustertrainingruntimes", f"{BASE}/namespaces/<namespace>/trainingruntimes"
Query = dict[str, Any]


@blueprint.get(_ALL)
@operation(
    "List or watch the ClusterTrainingRuntimes", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,)
)
def list_of_cluster(query: Query) -> Reply | Response:
    return RUNTIMES.list_or_watch(CLUSTER_SCOPE, query)


@blueprint.get(_OF_A_NAMESPACE)
@operation(
    "List or watch the TrainingRuntimes of a namespace",
    permission=Permission.VIEW,
    query=WatchQuerySchema,
    refuses=(400,),
)
def list_of_namespace(namespace: str, query: Query) -> Reply | Response:
    return RUNTIMES.list_or_watch(namespace, query)


@blueprint.post(_ALL)
@operation(
    "Create a ClusterTrainingRuntime",
    permission=Permission.CLUSTER_ADMIN,
    query=WriteQuerySchema,
    body=RuntimeSchema,
    reader=_READER,
    status=201,
)
def create_of_cluster(query: Query, body: dict[str, Any]) -> Reply:
    return RUNTIMES.create(CLUSTER_SCOPE, body, query)


@blueprint.post(_OF_A_NAMESPACE)
@operation(
    "Create a TrainingRuntime",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=RuntimeSchema,
    reader=_READER,
    status=201,
)
def create_of_namespace(namespace: str, query: Query, body: dict[str, Any]) -> Reply:
    return RUNTIMES.create(namespace, body, query)


@blueprint.get(f"{_ALL}/<cluster_runtime_name>")
@operation("Read a ClusterTrainingRuntime", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_of_cluster(cluster_runtime_name: str, query: Query) -> Reply:  # noqa: ARG001
    return object_reply(RUNTIMES.read(CLUSTER_SCOPE, cluster_runtime_name))


@blueprint.get(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation("Read a TrainingRuntime", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_of_namespace(namespace: str, runtime_name: str, query: Query) -> Reply:  # noqa: ARG001
    return object_reply(RUNTIMES.read(namespace, runtime_name))


@blueprint.put(f"{_ALL}/<cluster_runtime_name>")
@operation(
    "Replace a ClusterTrainingRuntime",
    permission=Permission.CLUSTER_ADMIN,
    query=WriteQuerySchema,
    body=RuntimeSchema,
    reader=_READER,
)
def replace_of_cluster(cluster_runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return RUNTIMES.replace(CLUSTER_SCOPE, cluster_runtime_name, body, query)


@blueprint.put(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation(
    "Replace a TrainingRuntime",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=RuntimeSchema,
    reader=_READER,
)
def replace_of_namespace(namespace: str, runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return RUNTIMES.replace(namespace, runtime_name, body, query)


@blueprint.patch(f"{_ALL}/<cluster_runtime_name>")
@operation(
    "Change a ClusterTrainingRuntime by a patch, or apply it",
    permission=Permission.CLUSTER_ADMIN,
    query=WriteQuerySchema,
    body=ChangeSchema,
    reader=PatchBody(),
    takes=patches.MERGE,
    also={201: ChangeSchema},
)
def patch_of_cluster(cluster_runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return RUNTIMES.patch(CLUSTER_SCOPE, cluster_runtime_name, body, query)


@blueprint.patch(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation(
    "Change a TrainingRuntime by a patch, or apply it",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=ChangeSchema,
    reader=PatchBody(),
    takes=patches.MERGE,
    also={201: ChangeSchema},
)
def patch_of_namespace(namespace: str, runtime_name: str, query: Query, body: dict[str, Any]) -> Reply:
    return RUNTIMES.patch(namespace, runtime_name, body, query)


@blueprint.delete(f"{_ALL}/<cluster_runtime_name>")
@operation("Delete a ClusterTrainingRuntime", permission=Permission.CLUSTER_ADMIN, query=WriteQuerySchema)
def delete_of_cluster(cluster_runtime_name: str, query: Query) -> Reply:
    return RUNTIMES.delete(CLUSTER_SCOPE, cluster_runtime_name, query)


@blueprint.delete(f"{_OF_A_NAMESPACE}/<runtime_name>")
@operation("Delete a TrainingRuntime", permission=Permission.MANAGE, query=WriteQuerySchema)
def delete_of_namespace(namespace: str, runtime_name: str, query: Query) -> Reply:
    return RUNTIMES.delete(namespace, runtime_name, query)


def _check(manifest: Mapping[str, Any]) -> list[str]:
    """The warnings of a runtime. Raises InvalidRequest for one that no job can use."""
    spec = manifest["spec"]
    with _TEMPLATE.errors():
        trainer_of(spec)
    check_roles(spec)
    if secret := next(secret_variables(spec), None):
        message = "looks like a secret, which every reader of the runtime would see; set it in each job"
        raise BadSpec(message, field=f"spec.{secret}")
    if ((spec.get("mlPolicy") or {}).get("mpi") or {}).get("mpiImplementation") not in (None, "OpenMPI"):
        raise BadSpec("must be OpenMPI: ranks read its variables", field="spec.mlPolicy.mpi.mpiImplementation")
    refuse(manifest, RUNTIME_FIELDS)
    return runtime_warnings(manifest)


RUNTIMES = StoredKind(
    kind=KIND,
    cluster_kind=CLUSTER_KIND,
    store=kubernetes_objects.RUNTIMES,
    schema=_OBJECT,
    built_in=BUILT_IN,
    check=_check,
    audit_actions=AuditActions(("runtime.delete",), ("runtime.change",)),
)
