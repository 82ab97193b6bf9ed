"""Routes of TrainingJobs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from flask import Blueprint, Response, request
from marshmallow import Schema

from app.compat.ome import models, runtimes, storages
from app.compat.ome.api import lookup, patches, tuned_jobs
from app.compat.ome.api.answers import list_or_watch, object_reply
from app.compat.ome.api.bodies import ObjectBody, PatchBody, delete_options, loaded
from app.compat.ome.api.objects import (
    MODIFIED,
    AlreadyExists,
    apply_patch,
    check_identity,
    check_name,
    is_dry_run,
    stored_metadata,
    with_changes,
)
from app.compat.ome.api.queries import ObjectQuerySchema, WatchQuerySchema, WriteQuerySchema
from app.compat.ome.api.sweep_sources import training_jobs
from app.compat.ome.api.targets import target
from app.compat.ome.dialect import BASE
from app.compat.ome.fields import FIELDS
from app.compat.ome.from_native import KIND, object_of
from app.compat.ome.manifests import ChangeSchema, JobSpecSchema, TrainingJobSchema
from app.compat.ome.places import PlacedModel
from app.compat.ome.pod_files import mounts_of_files
from app.compat.ome.sweep_objects import shown_object
from app.compat.ome.to_native import DIALECT, NAMING, Native, to_native, without_secrets
from app.compat.reading import uses_images
from app.compat.secrets import secret_values
from app.domain.errors import BadSpec, Conflict, NotFound
from app.http.context import caller, plane
from app.http.envelope import Reply
from app.http.idempotency import ReplyRecorder
from app.http.operation import operation
from app.http.request_body import validated
from app.schemas.jobs import SubmitJobSchema
from app.schemas.spec.field_verdicts import warnings_of
from app.security.permissions import Permission
from app.services import kubernetes_objects
from app.services.jobs import dry_run as native_dry_run
from app.services.jobs import submission
from app.services.jobs.control import requests as control_requests
from app.services.jobs.details import changed, of_new
from app.services.jobs.dry_run import Preview
from app.services.jobs.submission import Origin, Submitted
from app.services.kubernetes_objects import CLUSTER_SCOPE
from app.services.rows import Session

blueprint = Blueprint("jobs", __name__)
_ALL = f"{BASE}/trainingjobs"
_JOBS = f"{BASE}/namespaces/<namespace>/trainingjobs"
_JOB = f"{_JOBS}/<object_name>"
_DOCUMENT, _SPEC = SubmitJobSchema(), JobSpecSchema()
_OBJECT: Schema = TrainingJobSchema()


@blueprint.get(_ALL)
@operation(
    "List or watch the TrainingJobs of all namespaces",
    permission=Permission.VIEW,
    query=WatchQuerySchema,
    refuses=(400,),
)
def list_everywhere(query: dict[str, Any]) -> Reply | Response:
    return _listed(query)


@blueprint.get(_JOBS)
@operation("List or watch TrainingJobs", permission=Permission.VIEW, query=WatchQuerySchema, refuses=(400,))
def list_jobs(namespace: str, query: dict[str, Any]) -> Reply | Response:  # noqa: ARG001 – the caller is within it
    return _listed(query)


@blueprint.post(_JOBS)
@operation(
    "Create a TrainingJob",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=TrainingJobSchema,
    reader=ObjectBody(_OBJECT),
    status=201,
    rechecks_key=True,
)
def create_job(namespace: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:
    return _create(namespace, body, dry_run="dryRun" in query)


@blueprint.get(_JOB)
@operation("Read a TrainingJob", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_job(namespace: str, object_name: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    return object_reply(_read(namespace, object_name))


@blueprint.get(f"{_JOB}/status")
@operation("Read the status of a TrainingJob", permission=Permission.VIEW, query=ObjectQuerySchema)
def get_status(namespace: str, object_name: str, query: dict[str, Any]) -> Reply:  # noqa: ARG001
    return object_reply(_read(namespace, object_name))


@blueprint.put(_JOB)
@operation(
    "Suspend, resume, label or annotate a TrainingJob by its whole object",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=TrainingJobSchema,
    reader=ObjectBody(_OBJECT),
)
def replace_job(namespace: str, object_name: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:
    return _change(namespace, object_name, body, dry_run="dryRun" in query)


@blueprint.patch(_JOB)
@operation(
    "Change a TrainingJob by a patch, or apply it",
    permission=Permission.MANAGE,
    query=WriteQuerySchema,
    body=ChangeSchema,
    reader=PatchBody(),
    takes=patches.MERGE,
    also={201: ChangeSchema},
)
def patch_job(namespace: str, object_name: str, query: dict[str, Any], body: dict[str, Any]) -> Reply:
    dry_run = "dryRun" in query
    try:
        current = _read(namespace, object_name)
    except NotFound:
        if request.mimetype != patches.APPLY:
            raise
        check_name(body, object_name)
        return _create(namespace, loaded(_OBJECT, body), dry_run=dry_run)
    return _change(namespace, object_name, loaded(_OBJECT, apply_patch(current, body)), dry_run=dry_run)


@blueprint.delete(_JOB)
@operation("Delete a TrainingJob; if it runs, it is cancelled", permission=Permission.MANAGE, query=WriteQuerySchema)
def delete_job(namespace: str, object_name: str, query: dict[str, Any]) -> Reply:
    with plane().db.read() as session:
        found = target(session, namespace, object_name)
    if not is_dry_run(delete_options(), found.shown) and "dryRun" not in query:
        found.withdraw()
    uid = found.shown["metadata"]["uid"]
    details = {"name": object_name, "group": "ome.io", "kind": "trainingjobs", "uid": uid}
    return Reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _listed(query: Mapping[str, Any]) -> Reply | Response:
    return list_or_watch(training_jobs(), query)


def _read(namespace: str, name: str) -> dict[str, Any]:
    with plane().db.read() as session:
        return shown_object(lookup.find_either(session, namespace, name))


def _translated(
    namespace: str,
    name: str,
    spec: Mapping[str, Any],
    labels: Mapping[str, str],
    metadata: Mapping[str, Any],
    model: models.LocatedModel,
) -> Native:
    runtime = _runtime(namespace, spec["runtimeRef"])
    return to_native(
        name,
        spec,
        runtime,
        labels,
        model=PlacedModel(model.location, model.path),
        metadata=metadata,
        uses_images=uses_images(),
        read_files=partial(mounts_of_files, namespace),
    )


def _create(namespace: str, manifest: Mapping[str, Any], *, dry_run: bool) -> Reply:
    """Raises InvalidRequest, and Conflict when a TrainingJob of that name exists."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    check_identity(manifest, KIND, namespace, metadata["name"])
    name, labels = metadata["name"], {**(spec.get("labels") or {}), **(metadata.get("labels") or {})}
    with plane().db.read() as session:
        model = models.located(session, namespace, (spec.get("modelConfig") or {}).get("inputModel"))
    native = _translated(namespace, name, spec, labels, metadata, model)
    foreign = {
        "name": name,
        **stored_metadata(metadata),
        "spec": without_secrets({key: value for key, value in spec.items() if key != "suspend"}),
    }
    native.document["training_config"]["environment"] |= secret_values(namespace, native.secrets)
    native.warnings.extend(_set_access(native.document, namespace, spec, model))
    try:
        if spec.get("hyperParameterTuningConfig"):
            return tuned_jobs.create(namespace, foreign, spec, native, dry_run=dry_run)
        return _submit(namespace, foreign, spec, native, dry_run=dry_run)
    except Conflict as error:
        if type(error) is not Conflict:
            raise
        raise AlreadyExists(f'trainingjobs.ome.io "{name}" already exists', field="metadata.name") from error


