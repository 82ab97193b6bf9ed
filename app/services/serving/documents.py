"""The document of a service's replicas as it is checked and stored: with its model resolved, and secrets apart."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from app.domain.errors import BadSpec, TrainyardError
from app.domain.serving import rules
from app.domain.serving.document import ServiceDocument
from app.domain.serving.model_keys import model_key
from app.domain.serving.replica_documents import base_document
from app.domain.spec.inference import Inference, ModelReference
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.secrets import MASK, secret_variables, with_secrets
from app.domain.spec.user_tokens import PREFIX
from app.models import Service
from app.security.permissions import Caller
from app.services.inference import models
from app.services.inference.models import WantedModel
from app.services.inference.submission import as_submitted, fields_as_submitted
from app.services.jobs import submission
from app.services.jobs.submission import Checked
from app.services.requests.control_plane import ControlPlane

# Prefix of a field of a replica's document → that of the service's; others are as in requests for inference.
_FIELDS = (
    ("inference.serving.defaults", "defaults"),
    ("inference.serving.max_loaded", "adapters.max_loaded"),
    ("inference.serving.max_rank", "adapters.max_rank"),
    ("inference.serving.", "limits."),
    ("inference.task.type", "task"),
    ("training_config.framework", "engine"),
)


@dataclass(frozen=True, kw_only=True)
class PreparedService:
    """A service's document with that of its replicas, which passed all rules of a submission."""

    document: ServiceDocument
    made: JobDocument
    checked: Checked

    @property
    def base(self) -> dict[str, Any]:
        """Without secrets, as it is stored."""
        return self.checked.spec.document.to_json()

    @property
    def spec(self) -> dict[str, Any]:
        """The service's document without secrets, as it is stored."""
        stored = self.checked.spec.document
        shown = self.document.changed(
            environment=dict(stored.training_config.environment), resource_config=stored.resource_config
        )
        return shown.to_json()

    @property
    def key(self) -> str:
        base, reference = model_of(self.checked.spec.document)
        return model_key(base, reference)


def prepare(
    plane: ControlPlane,
    caller: Caller,
    document: ServiceDocument,
    model: WantedModel,
    *,
    project: str,
    service_id: str,
    forwarded: Mapping[str, str] = MappingProxyType({}),
) -> PreparedService:
    """Resolve the model and check the replicas as jobs. Raises as `models.resolve` and a submission."""
    rules.check(document)
    made = with_model(plane, caller, document, model, project=project, service_id=service_id)
    shown = document.changed(model=as_shown(model))
    return checked(plane, caller, shown, made, project=project, forwarded=forwarded)


def with_model(
    plane: ControlPlane, caller: Caller, document: ServiceDocument, model: WantedModel, *, project: str, service_id: str
) -> JobDocument:
    """The document of replicas of this model. Raises as `models.resolve`, and BadSpec for one without such answers."""
    if model.service is not None:
        raise BadSpec(
            "a service has a model of its own, not another service; name it by job_id or model_uri",
            field="model.service",
        )
    with plane.db.read() as session:
        base, reference = models.resolve(session, caller, project, model)
        with fields_of_service():
            models.refuse_unfit(session, reference, document.task)
    return base_document(document, base, reference, service_id=service_id)


def checked(
    plane: ControlPlane,
    caller: Caller,
    document: ServiceDocument,
    made: JobDocument,
    *,
    project: str,
    forwarded: Mapping[str, str] = MappingProxyType({}),
    hidden: Collection[str] = (),
) -> PreparedService:
    """All checks of a submission before its transaction. ``hidden``: secret variables, whatever their names."""
    with fields_of_service():
        found = submission.check(plane, caller, made, project=project, forwarded=forwarded, secret_variables=hidden)
    return PreparedService(document=document, made=made, checked=found)


def model_of(document: JobDocument) -> tuple[BaseModel, ModelReference]:
    return document.training_config.base_model, (document.inference or Inference()).model


def serves(document: JobDocument, location: str) -> bool:
    """Whether replicas of this document have the model at a location, as it is."""
    base, reference = model_of(document)
    exact = base.model_id == location and not base.revision and reference.job_id is None
    return exact and reference.checkpoint_id is None and reference.quantization == ModelReference().quantization


def as_shown(model: WantedModel) -> dict[str, Any]:
    """The reference as a request writes it, without credentials."""
    place = model.base.without("model_id", "credentials").to_json()
    masked = {"credentials": dict.fromkeys(model.base.credentials, MASK)} if model.base.credentials else {}
    named = {"job_id": model.job_id, "checkpoint": model.checkpoint, "model_uri": model.base.model_id or None}
    given = {name: value for name, value in named.items() if value is not None}
    return {**given, **place, **masked, "quantization": model.quantization}


def with_its_secrets(
    plane: ControlPlane, service: Service, document: JobDocument
) -> tuple[JobDocument, dict[str, str], list[str]]:
    """(a document of the service with its secrets, the user's tokens, names of its secret variables)."""
    secrets = plane.box.open(service.sealed_secrets) if service.sealed_secrets else {}
    own = {path: value for path, value in secrets.items() if not path.startswith(PREFIX)}
    tokens = {path.removeprefix(PREFIX): value for path, value in secrets.items() if path.startswith(PREFIX)}
    return with_secrets(document, own), tokens, secret_variables(secrets)


def sealed(plane: ControlPlane, prepared: PreparedService) -> str:
    secrets = prepared.checked.spec.secrets
    return plane.box.seal(dict(secrets)) if secrets else ""


def of_service(field: str) -> str:
    """A field of a replica's document, or a text that begins with one, in the words of the service's."""
    for stored, shown in _FIELDS:
        if field.startswith(stored):
            return shown + field.removeprefix(stored)
    return as_submitted(field)


@contextmanager
def fields_of_service(retold: Callable[[str], str] = of_service) -> Iterator[None]:
    """Make errors name the field of the service's document, not that of its replicas."""
    try:
        with fields_as_submitted(retold):
            yield
    except TrainyardError as error:
        if error.field == "task.type":  # as `models.refuse_unfit` calls it
            error.field = "task"
        raise
