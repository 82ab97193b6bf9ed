"""What the name of a model in a request of a batch means: as for single requests, and any place that jobs may read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import Conflict, NamedModelNotFound, NotFound, TrainyardError
from app.domain.spec.inference import EMBED, EMBEDDINGS, GENERATE
from app.domain.spec.locations import paths
from app.domain.spec.model import BaseModel, JobDocument
from app.models import Service
from app.security.permissions import Caller
from app.services.inference.models import WantedModel
from app.services.jobs.made_models import LOADING
from app.services.model_registry import permissions, resolving
from app.services.requests.control_plane import ControlPlane
from app.services.serving import documents, routing
from app.services.serving.routing import Route

_OF_ANSWERS = ("name", "max_context", "max_output_tokens", "defaults")  # of a service


@dataclass(frozen=True, kw_only=True)
class Meant:
    """``tokens``: those of the user who made the service, for a model that needs them; ``serving``: what the service
    says of answers.
    """

    model: WantedModel
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    serving: Mapping[str, Any] = field(default_factory=dict)


def meant(plane: ControlPlane, session: Session, caller: Caller, name: str, endpoint: str) -> Meant:
    """In this order: a service's name, SERVICE/JOB, a registered name, a fine-tune, a job, a place.

    Raises NamedModelNotFound with the names there are, and Conflict for a model that can't be used, or that answers
    other requests, or that another project only lets be asked.
    """
    project = caller.home_project
    task = EMBED if endpoint == EMBEDDINGS else GENERATE
    route = routing.by_name(session, caller, project, name, task)
    if route is not None:
        return _of_service(plane, session.get_one(Service, route.service_id), route)
    if (shared := permissions.shared(session, project, name)) is not None:
        raise Conflict(
            f"{name} is a model of the project {shared.owner}, which lets this project ask it and not run it: a batch "
            "is answered by a job that loads the model. Ask it by single requests",
            field="model",
        )
    try:
        meaning = resolving.meaning(session, caller, project, routing.native_name(name))
    except NotFound as error:
        raise routing.missing(session, caller, project, name) from error
    if meaning is None:
        _require_place(plane, session, caller, name)
        return Meant(model=WantedModel(base=BaseModel().changed(model_id=name)))
    if meaning.job_id is None:
        return Meant(model=WantedModel(base=BaseModel().changed(model_id=str(meaning.location))))
    return Meant(model=WantedModel(job_id=meaning.job_id, checkpoint=meaning.checkpoint_id))


def _of_service(plane: ControlPlane, service: Service, route: Route) -> Meant:
    """The model that the service has, loaded as its replicas load it; or an adapter on it."""
    opened, tokens, _ = documents.with_its_secrets(plane, service, JobDocument.from_json(service.base))
    base, reference = documents.model_of(opened)
    job_id, checkpoint = reference.job_id, reference.checkpoint_id
    if route.adapter is not None:
        job_id, _, of_job = route.adapter.partition("/")
        checkpoint = of_job or None
    if job_id is not None:
        base = BaseModel().changed(**{name: getattr(base, name) for name in base.given if name in LOADING})
    model = WantedModel(job_id=job_id, checkpoint=checkpoint, base=base, quantization=reference.quantization)
    return Meant(model=model, tokens=tokens, serving=_serving_of(opened))


def _serving_of(document: JobDocument) -> Mapping[str, Any]:
    """A single request's limits and defaults, which hold for those of a batch, too."""
    serving = document.inference.serving.to_json() if document.inference is not None else {}
    return {name: serving[name] for name in _OF_ANSWERS if name in serving}


def _require_place(plane: ControlPlane, session: Session, caller: Caller, name: str) -> None:
    """A name without a slash must be registered, else it would be the id of a hub model."""
    absent = routing.missing(session, caller, caller.home_project, name)
    if "/" not in name:
        hint = "an id of the hub without an owner is registered first, by trainyard models add"
        raise NamedModelNotFound(f"{absent.message}; {hint}", field=absent.field) from None
    if not name.isprintable():
        raise absent
    try:
        paths.check_model(name, plane.reading.of(caller.home_project), field="model")
    except TrainyardError:
        raise absent from None
