"""Start points: the checkpoint that a new or resumed job starts from, by id or as a job's newest or best."""

from typing import Any

from sqlalchemy.orm import Session

from app.domain.errors import BadSpec
from app.domain.ids import JOB_ID
from app.domain.spec.hyperparameters.parsing import fixed_on_resume
from app.domain.spec.inference import EVALUATION, TRAINING, ModelReference
from app.domain.spec.job_spec import JobSpec, comparable_data
from app.domain.spec.model import JobDocument
from app.models import Checkpoint, Job
from app.services.attempts import checkpoints, model_weights

RESUME_FIELD = "training_config.resume_from_checkpoint"
LATEST, BEST = "latest", "best"  # of a job's checkpoints, as ``job-…:best`` names them
PRUNED_MEANWHILE_TRIES = 3  # a job that runs may retire what was just its newest


def start_point(session: Session, project: str, spec: JobSpec) -> Checkpoint | None:
    """The checkpoint to resume from, locked so that it can't be pruned meanwhile; None to start from the base model.

    Of a job that does not train it is the checkpoint that is its model. Raises BadSpec for one that does not exist, or
    does not match the job.
    """
    if spec.document.inference is not None:
        return _model_checkpoint(session, project, spec.document.inference.model)
    requested = spec.document.training_config.resume_from_checkpoint
    if not requested:
        return None
    job_id, _, which = requested.partition(":")
    if JOB_ID.fullmatch(job_id):
        checkpoint = _checkpoint_of_job(session, project, job_id, which or _default(spec))
    else:
        named = checkpoints.lock(session, requested)
        if named is None or named.project != project:
            raise BadSpec(f"the project {project} has no checkpoint {requested}", field=RESUME_FIELD)
        checkpoint = named
    source = session.get_one(Job, checkpoint.job_id)
    different = [name for name, of in _SAME_ON_RESUME if of(source.document) != of(spec.document)]
    if different:
        raise BadSpec(
            f"checkpoint {requested} is of a job with another {' and another '.join(different)}; a job resumes only "
            "from a checkpoint of the same model, type and data, with the same optim and adapter (lora_…): make them "
            "equal, or start from scratch without it",
            field=RESUME_FIELD,
        )
    return checkpoint


def chosen(session: Session, job: Job, checkpoint_id: str, *, from_best: bool) -> Checkpoint | None:
    """The checkpoint that a resume request chose, locked: a named one, or the best; None for no choice.

    It must be one of the job's own, or the one that it started from. Raises BadSpec.
    """
    if (checkpoint_id or from_best) and job.kind != TRAINING:
        raise BadSpec(
            f"{job.id} is of kind {job.kind} and continues after what it has stored; leave checkpoint_id and from_best "
            "out",
            field="checkpoint_id" if checkpoint_id else "from_best",
        )
    if checkpoint_id and from_best:
        raise BadSpec("name a checkpoint or set from_best, not both", field="from_best")
    if from_best:
        best = checkpoints.lock(session, job.best_checkpoint_id) if job.best_checkpoint_id is not None else None
        if best is None:
            raise BadSpec(
                f"no checkpoint of {job.id} is its best: none was evaluated; leave from_best out to continue from the "
                "newest",
                field="from_best",
            )
        return best
    if not checkpoint_id:
        return None
    named = checkpoints.lock(session, checkpoint_id)
    if named is None or (named.job_id != job.id and named.id != job.resume_checkpoint_id):
        raise BadSpec(
            f"{job.id} has no checkpoint {checkpoint_id} to continue from; list them with GET "
            f"/v1/jobs/{job.id}/checkpoints",
            field="checkpoint_id",
        )
    return named


def next_start(session: Session, job: Job) -> Checkpoint | None:
    """The checkpoint of the job's next attempt, unless it proves damaged; None: from the beginning."""
    first = next(iter(checkpoints.resume_candidates(session, job)), None)
    return session.get(Checkpoint, first.checkpoint_id) if first is not None else None


def of_first_attempt(session: Session, job: Job) -> Checkpoint | None:
    """The checkpoint that a training started from, also one that was deleted since; None: from the beginning."""
    if job.kind != TRAINING or job.resume_checkpoint_id is None:
        return None
    return session.get(Checkpoint, job.resume_checkpoint_id)


def _model_checkpoint(session: Session, project: str, model: ModelReference) -> Checkpoint | None:
    """The checkpoint whose weights the job uses, locked. Raises BadSpec."""
    if model.checkpoint_id is None:
        return None
    checkpoint = checkpoints.lock(session, model.checkpoint_id)
    if checkpoint is not None and (checkpoint.project, checkpoint.job_id) == (project, model.job_id):
        return checkpoint
    # A retry comes here, too, and has the model of its parent: it can't name another one.
    way_out, retired = model_weights.SUBMIT_ANOTHER, session.get(Checkpoint, model.checkpoint_id)
    if retired is not None and (retired.project, retired.job_id) == (project, model.job_id):
        damage = model_weights.damage_of(session, retired)
        if damage is not None:
            raise BadSpec(f"{damage}; {retired.id} is retired: {way_out}", field="model.checkpoint")
    raise BadSpec(
        f"job {model.job_id} of project {project} has no checkpoint {model.checkpoint_id} any more; {way_out}",
        field="model.checkpoint",
    )


def evaluated(document: JobDocument, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """The columns of an evaluation that say which job made its model, and after how many steps."""
    if document.kind != EVALUATION or document.inference is None or document.inference.model.job_id is None:
        return {}
    step = checkpoint.step if checkpoint is not None else None
    return {"evaluated_job_id": document.inference.model.job_id, "evaluated_step": step}


def _default(spec: JobSpec) -> str:
    """Newest or best, for a document that names a job without either."""
    return BEST if spec.document.output_config.checkpoint.resume_from_best else LATEST


def _checkpoint_of_job(session: Session, project: str, job_id: str, which: str) -> Checkpoint:
    """The job's current newest or best checkpoint, locked. Raises BadSpec."""
    for _ in range(PRUNED_MEANWHILE_TRIES):
        job = session.get(Job, job_id, populate_existing=True)
        if job is None or job.project != project:
            raise BadSpec(f"the project {project} has no job {job_id}", field=RESUME_FIELD)
        chosen = job.best_checkpoint_id if which == BEST else job.latest_checkpoint_id
        checkpoint = checkpoints.lock(session, chosen) if chosen is not None else None
        if checkpoint is not None:
            return checkpoint
    if which == BEST and job is not None and job.latest_checkpoint_id is not None:
        raise BadSpec(
            f"no checkpoint of {job_id} is its best: none was evaluated; say {job_id}:{LATEST}", field=RESUME_FIELD
        )
    raise BadSpec(f"{job_id} has no checkpoint to resume from; start from scratch without it", field=RESUME_FIELD)


def _model(document: JobDocument) -> tuple[str, str, str]:
    model = document.training_config.base_model
    return model.model_id, model.revision or "", model.job_id or ""


def _definition(document: JobDocument) -> object:
    return document.training_config.base_model.from_config or False


def _type(document: JobDocument) -> tuple[str, str]:
    training = document.training_config
    return training.training_type, training.framework.type


def _fixed(document: JobDocument) -> dict[str, Any]:
    training_type, framework = _type(document)
    return fixed_on_resume(framework, training_type, document.training_config.hyperparameters)


_SAME_ON_RESUME = (
    ("model", _model),
    ("from_config", _definition),
    ("training type", _type),
    ("data_config", comparable_data),
    ("optimizer or adapter", _fixed),
)
