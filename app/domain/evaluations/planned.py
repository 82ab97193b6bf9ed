"""Evaluations that a training's document plans: of its result, of each checkpoint, or of the best ones."""

from collections.abc import Collection, Iterator

from app.domain.evaluations.documents import LONGEST_NAME, EvaluationOptions, Subject, document
from app.domain.spec.document import divided_by
from app.domain.spec.inference import ModelReference
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import BaseModel, JobDocument, PlannedEvaluation, ResourceConfig, SchedulingConfig
from app.domain.spec.rules.evaluations import exports_adapter
from app.domain.spec.rules.model import continues_adapter
from app.domain.spec.rules.output import trains_adapter

# They run on devices that are left over, and give them back to every other job of the project.
PRIORITY = 0
# Of a base model: how it is loaded, which whole weights of a job need as well.
_OF_LOADING = ("dtype", "trust_remote_code")
# An adapter's tokenizer lies beside it; credentials are no other job's.
_OF_THE_TRAINING = ("tokenizer_id", "from_config", "credentials")


def due(trained: JobDocument, events: Collection[str]) -> Iterator[PlannedEvaluation]:
    """The planned evaluations of these events: `END`, `CHECKPOINT`, `BEST`."""
    yield from (each for each in trained.training_config.evaluations if each.on in events)


def evaluation(
    plan: PlannedEvaluation, trained: JobDocument, *, job_id: str, checkpoint_id: str | None, step: int | None
) -> JobDocument:
    """The document of a planned evaluation of a checkpoint, or of the result."""
    at = f"step {step}" if checkpoint_id is not None else plan.on
    asked = plan.resource_config
    default = {"gpu_count": 1, "device_type": trained.resource_config.device_type}
    resources = ResourceConfig.from_json({**default, **(asked.to_json() if asked is not None else {})})
    scheduling = SchedulingConfig().changed(
        queue=trained.scheduling_config.queue, priority=PRIORITY, preemptible=True, on_preemption="requeue"
    )
    options = EvaluationOptions(
        name=f"{trained.name[: LONGEST_NAME - len(at) - 1]} {at}",
        labels=trained.labels,
        resources=resources,
        scheduling=scheduling,
        seed=plan.seed,
        require=plan.require,
        planned=True,
    )
    return document(subject(trained, job_id=job_id, checkpoint_id=checkpoint_id), plan.benchmarks, options)


def subject(trained: JobDocument, *, job_id: str, checkpoint_id: str | None) -> Subject:
    """The model that a training made: whole, or an adapter for the training's own base model."""
    adapter = trains_adapter(trained) if checkpoint_id is not None else exports_adapter(trained)
    base = trained.training_config.base_model
    if adapter:
        base = (base.without("job_id") if continues_adapter(base) else base).without(*_OF_THE_TRAINING)
    else:
        kept = {name: getattr(base, name) for name in _OF_LOADING if name in base.given}
        base = BaseModel().changed(model_id=NO_MODEL, **kept)
    divided = divided_by(trained) if checkpoint_id is not None else ""
    model = ModelReference().changed(job_id=job_id, checkpoint_id=checkpoint_id, adapter=adapter, divided=divided)
    return Subject(base=base, model=model, trained=trained)
