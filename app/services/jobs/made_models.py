"""Models that jobs have made, as the model of another job of their project: whole, or an adapter for its base model."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.database.engine import Database
from app.domain.errors import BadSpec, Conflict, NotFound, TrainyardError
from app.domain.lifecycle.states import JobState
from app.domain.spec.credentials import CREDENTIALS, OPTIONS
from app.domain.spec.document import is_custom, judging_jobs, method, trainer
from app.domain.spec.hyperparameters.parsing import USE_LORA, InvalidHyperparameter, fixed_on_resume
from app.domain.spec.hyperparameters.rlhf import REWARD_METHOD
from app.domain.spec.inference import TRAINING
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import BaseModel, JobDocument
from app.domain.spec.rules.model import continues_adapter, is_drawn
from app.models import Artifact, Job
from app.security.permissions import Caller
from app.services.jobs import lookup

FIELD = "training_config.base_model"
# What a request may say of a job's weights.
LOADING = ("dtype", "trust_remote_code", "model_kwargs", CREDENTIALS, OPTIONS)
_ADAPTER_CONFIG, _CONFIG = "adapter_config.json", "config.json"
_WEIGHTS = (".safetensors", ".bin")
# Fields of an adapter's base model that its use does not need: the tokenizer is stored beside the adapter.
_UNUSED = ("tokenizer_id", "from_config")
_NOT_OF_THE_ADAPTER = ("optim", "algorithm", USE_LORA)  # of the hyperparameters that a resumed job keeps


def with_base(db: Database, caller: Caller, project: str, document: JobDocument) -> JobDocument:
    """The document of a new job with the base model that a training's ``job_id`` names, if it names one.

    Jobs that are named as reward models are checked, too. Reads only; submission locks the jobs. Raises NotFound for a
    job that the project does not have, Conflict for a result that can't be used (yet), and BadSpec for what contradicts
    it.
    """
    base, judges = document.training_config.base_model.job_id, judging_jobs(document)
    job_id = None if document.inference is not None or is_custom(document) else base
    if job_id is None and not judges:
        return document
    with db.read() as session:
        for judge, field in judges:
            _check_judge(session, caller, project, judge, field)
        return document if job_id is None else _continued(session, caller, project, document, job_id)


def _check_judge(session: Session, caller: Caller, project: str, job_id: str, field: str) -> None:
    """Raises as `with_base`, also for the result of a job that has trained no reward model, or an adapter of one."""
    try:
        job = find_job(session, caller, project, job_id, at=field)
        adapter = is_adapter(session, job, at=field, way_out="wait until it is COMPLETED")
    except TrainyardError as error:
        error.field = field
        raise
    if adapter:
        raise Conflict(f"{job.id} trained an adapter; train with merge_lora, and name that job", field=field)
    # What a script has made is seen where it is loaded.
    if not is_custom(job.document) and method(job.document) != REWARD_METHOD:
        raise BadSpec(
            f"{job.id} trained a model of text, which gives no number; name a job that trained a reward model "
            "(algorithm: reward)",
            field=field,
        )


def _continued(session: Session, caller: Caller, project: str, document: JobDocument, job_id: str) -> JobDocument:
    training, base = document.training_config, document.training_config.base_model
    job = find_job(session, caller, project, job_id, at=FIELD)
    adapter = is_adapter(session, job, at=FIELD, way_out="wait until it is COMPLETED")
    wanted = BaseModel().changed(**{name: getattr(base, name) for name in base.given if name in LOADING})
    found = (base_of_adapter if adapter else without_base)(job, wanted, at=FIELD)
    if adapter and found.model_id == NO_MODEL:
        raise Conflict(
            f"{job.id} trained an adapter for the result of another job, and no training continues two results; "
            "train with merge_lora and name that result",
            field=f"{FIELD}.job_id",
        )
    _refuse_judge(document, job)
    _refuse_other_base(base, found, job)
    if adapter:
        _refuse_other_adapter(document, job.document, job.id)
    return document.changed(training_config=training.changed(base_model=found.changed(job_id=job.id)))


def adapter_hyperparameters(document: JobDocument) -> Mapping[str, str]:
    """Those that a document gives of its adapter, which a training that continues it must repeat."""
    names = _adapter_of(document)
    return {name: value for name, value in document.training_config.hyperparameters.items() if name in names}


def find_job(session: Session, caller: Caller, project: str, job_id: str, *, at: str) -> Job:
    """The training job of the project; ``at`` is the section of the request that names it."""
    try:
        job = lookup.find(session, caller, job_id)
    except NotFound as error:
        error.field = f"{at}.job_id"
        raise
    if job.project != project:
        raise NotFound(f"the project {project} has no job {job_id}", field=f"{at}.job_id")
    if job.kind != TRAINING:
        raise BadSpec(f"{job.id} is of kind {job.kind} and made no model; name a training job", field=f"{at}.job_id")
    return job


def is_adapter(session: Session, job: Job, *, at: str, way_out: str) -> bool:
    """Whether the job's result is an adapter. Raises Conflict for one without a model in a form that can be loaded."""
    if job.state is not JobState.COMPLETED:
        raise Conflict(f"{job.id} is {job.status} and has no result; {way_out}", field=f"{at}.job_id")
    paths = set(session.scalars(select(Artifact.path).where(Artifact.job_id == job.id, ~Artifact.pending)))
    top = {path for path in paths if "/" not in path}
    if not top & {_ADAPTER_CONFIG, _CONFIG} or not any(path.endswith(_WEIGHTS) for path in top):
        raise Conflict(
            f"the result of {job.id} is no model that transformers or peft loads: it needs {_CONFIG} or "
            f"{_ADAPTER_CONFIG}, and weights as safetensors; export it in that form, or name its files by their place",
            field=f"{at}.job_id",
        )
    return _ADAPTER_CONFIG in top


