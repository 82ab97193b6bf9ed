"""Commands for a service that exists: change, pause, resume, delete. A coordinator carries them out."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, Conflict, IllegalTransition, InvalidRequest
from app.domain.serving import rules
from app.domain.serving.document import ServiceDocument
from app.domain.serving.replica_documents import base_document
from app.domain.serving.states import ServiceState
from app.domain.spec.model import JobDocument
from app.domain.spec.secrets import MASK
from app.models import Service
from app.security.permissions import Caller
from app.services.inference.models import WantedModel
from app.services.jobs import submission, uploaded_data
from app.services.jobs.kept_secrets import other_place
from app.services.queues import queues
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.serving import creation, documents, history, lookup, states
from app.services.serving.documents import PreparedService

MODEL = "model"
# Of these sections only what is given changes; others are replaced as a whole.
_MERGED = ("replicas", "adapters", "limits", "defaults")
ENVIRONMENT = "environment"
CHANGEABLE = (*_MERGED, MODEL, "resource_config", "scheduling_config", ENVIRONMENT, "log")


def pause(plane: ControlPlane, caller: Caller, handle: str, *, on_written: OnWritten = not_stored) -> Service:
    """Drain all replicas, and refuse requests until the service is resumed. Idempotent.

    Raises IllegalTransition for a service that was deleted.
    """
    with plane.db.write() as session:
        service = _live(session, caller, handle, "paused")
        if service.status != ServiceState.PAUSED:
            states.move(session, service, ServiceState.PAUSED, actor=caller.actor)
        on_written(session, service)
    return service


def resume(plane: ControlPlane, caller: Caller, handle: str, *, on_written: OnWritten = not_stored) -> Service:
    """Start replicas again, in the name of the caller; of an active service whose replicas fail, at once. Idempotent.

    Raises IllegalTransition for a service that was deleted.
    """
    with plane.db.write() as session:
        service = _live(session, caller, handle, "resumed")
        if service.status != ServiceState.ACTIVE or service.failures or service.pending_reason:
            service.submits_as = caller.key_id
            states.move(session, service, ServiceState.ACTIVE, actor=caller.actor)
            _bound(service)
        on_written(session, service)
    return service


def delete(
    plane: ControlPlane, caller: Caller, handle: str, *, reason: str = "", on_written: OnWritten = not_stored
) -> Service:
    """Drain all replicas and end the service when they have ended; its name is free from then on. Idempotent.

    Raises IllegalTransition for a service that has ended.
    """
    with plane.db.write() as session:
        service = lookup.for_change(session, caller, handle)
        if service.status == ServiceState.ENDED:
            raise _ended(service, "deleted")
        if service.status != ServiceState.ENDING:
            message = f"deleted: {reason}" if reason else "deleted"
            states.move(session, service, ServiceState.ENDING, actor=caller.actor, message=message)
        on_written(session, service)
    return service


def change(
    plane: ControlPlane, caller: Caller, handle: str, changes: Mapping[str, Any], *, on_written: OnWritten = not_stored
) -> Service:
    """Change sections of the document, or the model (a `WantedModel`).

    What concerns the replicas themselves makes a new revision: new ones are started, and old ones are drained once
    new ones answer. Raises InvalidRequest when nothing is named or a rule is broken, IllegalTransition for a service
    that was deleted, and Conflict when another change came between, or for another model than the registered one whose
    name it has.
    """
    if not changes:
        raise InvalidRequest(f"the body names nothing to change; name at least one of {', '.join(CHANGEABLE)}")
    with plane.db.read() as session:
        before = lookup.service(session, caller, handle)
        _require_live(before, "changed")
        session.expunge(before)
    prepared = _prepared(plane, caller, before, changes)
    with plane.db.write() as session:
        queues.require(session, prepared.document.scheduling_config.queue, field="scheduling_config.queue")
        service = _live(session, caller, before.id, "changed")
        if (service.spec, service.revision, service.base) != (before.spec, before.revision, before.base):
            raise Conflict(f"the service {service.name} was changed meanwhile; repeat the request")
        if MODEL in changes:
            creation.refuse_name_of_other_model(session, service.project, prepared, field=MODEL)
        _apply(session, plane, caller, service, prepared, changes)
        on_written(session, service)
    return service


def _prepared(plane: ControlPlane, caller: Caller, service: Service, changes: Mapping[str, Any]) -> PreparedService:
    """The changed document, with that of its replicas, checked as at the creation."""
    document = _merged(service, changes)
    rules.check(document)
    stored = JobDocument.from_json(service.base)
    model = changes.get(MODEL)
    if isinstance(model, WantedModel):
        document = document.changed(model=documents.as_shown(model))
        made = documents.with_model(plane, caller, document, model, project=service.project, service_id=service.id)
    else:
        base, reference = documents.model_of(stored)
        made = base_document(document, base, reference, service_id=service.id)
    opened, tokens, hidden = documents.with_its_secrets(plane, service, stored)
    kept = opened.training_config.environment
    environment = _environment(changes[ENVIRONMENT], kept) if ENVIRONMENT in changes else kept
    hidden = [name for name in hidden if environment.get(name) == kept.get(name)]
    made = _with_kept_secrets(made, stored, opened, environment)
    _refuse_other_places(caller, service, stored, made)
    return documents.checked(plane, caller, document, made, project=service.project, forwarded=tokens, hidden=hidden)


def _refuse_other_places(caller: Caller, service: Service, stored: JobDocument, made: JobDocument) -> None:
    """Raise Conflict where copies would give secrets of another key to another program or send them elsewhere."""
    if not service.sealed_secrets or {service.created_by, service.submits_as} == {caller.key_id}:
        return
    if name := other_place(stored.resource_config, made.resource_config):
        raise Conflict(
            f"resource_config.{name} changes what service {service.name} runs or reaches, which has secrets that "
            "another key gave; leave it as it is, or create a service with your own secrets"
        )


def _environment(wanted: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
    """A masked value, as answers show secrets, stands for the one that the variable has."""
    if unknown := next((name for name, value in wanted.items() if value == MASK and name not in kept), None):
        raise BadSpec(
            f"{MASK} stands for the value that a variable has, and the service has no {unknown}; give its value",
            field=f"{ENVIRONMENT}.{unknown}",
        )
    return {name: kept[name] if value == MASK else value for name, value in wanted.items()}


def _with_kept_secrets(
    made: JobDocument, stored: JobDocument, opened: JobDocument, environment: Mapping[str, str]
) -> JobDocument:
    """``made`` with the secrets of those parts that are as they were; ``opened`` is the stored document with them."""
    training, was = made.training_config, stored.training_config
    training = training.changed(environment=dict(environment))
    if training.base_model == was.base_model:
        training = training.changed(base_model=opened.training_config.base_model)
    is_same = made.resource_config == stored.resource_config
    resources = opened.resource_config if is_same else made.resource_config
    return made.changed(training_config=training, resource_config=resources)


def _merged(service: Service, changes: Mapping[str, Any]) -> ServiceDocument:
    found = dict(service.spec)
    for name, value in changes.items():
        if name in _MERGED:
            found[name] = {**found.get(name, {}), **value}
        elif name != MODEL:
            found[name] = value
    return ServiceDocument.from_json(found)


def _apply(
    session: Session,
    plane: ControlPlane,
    caller: Caller,
    service: Service,
    prepared: PreparedService,
    changes: Mapping[str, Any],
) -> None:
    is_new_revision = prepared.base != service.base
    if is_new_revision:
        submission.refuse_foreign_results(session, prepared.checked.reading, service.project, prepared.checked.spec)
        kept = uploaded_data.files_of(JobDocument.from_json(service.base))
        creation.refuse_unusable_files(session, service.project, prepared, kept=kept)
        service.base, service.sealed_secrets = prepared.base, documents.sealed(plane, prepared)
        service.model_key = prepared.key
        service.revision += 1
        service.submits_as = caller.key_id
        service.failures, service.not_before_at, service.pending_reason = 0, None, ""
    service.spec = prepared.spec
    _bound(service)
    service.is_automatic = False  # a user maintains it from now on
    service.mark_changed()
    message = f"changed: {', '.join(sorted(changes))}"
    if is_new_revision:
        message += f"; replicas of revision {service.revision} replace the others"
    data = {"revision": service.revision}
    history.record_change(session, service, actor=caller.actor, message=message, data=data)


def _bound(service: Service) -> None:
    """As many replicas as the document allows and demands; a service that wants any is stepped."""
    replicas = ServiceDocument.from_json(service.spec).replicas
    if service.status == ServiceState.ACTIVE:
        service.wanted = min(replicas.max, max(replicas.min, service.wanted))


def _live(session: Session, caller: Caller, handle: str, done: str) -> Service:
    """The service, locked. Raises IllegalTransition when it was deleted."""
    service = lookup.for_change(session, caller, handle)
    _require_live(service, done)
    return service


def _require_live(service: Service, done: str) -> None:
    if service.status in (ServiceState.ENDING, ServiceState.ENDED):
        raise _ended(service, done)


def _ended(service: Service, done: str) -> IllegalTransition:
    return IllegalTransition(
        f"the service {service.name} ({service.id}) was deleted and is {service.status}; it cannot be {done}"
    )
