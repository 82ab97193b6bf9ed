"""Resolves {"service": NAME}, a running service that a job asks, to the model whose tokenizer the job loads."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, Conflict, NotFound
from app.domain.serving.states import ServiceState
from app.domain.spec.credentials import CREDENTIALS
from app.domain.spec.inference import EMBED, GENERATE, SCORE, Inference, ModelReference
from app.domain.spec.model import BaseModel, JobDocument
from app.models import Service
from app.security.permissions import Caller, Permission

FIELD = "model.service"
_MAKES = {
    GENERATE: f"makes text; set task.type to {GENERATE}, or name another",
    EMBED: f"makes vectors; set task.type to {EMBED}, or name another",
    SCORE: "scores documents for single requests; name its model by job_id or model_uri",
}


def resolve(session: Session, caller: Caller, project: str, name: str) -> tuple[BaseModel, ModelReference]:
    """``training_config.base_model`` and ``inference.model`` of a job that asks the service.

    Credentials of the service's model stay its own. Raises Forbidden, NotFound, and Conflict for a service that
    is being deleted.
    """
    caller.require(Permission.INFER)
    service = _live(session, project, name)
    if service is None:
        raise NotFound(
            f"the project {project} has no service {name[:64]}; list them with GET /v1/services", field=FIELD
        )
    if service.status == ServiceState.ENDING:
        raise Conflict(f"the service {name} is being deleted; name another one", field=FIELD)
    document = JobDocument.from_json(service.base)
    reference = (document.inference or Inference()).model
    base = document.training_config.base_model.without(CREDENTIALS)
    # The job loads no weights: it needs no GPU for those of 4 bits, and takes no other checkpoint than the service has.
    return base, reference.without("quantization", "chosen_as").changed(service=name)


def refuse_other_task(session: Session, project: str, model: ModelReference, task: str) -> None:
    """Raise BadSpec for a task that the service does not answer."""
    service = _live(session, project, model.service) if model.service is not None else None
    if service is not None and service.task != task:
        raise BadSpec(f"the service {service.name} {_MAKES[service.task]}", field="task.type")


def _live(session: Session, project: str, name: str) -> Service | None:
    of_name = select(Service).where(Service.project == project, Service.name == name, Service.ended_at.is_(None))
    return session.scalar(of_name) if name.isprintable() else None
