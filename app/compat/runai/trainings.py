"""Routes of trainings and distributed workloads."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint

from app.compat.naming import name_suffix
from app.compat.pull_secrets import registry_logins
from app.compat.reading import knows_groups, may_read, uses_images
from app.compat.runai import lookup
from app.compat.runai.buckets import open_buckets
from app.compat.runai.documents.requests import DistributedSchema, TrainingSchema
from app.compat.runai.from_native import training_of
from app.compat.runai.owners import Owners
from app.compat.runai.pods import MASTER
from app.compat.runai.programs import MASTERS
from app.compat.runai.repositories import repository_of
from app.compat.runai.secret_volumes import mounts_of_secrets
from app.compat.runai.to_native import REST, naming_of, to_native
from app.compat.runai.variables import secrets_of
from app.compat.secrets import secret_values
from app.domain.errors import BadSpec
from app.domain.spec.interactive import HTTP
from app.http.context import backend, caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import warning
from app.security.permissions import Permission
from app.services.access import projects
from app.services.jobs import submission
from app.services.jobs.details import of_new
from app.services.jobs.submission import Origin, Submitted
from app.services.rows import Session

blueprint = Blueprint("trainings", __name__)
_DOCUMENT = SubmitJobSchema()
_ACCEPTED = {"code": 202, "message": "Request has been accepted."}


@blueprint.post("/workloads/trainings")
@operation("Submit a training", permission=Permission.MANAGE, body=TrainingSchema, status=202, rechecks_key=True)
def create_training(body: dict[str, Any]) -> Reply:
    return _submit(body, distributed=False)


@blueprint.get("/workloads/trainings/<workload_id>")
@operation("Read a training", permission=Permission.VIEW)
def get_training(workload_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(lookup.training(session, workload_id, distributed=False))


@blueprint.delete("/workloads/trainings/<workload_id>")
@operation("Delete a training; if it runs, it is cancelled", permission=Permission.MANAGE, status=204)
def delete_training(workload_id: str) -> Reply:
    lookup.delete(workload_id, distributed=False)
    return Reply(None, 204)


@blueprint.post("/workloads/trainings/<workload_id>/suspend")
@operation("Suspend a training", permission=Permission.MANAGE, status=202)
def suspend_training(workload_id: str) -> Reply:
    lookup.suspend(workload_id, distributed=False)
    return Reply(_ACCEPTED, 202)


@blueprint.post("/workloads/trainings/<workload_id>/resume")
@operation("Resume a suspended training", permission=Permission.MANAGE, status=202)
def resume_training(workload_id: str) -> Reply:
    lookup.resume(workload_id, distributed=False)
    return Reply(_ACCEPTED, 202)


@blueprint.post("/workloads/distributed")
@operation(
    "Submit a training on several nodes",
    permission=Permission.MANAGE,
    body=DistributedSchema,
    status=202,
    rechecks_key=True,
)
def create_distributed(body: dict[str, Any]) -> Reply:
    if body.get("masterSpec") and body.get("masterSpecSameAsWorker"):
        raise BadSpec("set either masterSpec or masterSpecSameAsWorker", field="masterSpec")
    return _submit(body, distributed=True)


@blueprint.get("/workloads/distributed/<distributed_id>")
@operation("Read a training on several nodes", permission=Permission.VIEW)
def get_distributed(distributed_id: str) -> Reply:
    with plane().db.read() as session:
        return Reply(lookup.training(session, distributed_id, distributed=True))


@blueprint.delete("/workloads/distributed/<distributed_id>")
@operation("Delete a training on several nodes; if it runs, it is cancelled", permission=Permission.MANAGE, status=204)
def delete_distributed(distributed_id: str) -> Reply:
    lookup.delete(distributed_id, distributed=True)
    return Reply(None, 204)


@blueprint.post("/workloads/distributed/<distributed_id>/suspend")
@operation("Suspend a training on several nodes", permission=Permission.MANAGE, status=202)
def suspend_distributed(distributed_id: str) -> Reply:
    lookup.suspend(distributed_id, distributed=True)
    return Reply(_ACCEPTED, 202)


@blueprint.post("/workloads/distributed/<distributed_id>/resume")
@operation("Resume a suspended training on several nodes", permission=Permission.MANAGE, status=202)
def resume_distributed(distributed_id: str) -> Reply:
    lookup.resume(distributed_id, distributed=True)
    return Reply(_ACCEPTED, 202)


def _submit(body: dict[str, Any], *, distributed: bool) -> Reply:
    name = f"{body['name']}-{name_suffix(8)}" if body["useGivenNameAsPrefix"] else body["name"]
    answering = ReplyRecorder(_submitted)
    native = to_native(
        body, name, may_read=may_read, uses_images=uses_images(), knows_groups=knows_groups(), distributed=distributed
    )
    native.warnings.extend(_not_served(native.document))
    with plane().db.read() as session:  # before anything of the project is read
        project = projects.referred(session, caller(), str(body["projectId"])).name
    open_buckets(native.document, native.buckets, project, may_read, native.warnings)
    hidden = _with_secrets(native.document, project, body)
    if files := mounts_of_secrets(project, (body.get("spec") or {}).get("storage") or {}, native.warnings):
        native.document["resource_config"].setdefault("mounts", []).extend(files)
    if pulls := [each["name"] for each in (body.get(REST) or {}).get("imagePullSecrets") or [] if _is_named(each)]:
        field = f"{REST}.imagePullSecrets"
        native.document["resource_config"] |= registry_logins(
            project, pulls, native.document, native.warnings, field=field
        )
    if repository := repository_of(body.get(REST) or {}):
        framework = native.document["training_config"]["framework"]
        framework["custom_code_credentials"] = secret_values(project, repository.login)
    naming = naming_of(body.get("spec") or {}, [task["role"] for task in native.document.get("tasks", [])])
    with naming.errors():
        document = validated(_DOCUMENT, native.document)
        origin = Origin(foreign=native.foreign, warnings=native.warnings, secret_variables=hidden, retold=naming.line)
        submission.submit(plane(), caller(), document, project=project, origin=origin, on_written=answering)
    return answering.reply


def _with_secrets(document: dict[str, Any], project: str, body: Mapping[str, Any]) -> set[str]:
    """Add the values of the project's secrets to the document; the names of their variables. Raises BadSpec."""
    shared = secret_values(project, secrets_of(body.get(REST) or {}, REST))
    masters = secret_values(project, secrets_of(body.get(MASTERS) or {}, MASTERS))
    common = document["training_config"]["environment"]
    if document.get("tasks", [{"role": ""}])[0]["role"] == MASTER:
        document["tasks"][0]["training_config"].setdefault("environment", {}).update(masters)
    else:
        common |= masters
    common |= shared
    return {*shared, *masters}


def _is_named(pull_secret: Mapping[str, Any]) -> bool:
    """Whether it is a secret of the project."""
    return bool(pull_secret.get("name")) and not (pull_secret.get("exclude") or pull_secret.get("userCredential"))


def _not_served(document: Mapping[str, Any]) -> list[str]:
    ports = document.get("interactive_config", {}).get("ports", [])
    if backend().settings.gateway.ports_url or not any(each["protocol"] == HTTP for each in ports):
        return []
    why = "no gateway serves ports here (TRAINYARD_GATEWAY_PORTS_URL): `trainyard port-forward` reaches them"
    return [warning("spec.exposedUrls", why)]


def _submitted(session: Session, submitted: Submitted) -> Reply:
    training = training_of(of_new(submitted.job), Owners(session).of(submitted.job))
    return Reply(training, 202, warnings=submitted.warnings)
