"""Creating a service: its replicas are checked as jobs before anything is written; a coordinator starts them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.domain.errors import Conflict
from app.domain.ids import new_id
from app.domain.serving.document import ServiceDocument
from app.domain.serving.events import ServiceEventType
from app.models import Service
from app.models.insertion import fill
from app.security.permissions import Caller
from app.services.access import projects
from app.services.inference.models import WantedModel
from app.services.jobs import dry_run, submission, uploaded_data
from app.services.jobs.dry_run import DryRunPlan
from app.services.lifecycle import audit
from app.services.model_registry import resolving
from app.services.queues import queues
from app.services.requests.control_plane import ControlPlane
from app.services.requests.idempotency import OnWritten, not_stored
from app.services.serving import documents, history, lookup
from app.services.serving.documents import PreparedService


@dataclass(frozen=True, kw_only=True)
class NewService:
    """A service that was asked for; ``document`` lacks the section ``model``."""

    document: ServiceDocument
    model: WantedModel


@dataclass(frozen=True, kw_only=True)
class CreatedService:
    """``warnings``: `field: reason` of what has no effect, or why its replicas would wait."""

    service: Service
    warnings: Sequence[str] = ()


def create(
    plane: ControlPlane,
    caller: Caller,
    new: NewService,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    is_automatic: bool = False,
    on_written: OnWritten = not_stored,
) -> Service:
    """Store a new ACTIVE service.

    Raises InvalidRequest for the first broken rule, NotFound for a model that the project does not have, and Conflict
    for weights that can't be used yet, or when a live service of the project has its
    name, or another model.
    """
    target = project or caller.home_project
    caller.require_project(target)
    service_id = new_id("service")
    prepared = documents.prepare(
        plane, caller, new.document, new.model, project=target, service_id=service_id, forwarded=forwarded
    )
    service = _row(plane, caller, prepared, service_id=service_id, is_automatic=is_automatic)
    with plane.db.write() as session:
        projects.visible(session, caller, target)
        queues.require(session, new.document.scheduling_config.queue, field="scheduling_config.queue")
        _refuse_taken_name(session, target, prepared)
        # Locks the job whose model it is until the row is there that keeps it from being deleted.
        submission.refuse_foreign_results(session, prepared.checked.reading, target, prepared.checked.spec)
        refuse_unusable_files(session, target, prepared)
        _write(session, caller, service)
        on_written(session, CreatedService(service=service, warnings=warnings_of(prepared)))
    return service


def plan(
    plane: ControlPlane,
    caller: Caller,
    new: NewService,
    *,
    project: str | None = None,
    forwarded: Mapping[str, str] = MappingProxyType({}),
) -> tuple[DryRunPlan, Sequence[str]]:
    """(where its first replica could run, warnings); writes nothing. Raises what `create` would raise."""
    target = project or caller.home_project
    caller.require_project(target)
    prepared = documents.prepare(
        plane, caller, new.document, new.model, project=target, service_id=new_id("service"), forwarded=forwarded
    )
    with plane.db.read() as session:
        projects.visible(session, caller, target)
        _refuse_taken_name(session, target, prepared)
    with documents.fields_of_service():
        found = dry_run.plan(plane, caller, prepared.made, project=target, forwarded=forwarded)
    return found, [documents.of_service(line) for line in found.warnings]


def refuse_unusable_files(
    session: Session, project: str, prepared: PreparedService, *, kept: Collection[str] = frozenset()
) -> None:
    """As `uploaded_data` says, of the files that its replicas would read."""
    with documents.fields_of_service():
        uploaded_data.refuse_unusable_files(session, project, prepared.checked.spec.document, kept=kept)


def warnings_of(prepared: PreparedService) -> list[str]:
    return [documents.of_service(line) for line in (*prepared.checked.waits, *prepared.checked.warnings)]


def _row(
    plane: ControlPlane, caller: Caller, prepared: PreparedService, *, service_id: str, is_automatic: bool
) -> Service:
    document = prepared.document
    service = Service(
        id=service_id,
        project=prepared.checked.project,
        name=document.name,
        created_by=caller.key_id,
        submits_as=caller.key_id,
        spec=prepared.spec,
        base=prepared.base,
        sealed_secrets=documents.sealed(plane, prepared),
        task=document.task,
        model_key=prepared.key,
        is_automatic=is_automatic,
        wanted=document.replicas.min,
    )
    fill(service)
    return service


def _write(session: Session, caller: Caller, service: Service) -> None:
    session.add(service)
    try:
        session.flush()
    except IntegrityError as error:
        raise _taken(service.name) from error
    made_by = "made by the first request for its model" if service.is_automatic else f"serves {service.model_key}"
    history.record(session, service, ServiceEventType.CREATED, actor=caller.actor, message=made_by)
    audit.record(
        session,
        actor=caller.actor,
        action="service.create",
        project=service.project,
        target=service.id,
        message=service.name,
    )


def _refuse_taken_name(session: Session, project: str, prepared: PreparedService) -> None:
    name = prepared.document.name
    if lookup.live(session, project, name) is not None:
        raise _taken(name)
    refuse_name_of_other_model(session, project, prepared, field="name")


def refuse_name_of_other_model(session: Session, project: str, prepared: PreparedService, *, field: str) -> None:
    """A service with the name of a registered model serves that model: requests that name it ask for it."""
    name = prepared.document.name
    model = resolving.base_named(session, project, name)
    if model is not None and not documents.serves(prepared.checked.spec.document, str(model.location)):
        raise Conflict(
            f"{name} is the name of a registered model ({model.location}), and this service has {prepared.key}; take "
            "another name, or serve that model",
            field=field,
        )


def _taken(name: str) -> Conflict:
    return Conflict(
        f"the project has a service {name} already; take another name, change that one (PATCH /v1/services/{name}), or "
        "delete it first",
        field="name",
    )
