"""Defaults of a job document that depend on other fields, or only count for built-in trainers."""

from app.domain.spec.data.formats import format_of
from app.domain.spec.document import is_custom
from app.domain.spec.hyperparameters.parsing import CUSTOM
from app.domain.spec.hyperparameters.trainer_arguments import with_hyperparameters
from app.domain.spec.inference import EMBED, EVALUATION, FAIL, FEATURES, FIELDS, QUANTIZED, REPLICA, TRAINING, Inference
from app.domain.spec.locations.paths import NO_MODEL
from app.domain.spec.model import (
    DataConfig,
    JobDocument,
    ResourceConfig,
    Sampling,
    SchedulingConfig,
    Source,
    TrainingConfig,
)

SPLIT = "train"
FORMAT_OF_FEATURES = "parquet"  # InferenceOutput.format of kind features
# Stored even when they are not given, so that a job's data stays the same when a default changes.
_OF_DATA = (
    *("max_seq_length", "batch_size", "gradient_accumulation_steps", "num_workers"),
    *("validation_split", "seed", "streaming"),
)


def completed(document: JobDocument) -> JobDocument:
    """The submitted document with the defaults that are stored. Raises BadSpec for a hyperparameter given twice."""
    training = _training(document)
    if document.kind != TRAINING:
        return _completed_inference(document, training)
    return document.changed(
        training_config=training,
        data_config=completed_data(document.data_config, custom=is_custom(document)),
        scheduling_config=_scheduling(document.scheduling_config, training),
    )


def _completed_inference(document: JobDocument, training: TrainingConfig) -> JobDocument:
    """Records are neither shuffled nor batched by the document: only what selects them is stored."""
    data = document.data_config.filled("seed")
    sources = tuple(_with_defaults(_with_format(source), data.seed) for source in data.sources)
    inference = document.inference or Inference()
    return document.changed(
        training_config=training,
        data_config=data.changed(sources=sources),
        resource_config=_resources(document.resource_config, inference),
        scheduling_config=_scheduling(document.scheduling_config, training),
        inference=_inference(inference, document.kind),
    )


def _resources(resources: ResourceConfig, inference: Inference) -> ResourceConfig:
    """Weights of 4 bits exist on GPUs alone: a job that leaves the device open gets one."""
    is_open = resources.device_type == ResourceConfig.device_type
    return resources.changed(device_type="cuda") if is_open and inference.model.quantization == QUANTIZED else resources


def _inference(inference: Inference, kind: str) -> Inference:
    if kind in (EVALUATION, REPLICA):
        return inference
    task, output = inference.task, inference.output
    if kind == FEATURES:
        task = task.changed(type=task.type if "type" in task.given else EMBED)
        output = output.changed(format=output.format if "format" in output.given else FORMAT_OF_FEATURES)
    counted = () if inference.on_error.action == FAIL else ("max_share",)
    return inference.changed(
        task=task.filled("type", *FIELDS[task.type]),
        output=output.filled("format", "keep_columns", "shard_records"),
        on_error=inference.on_error.filled("action", *counted),
    )


def completed_data(data: DataConfig, *, custom: bool) -> DataConfig:
    """A copy with defaults filled in; for a custom script only formats by suffix are added."""
    found = data.changed(sources=tuple(map(_with_format, data.sources)))
    if custom:
        return found
    found = found.filled(*_OF_DATA)
    if found.streaming:
        found = found.changed(shuffle_buffer=found.shuffle_buffer)
    return found.changed(
        preprocess=found.preprocess.filled("padding", "truncation"),
        sources=tuple(_with_defaults(source, found.seed) for source in found.sources),
    )


def _training(document: JobDocument) -> TrainingConfig:
    training = _of_custom(document.training_config)
    training = with_hyperparameters(
        training.changed(
            max_retries=training.max_retries, hyperparameters=training.hyperparameters, environment=training.environment
        )
    )
    evaluation = training.evaluation
    if evaluation is None or evaluation.strategy != "steps" or evaluation.steps is not None:
        return training
    steps = document.output_config.checkpoint.save_steps
    return training.changed(evaluation=evaluation.changed(steps=steps))


def _of_custom(training: TrainingConfig) -> TrainingConfig:
    """A script needs neither method nor model."""
    if training.framework.type != CUSTOM:
        return training
    model = training.base_model
    return training.changed(
        training_type=training.training_type or CUSTOM,
        base_model=model if model.model_id else model.changed(model_id=NO_MODEL),
    )


def _scheduling(scheduling: SchedulingConfig, training: TrainingConfig) -> SchedulingConfig:
    """Priority can be given in two fields; scheduling_config's takes precedence and is the only one read later."""
    given = scheduling if "priority" in scheduling.given else training
    return scheduling.changed(priority=given.priority)


def _with_format(source: Source) -> Source:
    detected = format_of(source.path)
    return source.changed(format=detected) if detected is not None and not source.format else source


def _with_defaults(source: Source, seed: int) -> Source:
    found = source.changed(split=source.split or SPLIT)
    if found.sampling is None:
        return found
    return found.changed(sampling=Sampling.from_json({"seed": seed, **found.sampling.to_json()}))
