"""Resolves the `model` of a request to the base model and the model reference of a job document."""

from dataclasses import dataclass, field, replace

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec, Conflict, NotFound, TrainyardError
from app.domain.spec.document import divided_by, is_custom, method
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.inference import BEST_CHECKPOINT, EMBED, LATEST_CHECKPOINT, SCORE, ModelReference
from app.domain.spec.model import BaseModel
from app.domain.spec.rules.output import trains_adapter
from app.models import Checkpoint, Job
from app.security.permissions import Caller
from app.services.attempts import model_weights
from app.services.inference import service_models
from app.services.jobs import made_models
from app.services.model_registry import resolving

FIELD = "model"
JOB_FIELD = f"{FIELD}.job_id"


@dataclass(frozen=True, kw_only=True)
class WantedModel:
    """The `model` of a request: a job's result or checkpoint (``best``, ``latest`` or an ID), or a location.

    ``base`` gives what the request says of a base model: where one is named its location, else only how it is loaded.
    """

    job_id: str | None = None
    checkpoint: str | None = None
    base: BaseModel = field(default_factory=BaseModel)
    quantization: str = "none"
    service: str | None = None  # the name of one that answers in the job's place


def resolve(session: Session, caller: Caller, project: str, reference: WantedModel) -> tuple[BaseModel, ModelReference]:
    """``training_config.base_model`` and ``inference.model`` of the document of a new job in ``project``.

    A whole model that a job made brings its configuration and tokenizer: the base model is then ``none``. An adapter
    has the base model of its job. Reads only; submission locks what the document names, and checks it again.

    Raises BadSpec, NotFound for what the project does not have, and Conflict for weights that can't be used (yet).
    """
    caller.require_project(project)
    if reference.service is not None:
        return service_models.resolve(session, caller, project, reference.service)
    named = reference
    try:
        named = _named(session, caller, project, reference)
        return _resolved(session, caller, project, named)
    except TrainyardError as error:
        means_a_job = named.job_id is not None and reference.job_id is None
        if reference.base.model_id and (error.field in (None, FIELD) or (means_a_job and error.field == JOB_FIELD)):
            error.field = f"{FIELD}.model_uri"
        raise


def _resolved(
    session: Session, caller: Caller, project: str, reference: WantedModel
) -> tuple[BaseModel, ModelReference]:
    job_id = reference.job_id or _job_of_checkpoint(session, project, reference)
    if job_id is None:
        if not reference.base.model_id:
            raise BadSpec("name a model: a job that has made one by job_id, or a place by model_uri", field=FIELD)
        return reference.base, ModelReference().changed(quantization=reference.quantization)
    _refuse_place(reference.base)
    job = made_models.find_job(session, caller, project, job_id, at=FIELD)
    checkpoint = _checkpoint(session, job, reference.checkpoint) if reference.checkpoint else None
    adapter = _checked_checkpoint(job) if checkpoint is not None else _checked_result(session, job)
    base_of = made_models.base_of_adapter if adapter else made_models.without_base
    base = base_of(job, reference.base, at=FIELD)
    return base, ModelReference().changed(
        job_id=job.id,
        checkpoint_id=checkpoint.id if checkpoint is not None else None,
        adapter=adapter,
        divided=divided_by(job.document) if checkpoint is not None else "",
        quantization=reference.quantization,
        **({"chosen_as": reference.checkpoint} if reference.checkpoint in (LATEST_CHECKPOINT, BEST_CHECKPOINT) else {}),
    )


def refuse_unfit(session: Session, model: ModelReference, task: str) -> None:
    """Raise BadSpec for a task type that the job's model has no output for: text of a reward model, and so on."""
    job = session.get(Job, model.job_id) if model.job_id is not None else None
    if job is None or task == EMBED or is_custom(job.document):
        return  # models of scripts and locations are loaded by the node, which reports what they lack
    judges = method(job.document) == REWARD_METHOD
    if judges and task != SCORE:
        raise BadSpec(
            f"{job.id} trained a reward model, which gives numbers instead of text; set task.type to {SCORE}",
            field="task.type",
        )
    if task == SCORE and not judges:
        raise BadSpec(
            f"{job.id} trained a model of text, which has no score; name a job that trained a reward model, or set "
            "task.type to loglikelihood",
            field="task.type",
        )