def base_of_adapter(job: Job, wanted: BaseModel, *, at: str) -> BaseModel:
    """The base model of the adapter's job, with what the request says of loading."""
    base = job.document.training_config.base_model
    if is_drawn(base):
        raise Conflict(
            f"{job.id} trained an adapter for weights that it initialized itself and that were not kept; train it with "
            "merge_lora to use its result",
            field=f"{at}.job_id",
        )
    if base.credentials and not wanted.credentials:
        raise Conflict(
            f"the base model of {job.id}, {base.model_id}, was read with credentials of its own, which no other job "
            f"gets; repeat them in {at}.{CREDENTIALS}, or train with merge_lora and use that result",
            field=f"{at}.{CREDENTIALS}",
        )
    own = base.without("job_id") if continues_adapter(base) else base
    return own.without(*_UNUSED, CREDENTIALS).changed(**_given(wanted))


def without_base(job: Job, wanted: BaseModel, *, at: str) -> BaseModel:
    """The base model of a job that takes the whole model of another one: none, with what is said of loading."""
    if wanted.credentials or wanted.storage_options:
        name = CREDENTIALS if wanted.credentials else OPTIONS
        raise BadSpec(
            f"{job.id} made a whole model, which lies in the platform's own storage; leave {name} out",
            field=f"{at}.{name}",
        )
    base = job.document.training_config.base_model
    kept = {name: getattr(base, name) for name in ("dtype", "trust_remote_code") if name in base.given}
    return BaseModel().changed(model_id=NO_MODEL, **kept | _given(wanted))


def _given(base: BaseModel) -> dict[str, Any]:
    return {name: getattr(base, name) for name in base.given}


def _refuse_judge(document: JobDocument, job: Job) -> None:
    if method(job.document) == REWARD_METHOD != method(document):
        raise BadSpec(
            f"{job.id} trained a reward model, which gives numbers instead of text; name a model of text",
            field=f"{FIELD}.job_id",
        )


def _refuse_other_base(asked: BaseModel, found: BaseModel, job: Job) -> None:
    """A stored document says what was found before; everything else contradicts the job."""
    for name in asked.given:
        value = getattr(asked, name)
        if name in ("job_id", *LOADING) or (name == "model_id" and value == NO_MODEL):
            continue
        if value != getattr(found, name):
            raise BadSpec(
                f"the base model is the result of {job.id}, and {name} is of another one; say model_id {NO_MODEL} and "
                f"leave {name} out, or leave job_id out",
                field=f"{FIELD}.{name}",
            )


def _refuse_other_adapter(document: JobDocument, trained: JobDocument, job_id: str) -> None:
    ours, theirs = _adapter_of(document), _adapter_of(trained)
    for name, value in ours.items():
        if name in theirs and value != theirs[name]:
            said = trained.training_config.hyperparameters.get(name)
            raise BadSpec(
                f"the adapter of {job_id} was trained with {name} {said or 'left out'}, and is continued as it is; "
                f"{'say the same' if said else f'leave {name} out'}",
                field=f"training_config.hyperparameters.{name}",
            )


def _adapter_of(document: JobDocument) -> dict[str, Any]:
    """The values that shape an adapter; none of hyperparameters that are refused later."""
    try:
        values = fixed_on_resume(*trainer(document), document.training_config.hyperparameters)
    except InvalidHyperparameter:
        return {}
    return {name: value for name, value in values.items() if name not in _NOT_OF_THE_ADAPTER}