def _submit(
    namespace: str, foreign: Mapping[str, Any], spec: Mapping[str, Any], native: Native, *, dry_run: bool
) -> Reply:
    answering = ReplyRecorder(_submitted_suspended if spec["suspend"] else _submitted)
    with NAMING.errors():
        document = validated(_DOCUMENT, native.document)
        origin = Origin(
            foreign={DIALECT: foreign},
            alias=lookup.alias_of(namespace, foreign["name"]),
            warnings=native.warnings,
            secret_variables=native.secrets.keys(),
            retold=NAMING.line,
        )
        submitted: dict[str, Any] = {"project": namespace, "origin": origin}
        if dry_run:
            return _previewed(native_dry_run.preview(plane(), caller(), document, **submitted), spec)
        submission.submit(plane(), caller(), document, **submitted, on_written=answering)
    return object_reply(answering.reply.data, 201, answering.reply.warnings)


def _set_access(
    document: dict[str, Any], namespace: str, spec: Mapping[str, Any], model: models.LocatedModel
) -> list[str]:
    """Set the credentials and options of each place in the document; returns warnings of those without effect."""
    config = spec.get("modelConfig") or {}
    places = [
        (model.storage, "spec.modelConfig.inputModel", document["training_config"]["base_model"]),
        (config.get("outputModel") or {}, "spec.modelConfig.outputModel", document.get("output_config", {})),
        (spec.get("datasets") or {}, "spec.datasets", next(iter(document["data_config"]["sources"]), {})),
    ]
    warnings = []
    for storage, field, part in places:
        found = storages.opened(namespace, storage, field)
        part.update(found.part)
        warnings += found.warnings
    return warnings


