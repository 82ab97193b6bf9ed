"""TrainingJobs as resources of Kubernetes over HTTP."""

from collections.abc import Mapping, Sequence
from typing import Any

from flask import Blueprint, request
from marshmallow import Schema
from sqlalchemy.orm import Session

from app.compat.naming import named_as
from app.compat.ome import models, runtimes
from app.compat.ome.api import lookup, patches
from app.compat.ome.api.answers import answered, told
from app.compat.ome.api.bodies import ObjectBody, PatchBody, delete_options, loaded
from app.compat.ome.api.objects import (
    MODIFIED,
    AlreadyThere,
    Rehearsed,
    changed_by,
    is_rehearsal,
    kept_of,
    refuse_other,
    refuse_other_name,
    rehearsed,
)
from app.compat.ome.api.queries import ObjectQuerySchema, WatchQuerySchema, WriteQuerySchema
from app.compat.ome.api.sources import Source, of_jobs
from app.compat.ome.dialect import BASE
from app.compat.ome.fields import FIELDS
from app.compat.ome.from_native import KIND, object_of, version_of
from app.compat.ome.manifests import ChangeSchema, JobSpecSchema, TrainingJobSchema
from app.compat.ome.places import hub_key
from app.compat.ome.to_native import DIALECT, NAMES, REST, shown, to_native
from app.compat.secrets import secret_values
from app.domain.errors import BadSpec, Conflict, NotFound
from app.domain.lifecycle.states import TERMINAL
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import warnings_of
from app.security.permissions import Permission
from app.services import stored_manifests
from app.services.access.secret_files import Reference
from app.services.jobs import commands, control_requests, dialect_notes, submission
from app.services.jobs.details import JobDetails, changed, of_new
from app.services.jobs.submission import Origin, Submitted
from app.services.stored_manifests import CLUSTER_SCOPE

blueprint = Blueprint("jobs", __name__)
_ALL = f"{BASE}/trainingjobs"
_JOBS = f"{BASE}/namespaces/<namespace>/trainingjobs"
_JOB = f"{_JOBS}/<object_name>"
_DOCUMENT, _SPEC = SubmitJobSchema(), JobSpecSchema()
_OBJECT: Schema = TrainingJobSchema()


@blueprint.get(_ALL)
@operation(
    "List or watch the TrainingJobs of all namespaces", permission=Permission.VIEW, query=WatchQuerySchema,
    refuses=(400,),
)  # fmt: skip
def list_everywhere(query: dict[str, Any]) -> Any:
    return _listed(query)


@blueprint.get(_JOBS)
@operation(
    "List or watch TrainingJobs", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,)
)  # fmt: skip
def list_jobs(namespace: str, query: dict[str, Any]) -> Any:  # noqa: ARG001 – the caller is within it
    return _listed(query)