def _named(session: Session, caller: Caller, project: str, reference: WantedModel) -> WantedModel:
    """The reference without the name of a model, where its model_uri is one and nothing says that it is a place."""
    base = reference.base
    if reference.job_id is not None or not base.model_id or base.source:
        return reference
    found = resolving.meaning(session, caller, project, base.model_id)
    if found is None:
        return reference
    if found.job_id is None:
        return replace(reference, base=base.changed(model_id=found.location))
    if found.checkpoint_id is not None and reference.checkpoint is not None:
        raise BadSpec(f"{found.name} is a checkpoint; leave checkpoint out", field=f"{FIELD}.checkpoint")
    return replace(
        reference,
        job_id=found.job_id,
        checkpoint=found.checkpoint_id or reference.checkpoint,
        base=base.without("model_id"),
    )


def _refuse_place(base: BaseModel) -> None:
    """Of a job's weights a request says how they are loaded, and nothing else."""
    if foreign := next((name for name in base.given if name not in made_models.LOADING), None):
        name = "model_uri" if foreign == "model_id" else foreign
        raise BadSpec(
            f"{name} is for a model that is named by model_uri, and this one is of a job; leave it or job_id out",
            field=f"{FIELD}.{name}",
        )


def _job_of_checkpoint(session: Session, project: str, reference: WantedModel) -> str | None:
    """The job of a checkpoint that is named without it."""
    named = reference.checkpoint
    if named is None:
        return None
    if named in (LATEST_CHECKPOINT, BEST_CHECKPOINT):
        raise BadSpec(f"{named} is a checkpoint of a job; name that in job_id", field=JOB_FIELD)
    checkpoint = session.get(Checkpoint, named)
    if checkpoint is not None and checkpoint.project == project:
        _refuse_damaged(session, checkpoint)
    if checkpoint is None or checkpoint.project != project or checkpoint.deleted_at is not None:
        raise NotFound(f"the project {project} has no checkpoint {named[:64]}", field=f"{FIELD}.checkpoint")
    return checkpoint.job_id


def _checkpoint(session: Session, job: Job, named: str) -> Checkpoint:
    if named not in (LATEST_CHECKPOINT, BEST_CHECKPOINT):
        found = session.get(Checkpoint, named)
        if found is not None and found.job_id == job.id:
            _refuse_damaged(session, found)
        if found is None or found.job_id != job.id or found.deleted_at is not None:
            raise NotFound(
                f"{job.id} has no checkpoint {named[:64]}; list them with GET /v1/jobs/{job.id}/checkpoints",
                field=f"{FIELD}.checkpoint",
            )
        return found
    chosen = job.best_checkpoint_id if named == BEST_CHECKPOINT else job.latest_checkpoint_id
    found = session.get(Checkpoint, chosen) if chosen is not None else None
    if found is not None and found.deleted_at is None:
        return found
    if named == BEST_CHECKPOINT and job.latest_checkpoint_id is not None:
        raise Conflict(
            f"no checkpoint of {job.id} is its best: none was evaluated; say {LATEST_CHECKPOINT}",
            field=f"{FIELD}.checkpoint",
        )
    raise Conflict(
        f"{job.id} has no checkpoint; wait until it has saved one, or leave checkpoint out to use its result",
        field=f"{FIELD}.checkpoint",
    )


def _refuse_damaged(session: Session, checkpoint: Checkpoint) -> None:
    if (damage := model_weights.damage_of(session, checkpoint)) is None:
        return
    job = session.get_one(Job, checkpoint.job_id)
    way_out = f"say {LATEST_CHECKPOINT}, or name another checkpoint of {job.id}"
    if job.latest_checkpoint_id is None:
        way_out = f"{job.id} has no other; wait until it has saved one, or leave checkpoint out to use its result"
    raise Conflict(f"{damage}; {checkpoint.id} is retired: {way_out}", field=f"{FIELD}.checkpoint")


def _checked_checkpoint(job: Job) -> bool:
    """Whether the job's checkpoints are adapters. Raises Conflict for those that can't be loaded."""
    if is_custom(job.document):
        raise Conflict(
            f"the checkpoints of {job.id} are what its script has written and can't be loaded as a model; use its "
            "result: leave checkpoint out, once it is COMPLETED",
            field=f"{FIELD}.checkpoint",
        )
    return trains_adapter(job.document)


def _checked_result(session: Session, job: Job) -> bool:
    """Whether the job's result is an adapter. Raises Conflict for one that can't be loaded."""
    way_out = f"name one of its checkpoints (model.checkpoint: {LATEST_CHECKPOINT}), or wait until it is COMPLETED"
    return made_models.is_adapter(session, job, at=FIELD, way_out=way_out)