def _submitted(_session: Session, submitted: Submitted) -> Reply:
    return Reply(object_of(of_new(submitted.job)), 201, warnings=submitted.warnings)


def _submitted_suspended(session: Session, submitted: Submitted) -> Reply:
    """Paused in the transaction that creates it, so that no coordinator starts it before."""
    job = control_requests.request_pause(session, submitted.job.id, actor=caller().actor, force=True)
    return Reply(object_of(changed(session, job)), 201, warnings=submitted.warnings)


def _previewed(preview: Preview, spec: Mapping[str, Any]) -> Reply:
    """The object that would be created, with the warnings of its creation and of its admission."""
    found = object_of(of_new(preview.job))
    found["spec"]["suspend"] = spec["suspend"]
    return object_reply(found, 201, [*preview.warnings, *map(NAMING.text, preview.refusals)])


def _change(namespace: str, name: str, manifest: Mapping[str, Any], *, dry_run: bool) -> Reply:
    """Raises Conflict when the object was changed meanwhile, BadSpec for a change of an immutable field."""
    check_identity(manifest, KIND, namespace, name)
    with plane().db.read() as session:
        found = target(session, namespace, name)
    expected, current = manifest["metadata"].get("resourceVersion"), found.shown
    if expected is not None and expected != found.shown_version:
        raise Conflict(MODIFIED)
    _refuse_other_spec(manifest["spec"], current["spec"])
    metadata, suspends = stored_metadata(manifest["metadata"]), manifest["spec"]["suspend"]
    if suspends != current["spec"]["suspend"] and found.ended_as:
        raise BadSpec(f"the job has ended as {found.ended_as}", field="spec.suspend")
    warnings = warnings_of({"metadata": manifest["metadata"]}, FIELDS)
    if dry_run:
        return object_reply(
            with_changes(current, {**current["spec"], "suspend": suspends}, metadata), warnings=warnings
        )
    if any(metadata[part] != current["metadata"][part] for part in metadata):
        found.note(expected_version=found.version if expected is not None else None, **metadata)
    if suspends and not current["spec"]["suspend"]:
        found.suspend()
    elif current["spec"]["suspend"] and not suspends:
        found.resume()
    return object_reply(_read(namespace, name), warnings=warnings)


def _refuse_other_spec(manifest: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Every field but suspend is immutable; an omitted field has its default."""
    known = validated(_SPEC, {key: value for key, value in current.items() if value is not None})
    new = without_secrets(manifest)
    for field in sorted(new.keys() | known.keys()):
        if field != "suspend" and new.get(field) != known.get(field):
            raise BadSpec("is immutable; delete the job and create another", field=f"spec.{field}")


def _runtime(namespace: str, reference: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of a runtime. Raises BadSpec."""
    name, kind = reference["name"], reference["kind"]
    project = namespace if kind == runtimes.KIND else CLUSTER_SCOPE
    with plane().db.read() as session:
        row = kubernetes_objects.RUNTIMES.find(session, project, name)
    if row is not None:
        return row.spec
    if kind == runtimes.CLUSTER_KIND and name in runtimes.BUILT_IN:
        return runtimes.BUILT_IN[name]
    known = ", ".join(runtimes.BUILT_IN)
    raise BadSpec(f"there is no {kind} {name}; create it, or name one of {known}", field="spec.runtimeRef.name")