@blueprint.post(_JOBS)
@operation(
    "Create a TrainingJob", permission=Permission.MANAGE, query=WriteQuerySchema, body=TrainingJobSchema,
    reader=ObjectBody(_OBJECT), status=201, rechecks_key=True,
)  # fmt: skip
def create_job(namespace: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:
    return _create(namespace, body, rehearses="dryRun" in query)


@blueprint.get(_JOB)
@operation("Read a TrainingJob", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_job(namespace: str, object_name: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    return told(_read(namespace, object_name))


@blueprint.get(f"{_JOB}/status")
@operation("Read the status of a TrainingJob", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_status(namespace: str, object_name: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    return told(_read(namespace, object_name))


@blueprint.put(_JOB)
@operation(
    "Suspend, resume, label or annotate a TrainingJob by its whole object", permission=Permission.MANAGE,
    query=WriteQuerySchema, body=TrainingJobSchema, reader=ObjectBody(_OBJECT),
)  # fmt: skip
def replace_job(namespace: str, object_name: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:
    return _change(namespace, object_name, body, rehearses="dryRun" in query)


@blueprint.patch(_JOB)
@operation(
    "Change a TrainingJob by a patch, or apply it", permission=Permission.MANAGE, query=WriteQuerySchema,
    body=ChangeSchema, reader=PatchBody(), takes=patches.MERGE, also={201: ChangeSchema},
)  # fmt: skip
def patch_job(namespace: str, object_name: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:
    rehearses = "dryRun" in query
    try:
        current = _read(namespace, object_name)
    except NotFound:
        if request.mimetype != patches.APPLY:
            raise
        refuse_other_name(body, object_name)
        return _create(namespace, loaded(_OBJECT, body), rehearses=rehearses)
    return _change(namespace, object_name, loaded(_OBJECT, changed_by(current, body)), rehearses=rehearses)


@blueprint.delete(_JOB)
@operation(
    "Delete a TrainingJob; what runs of it is cancelled", permission=Permission.MANAGE, query=WriteQuerySchema
)  # fmt: skip
def delete_job(namespace: str, object_name: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        found = lookup.find(session, namespace, object_name)
    job_id = found.job.id
    if not is_rehearsal(delete_options(), object_of(found)) and "dryRun" not in query:
        dialect_notes.withdraw(plane(), caller(), job_id, dialect=DIALECT)
    details = {"name": object_name, "group": "ome.io", "kind": "trainingjobs", "uid": job_id.removeprefix("job-")}
    return Reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _listed(query: Mapping[str, Any]) -> Any:
    return answered(Source(kind=KIND, look=of_jobs(_objects)), query)


def _objects(_session: Session, found: Sequence[JobDetails]) -> list[list[dict[str, Any]]]:
    return [[object_of(each)] for each in found]


def _read(namespace: str, name: str) -> dict[str, Any]:
    with plane().db.read() as session:
        return object_of(lookup.find(session, namespace, name))


def _create(namespace: str, wanted: Mapping[str, Any], *, rehearses: bool) -> Reply:
    """Raises InvalidRequest, and Conflict when there is one of that name."""
    metadata, spec = wanted["metadata"], wanted["spec"]
    refuse_other(wanted, KIND, namespace, metadata["name"])
    name, labels = metadata["name"], {**(spec.get("labels") or {}), **(metadata.get("labels") or {})}
    with plane().db.read() as session:
        model = models.located(session, namespace, (spec.get("modelConfig") or {}).get("inputModel"))
    native = to_native(
        name, spec, _runtime(namespace, spec["runtimeRef"]), labels, model=model.location, metadata=metadata
    )  # fmt: skip
    foreign = {
        "name": name, **kept_of(metadata),
        "spec": shown({key: value for key, value in spec.items() if key != "suspend"}),
    }  # fmt: skip
    render = _rehearsed if rehearses else _submitted_suspended if spec["suspend"] else _submitted
    answering = ReplyRecorder(render)
    native.document["training_config"]["environment"] |= secret_values(namespace, native.secrets)
    if key := _hub_key(spec, model):
        native.document.setdefault("output_config", {})["hub_token"] = secret_values(namespace, {"": key})[""]
    with named_as(NAMES, rest=REST):
        document = validated(_DOCUMENT, native.document)
        origin = Origin(
            foreign={DIALECT: foreign}, alias=lookup.alias_of(namespace, name), warnings=native.warnings,
            secret_variables=native.secrets.keys(),
        )  # fmt: skip
        try:
            submission.submit(
                plane(), caller(), document, project=namespace, origin=origin, remember=answering
            )  # fmt: skip
        except Conflict as error:
            if type(error) is not Conflict:
                raise
            raise AlreadyThere(f'trainingjobs.ome.io "{name}" already exists', field="metadata.name") from error
        except Rehearsed as ended:
            found = rehearsed(ended.found, {**ended.found["spec"], "suspend": spec["suspend"]}, {})
            return told(found, 201, native.warnings)
    return told(answering.reply.data, 201, native.warnings)


def _hub_key(spec: Mapping[str, Any], model: models.Located) -> Reference | None:
    """The secret that data and model are read with. Raises BadSpec for two."""
    of_data = hub_key(spec.get("datasets") or {}, "spec.datasets.storageKey")
    if of_data and model.key and of_data.name != model.key.name:
        said = f"is {of_data.name}, but the base model is read with {model.key.name}; a job has one token for the hub"
        raise BadSpec(said, field=of_data.field)
    return of_data or model.key


def _submitted(_session: Session, submitted: Submitted) -> Reply:
    return Reply(object_of(of_new(submitted.job)), 201, warnings=submitted.warnings)


def _submitted_suspended(session: Session, submitted: Submitted) -> Reply:
    """Paused in the transaction that makes it, so that no coordinator can start it before."""
    job = control_requests.wish_pause(session, submitted.job.id, actor=caller().actor, force=True)
    return Reply(object_of(changed(session, job)), 201, warnings=submitted.warnings)


def _rehearsed(_session: Session, submitted: Submitted) -> Reply:
    raise Rehearsed(object_of(of_new(submitted.job)))


def _change(namespace: str, name: str, wanted: Mapping[str, Any], *, rehearses: bool) -> Reply:
    """Raises Conflict when it was changed meanwhile, BadSpec for what can't be changed."""
    refuse_other(wanted, KIND, namespace, name)
    with plane().db.read() as session:
        found = lookup.find(session, namespace, name)
    expected = wanted["metadata"].get("resourceVersion")
    if expected is not None and expected != version_of(found):
        raise Conflict(MODIFIED)
    current = object_of(found)
    _refuse_other_spec(wanted["spec"], current["spec"])
    kept, suspends = kept_of(wanted["metadata"]), wanted["spec"]["suspend"]
    if suspends != current["spec"]["suspend"] and found.job.state in TERMINAL:
        raise BadSpec(f"the job has ended as {found.job.status}", field="spec.suspend")
    warnings = warnings_of({"metadata": wanted["metadata"]}, FIELDS)
    if rehearses:
        return told(rehearsed(current, {**current["spec"], "suspend": suspends}, kept), warnings=warnings)
    if any(kept[part] != current["metadata"][part] for part in kept):
        version = found.job.version if expected is not None else None
        dialect_notes.note(plane(), caller(), found.job.id, dialect=DIALECT, expected_version=version, **kept)
    if suspends and not current["spec"]["suspend"]:
        commands.pause(plane(), caller(), found.job.id, force=True)
    elif current["spec"]["suspend"] and not suspends:
        commands.resume(plane(), caller(), found.job.id)
    return told(_read(namespace, name), warnings=warnings)


def _refuse_other_spec(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """All but suspend stays as it was created; what is left out and has a default is the default."""
    known = validated(_SPEC, {key: value for key, value in current.items() if value is not None})
    asked = shown(wanted)
    for field in sorted(asked.keys() | known.keys()):
        if field != "suspend" and asked.get(field) != known.get(field):
            raise BadSpec("is immutable; delete the job and create it anew", field=f"spec.{field}")


def _runtime(namespace: str, reference: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its spec. Raises BadSpec."""
    name, kind = reference["name"], reference["kind"]
    project = namespace if kind == runtimes.KIND else CLUSTER_SCOPE
    with plane().db.read() as session:
        row = stored_manifests.RUNTIMES.find(session, project, name)
    if row is not None:
        return row.spec
    if kind == runtimes.CLUSTER_KIND and name in runtimes.BUILT_IN:
        return runtimes.BUILT_IN[name]
    known = ", ".join(runtimes.BUILT_IN)
    raise BadSpec(f"there is no {kind} {name}; create it, or name one of {known}", field="spec.runtimeRef.name")
