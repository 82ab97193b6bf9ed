"""Which service answers a request, by the model that it names; the first request for a model may make one."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.administration import AS_INSTALLED, MAKES_SERVICES
from app.domain.errors import Conflict, ModelNotServed, NamedModelNotFound, NotFound, TrainyardError
from app.domain.ids import JOB_ID
from app.domain.serving.document import NONE, Replicas, ServiceDocument
from app.domain.serving.model_keys import model_key
from app.domain.serving.states import ServiceState
from app.domain.spec.inference import EMBED, GENERATE, SCORE, ModelReference
from app.domain.spec.locations import paths
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.rules.model import is_result
from app.domain.suggestions import did_you_mean
from app.models import Job, Project, Service
from app.security.permissions import Caller, Permission
from app.services.inference import models
from app.services.inference.models import WantedModel
from app.services.model_registry import permissions, registered, resolving
from app.services.model_registry.permissions import Shared
from app.services.requests.control_plane import ControlPlane
from app.services.serving import adapters, adoption, creation, documents, lookup
from app.services.serving.creation import NewService

FIELD = "model"
_ANSWERS = {
    GENERATE: "makes text: ask for chat completions or completions",
    EMBED: "makes vectors: ask for embeddings",
    SCORE: "scores documents: ask for a rerank",
}
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_FOREIGN_JOB, _JOB = "ftjob-", "job-"  # beginnings of the same id
_LONGEST_LABEL = 40
_KEY_LENGTH = 8
_NAMES_TRIED = 8
_LONGEST_SHOWN = 128


@dataclass(frozen=True, kw_only=True)
class Route:
    """``adapter``: `JOB_ID` or `JOB_ID/CHECKPOINT_ID` of the adapter that answers; None: the service's own model.

    ``project``: that of the request. ``shared``: the service is of another project, which the client sees nothing of.
    """

    service_id: str
    project: str
    model: str
    adapter: str | None = None
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """Weights that a name means: services with this ``key`` have them; ``make`` is what a new one would serve."""

    key: str
    make: WantedModel
    adapter: str | None = None


def route(plane: ControlPlane, caller: Caller, model: str, *, task: str, auto: bool = True) -> Route:
    """The service of the caller's project, or of one whose model it may ask, for a request of this task.

    An automatic service whose key has ended is continued in the caller's name.

    In this order: a service's name, SERVICE/JOB, what the name means as a model. Adapters are answered by a service
    of the model that they were trained on. A model without a service gets one, if it is registered or was made here,
    and the project says so, or leaves it to the settings (``auto``).

    Raises NamedModelNotFound with the names there are, ModelNotServed with the command that serves it, and Conflict for
    a model that can't be used, or that answers other requests.
    """
    caller.require(Permission.INFER)
    found = _found(plane, caller, model, task, auto=auto)
    if not found.shared:
        adoption.adopt(plane, caller, found.service_id)
    return found


def _found(plane: ControlPlane, caller: Caller, model: str, task: str, *, auto: bool) -> Route:
    project = caller.home_project
    with plane.db.read() as session:
        named = by_name(session, caller, project, model, task)
        if named is not None:
            return named
        shared = permissions.shared(session, project, model)
        if shared is not None:
            return _of_other_project(plane, session, caller, shared, task)
        choices = _meant(plane, session, caller, project, model, task)
        found = _served(session, project, choices, model, task)
        may_make = found is None and _makes_services(session, project, auto=auto)
    if found is not None:
        return found
    wanted = choices[-1]
    if not may_make:
        raise _not_served(model)
    return _made(plane, caller, wanted, model, task)


def _makes_services(session: Session, project: str, *, auto: bool) -> bool:
    chosen = session.scalar(select(Project.auto_services).where(Project.name == project))
    return auto if chosen in (None, AS_INSTALLED) else chosen == MAKES_SERVICES


def by_name(session: Session, caller: Caller, project: str, model: str, task: str) -> Route | None:
    """A service, or an adapter on one that is named with it."""
    name, slash, adapter = model.partition("/")
    service = lookup.live(session, project, name) if name.isprintable() else None
    if service is None or service.status == ServiceState.ENDING:
        return None
    if service.task != task:
        raise Conflict(f"the service {name} {_ANSWERS[service.task]}", field=FIELD)
    if not slash:
        return Route(service_id=service.id, project=project, model=model)
    return Route(
        service_id=service.id,
        project=project,
        model=model,
        adapter=_adapter_on(session, caller, service, model, adapter),
    )


def _adapter_on(session: Session, caller: Caller, service: Service, model: str, adapter: str) -> str:
    """The adapter that SERVICE/JOB or SERVICE/JOB/CHECKPOINT names; the replica checks once more before it loads it."""
    job_id, _, checkpoint_id = native_name(adapter).partition("/")
    try:
        meaning = resolving.meaning(session, caller, service.project, job_id)
    except NotFound as error:
        raise missing(session, caller, service.project, model) from error
    if meaning is None or meaning.job_id is None:
        raise missing(session, caller, service.project, model)
    checkpoint = checkpoint_id or meaning.checkpoint_id
    if not _has_adapters(service):
        raise Conflict(f"the service {service.name} has no adapters; change its adapters.from", field=FIELD)
    resolved, reference = _resolved(session, caller, service.project, _reference(meaning.job_id, checkpoint))
    if not reference.adapter:
        raise Conflict(f"{meaning.job_id} made a whole model, not an adapter; ask for {meaning.job_id}", field=FIELD)
    adapters.refuse_divided(reference)
    trained_on = _base_key(resolved, session.get(Job, meaning.job_id))
    if trained_on != service.model_key:
        raise Conflict(
            f"the adapter of {meaning.job_id} was trained on {trained_on}, and the service {service.name} has "
            f"{service.model_key}; ask for {meaning.job_id}",
            field=FIELD,
        )
    return _adapter_name(reference)


def _meant(plane: ControlPlane, session: Session, caller: Caller, project: str, model: str, task: str) -> list[_Wanted]:
    """What may answer for a model, the best last: the adapter's own service, or its base with the adapter.

    Raises NamedModelNotFound, and ModelNotServed for a location that no service has.
    """
    try:
        meaning = resolving.meaning(session, caller, project, native_name(model))
    except NotFound as error:
        raise missing(session, caller, project, model) from error
    if meaning is None:
        return [_location(plane, session, caller, project, model, task)]
    if meaning.job_id is None:
        base = BaseModel().changed(model_id=str(meaning.location))
        return [_Wanted(key=model_key(base, ModelReference()), make=WantedModel(base=base))]
    named = _reference(meaning.job_id, meaning.checkpoint_id)
    resolved, reference = _resolved(session, caller, project, named)
    models.refuse_unfit(session, reference, task)
    own = _Wanted(key=model_key(resolved, reference), make=named)
    if not reference.adapter or reference.divided or task != GENERATE:
        return [own]
    job = session.get(Job, meaning.job_id)
    on_base = _base_of(resolved, job)
    return [own, _Wanted(key=_base_key(resolved, job), make=on_base, adapter=_adapter_name(reference))]


def _of_other_project(plane: ControlPlane, session: Session, caller: Caller, shared: Shared, task: str) -> Route:
    """A service that the model's own project has. Errors say nothing of its jobs and services.

    None is made for those of other projects: they would decide what it runs.
    """
    project = caller.home_project
    within = replace(caller, project=shared.owner)
    try:
        choices = _meant(plane, session, within, shared.owner, shared.name, task)
    except NotFound:
        raise missing(session, caller, project, shared.name) from None
    except TrainyardError:
        raise Conflict(f"{shared.name} can't answer such requests", field=FIELD) from None
    found = _served(session, shared.owner, choices, shared.name, task)
    if found is None:
        raise ModelNotServed(
            f"no service of the project {shared.owner} has the model {shared.name}; ask it to make one", field=FIELD
        )
    return replace(found, project=project, shared=True)


def _location(plane: ControlPlane, session: Session, caller: Caller, project: str, model: str, task: str) -> _Wanted:
    """A hub id or a path: it never gets an automatic service."""
    key = model_key(BaseModel().changed(model_id=model), ModelReference())
    wanted = _Wanted(key=key, make=WantedModel())
    if model.isprintable() and _served(session, project, [wanted], model, task) is not None:
        return wanted
    absent = missing(session, caller, project, model)
    name, slash, adapter = model.partition("/")
    if not slash or not model.isprintable() or _is_ending(session, project, name):
        raise absent
    if JOB_ID.fullmatch(native_name(adapter).partition("/")[0]) is not None:
        raise _with_message(
            absent, f"no service {name[:_LONGEST_SHOWN]}; ask for SERVICE/JOB, or for the job's id alone"
        )
    try:
        paths.check_model(model, plane.reading.of(project), field=FIELD)
    except TrainyardError:
        raise absent from None  # none could be made
    raise _not_served(model)


def _served(session: Session, project: str, choices: Sequence[_Wanted], model: str, task: str) -> Route | None:
    """The first of the choices that a service has; automatic ones come last.

    Quantized weights answer differently: a service of those is asked by its own name alone.
    """
    for wanted in choices:
        of_key = select(Service).where(
            Service.project == project,
            Service.model_key == wanted.key,
            Service.task == task,
            Service.ended_at.is_(None),
        )
        rows = session.scalars(of_key.order_by(Service.is_automatic, Service.created_at, Service.id))
        fits = [each for each in rows if each.status != ServiceState.ENDING and not _is_quantized(each)]
        fits = [each for each in fits if wanted.adapter is None or _has_adapters(each)]
        if fits:
            best = next((each for each in fits if each.status == ServiceState.ACTIVE), fits[0])
            return Route(service_id=best.id, project=project, model=model, adapter=wanted.adapter)
    return None


def _made(plane: ControlPlane, caller: Caller, wanted: _Wanted, model: str, task: str) -> Route:
    """A new service with the model, and no replica yet. Another request may make it at the same time."""
    project = caller.home_project
    label = wanted.make.job_id or wanted.make.base.model_id
    for name in _names(label, f"{wanted.key} {task}"):
        document = ServiceDocument().changed(name=name, task=task, replicas=Replicas().changed(min=0, max=1))
        try:
            made = creation.create(
                plane, caller, NewService(document=document, model=wanted.make), project=project, is_automatic=True
            )
        except Conflict as error:
            if error.field != "name":
                raise
        except TrainyardError as error:
            error.field = FIELD
            raise
        else:
            return Route(service_id=made.id, project=project, model=model, adapter=wanted.adapter)
        with plane.db.read() as session:
            found = _served(session, project, [wanted], model, task)
        if found is not None:
            return found
    raise _not_served(model)


def _names(label: str, key: str) -> list[str]:
    """Names for a service of these weights, the same each time; later ones while services of earlier ones end."""
    short = _NOT_IN_NAMES.sub("-", label.rstrip("/").rpartition("/")[2].lower())[:_LONGEST_LABEL].strip("-") or "model"
    digest = hashlib.sha256(key.encode()).hexdigest()[:_KEY_LENGTH]
    first = f"{short}-{digest}"
    return [first, *(f"{first}-{number}" for number in range(2, _NAMES_TRIED))]


def _reference(job_id: str, checkpoint_id: str | None) -> WantedModel:
    return WantedModel(job_id=job_id, checkpoint=checkpoint_id)


def _resolved(session: Session, caller: Caller, project: str, wanted: WantedModel) -> tuple[BaseModel, ModelReference]:
    try:
        return models.resolve(session, caller, project, wanted)
    except TrainyardError as error:
        error.field = FIELD
        raise


def _base_key(resolved: BaseModel, job: Job | None) -> str:
    """The key of the model that an adapter was trained on."""
    return adapters.model_of(job.document.training_config.base_model if job is not None else resolved)


def _base_of(resolved: BaseModel, job: Job | None) -> WantedModel:
    """The model that an adapter was trained on, as a new service would have it."""
    base = job.document.training_config.base_model if job is not None else resolved
    return WantedModel(job_id=base.job_id) if is_result(base) else WantedModel(base=resolved)


def _adapter_name(reference: ModelReference) -> str:
    return "/".join(each for each in (reference.job_id, reference.checkpoint_id) if each is not None)


def _has_adapters(service: Service) -> bool:
    document = ServiceDocument.from_json(service.spec)
    return service.task == GENERATE and document.adapters.source != NONE


def _is_quantized(service: Service) -> bool:
    _, reference = documents.model_of(JobDocument.from_json(service.base))
    return reference.quantization != ModelReference().quantization


def native_name(model: str) -> str:
    """The name with the id of a fine-tuning job as our own."""
    return f"{_JOB}{model.removeprefix(_FOREIGN_JOB)}" if model.startswith(_FOREIGN_JOB) else model


def _not_served(model: str) -> ModelNotServed:
    shown = model[:_LONGEST_SHOWN]
    return ModelNotServed(
        f"no service has the model {shown}; make one with: trainyard serve {shown} --name NAME", field=FIELD
    )


def missing(session: Session, caller: Caller, project: str, model: str) -> NamedModelNotFound:
    """As `registered.missing`, with the names of services before those of models."""
    live = select(Service.name).where(
        Service.project == project,
        Service.ended_at.is_(None),
        Service.status != ServiceState.ENDING,
        Service.is_automatic.is_(False),
    )
    names = session.scalars(live.order_by(Service.name).limit(10)).all()
    error = registered.missing(session, caller, model)
    name = model.partition("/")[0]
    if _is_ending(session, project, name):
        _with_message(error, f"the service {name} is being deleted; {error.message}")
    known = f"; services: {', '.join(names)}{did_you_mean(name, names)}" if names else ""
    return _with_message(error, f"{error.message}{known}")


def _with_message(error: NamedModelNotFound, message: str) -> NamedModelNotFound:
    error.message, error.args = message, (message,)
    return error


def _is_ending(session: Session, project: str, name: str) -> bool:
    service = lookup.live(session, project, name) if name.isprintable() else None
    return service is not None and service.status == ServiceState.ENDING
