"""Which adapters a replica may load: those that jobs of its project have trained on the model that it serves."""

from sqlalchemy.orm import Session

from app.domain.errors import Conflict, NotFound
from app.domain.serving.model_keys import model_key
from app.domain.spec.document import divided_by
from app.domain.spec.inference import TRAINING, ModelReference
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.rules.model import is_drawn, is_result
from app.domain.spec.rules.output import trains_adapter
from app.models import Job
from app.services.jobs import made_models

FIELD = "adapter"


def find(
    session: Session, project: str, replica: JobDocument, *, job_id: str, checkpoint_id: str | None
) -> ModelReference:
    """The adapter of a job, or of one of its checkpoints, for a replica with this document.

    Raises NotFound for a job that the project does not have, and Conflict for what is no adapter of its model.
    """
    job = session.get(Job, job_id)
    if job is None or job.project != project or job.kind != TRAINING:
        raise NotFound(f"the project {project} has no training job {job_id}", field=FIELD)
    if not _is_adapter(session, job, checkpoint_id):
        raise Conflict(f"{job.id} made a whole model, not an adapter; make a service of it", field=FIELD)
    base, served = job.document.training_config.base_model, served_model(replica)
    if is_drawn(base) or (trained_on := model_of(base)) != served:
        own = "weights that it drew by itself" if is_drawn(base) else trained_on
        raise Conflict(f"the adapter of {job.id} was trained on {own}, and this service has {served}", field=FIELD)
    return ModelReference().changed(job_id=job.id, checkpoint_id=checkpoint_id, adapter=True)


def served_model(replica: JobDocument) -> str:
    """The key of the model that a replica has."""
    reference = replica.inference.model if replica.inference is not None else ModelReference()
    return model_key(replica.training_config.base_model, reference)


def model_of(base: BaseModel) -> str:
    """The key of the model that an adapter with this base model is for."""
    return model_key(base, ModelReference().changed(job_id=base.job_id) if is_result(base) else ModelReference())


def _is_adapter(session: Session, job: Job, checkpoint_id: str | None) -> bool:
    if checkpoint_id is None:
        return made_models.is_adapter(session, job, at=FIELD, way_out="wait until it is COMPLETED")
    reference = ModelReference().changed(job_id=job.id, checkpoint_id=checkpoint_id, divided=divided_by(job.document))
    refuse_divided(reference)
    return trains_adapter(job.document)


def refuse_divided(reference: ModelReference) -> None:
    """Raise Conflict for a checkpoint whose parts only a job that begins puts together."""
    if reference.divided:
        raise Conflict(
            f"a checkpoint of {reference.divided} is put together where a job begins, so a service that runs can't "
            f"load it as an adapter; make a service of it (trainyard serve {reference.job_id}@"
            f"{reference.checkpoint_id}), or name {reference.job_id} for its result",
            field=FIELD,
        )
