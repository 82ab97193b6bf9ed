"""Accessors of a job document that rules share: trainer, data, hyperparameters."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.ids import JOB_ID
from app.domain.spec.data.splits import TRAIN, VALIDATION, Split, parse_split
from app.domain.spec.hyperparameters import parsing
from app.domain.spec.hyperparameters.rlhf import (
    FILE,
    REWARD,
    REWARD_MODEL,
    method_of,
    reward_file,
    reward_kind,
    reward_model,
)
from app.domain.spec.hyperparameters.trainer_arguments import HF_TRAINER
from app.domain.spec.image import Image
from app.domain.spec.inference import LM_EVAL, TASK_DIR
from app.domain.spec.locations.images import FIELD as IMAGE_FIELD
from app.domain.spec.locations.images import parse as parse_image
from app.domain.spec.locations.uploads import is_upload
from app.domain.spec.model import JobDocument, PlannedBenchmark, Source

BENCHMARKS = "inference.benchmarks"
# Fields of resource_config without meaning for a CPU slot.
NEEDING_A_GPU = ("gpu_type", "gpu_fraction", "gpu_memory_request_mb", "mig_profile", "gpu_memory_min_mb")


def trainer(document: JobDocument) -> tuple[str, str]:
    """(framework, training type)."""
    training = document.training_config
    return training.framework.type, training.training_type


def method(document: JobDocument) -> str:
    """As rlhf.method_of."""
    return method_of(trainer(document)[1], document.training_config.hyperparameters)


def is_custom(document: JobDocument) -> bool:
    """Whether a custom script defines what data, evaluation and export mean."""
    return trainer(document)[0] == parsing.CUSTOM


def divided_by(document: JobDocument) -> str:
    """The framework whose ranks each write a part of the training's checkpoints; "" for whole checkpoints."""
    framework = trainer(document)[0]
    return "" if framework in (HF_TRAINER, parsing.CUSTOM) else framework


def asks_for_gpus(document: JobDocument) -> bool:
    resources = document.resource_config
    return resources.device_type == "cuda" or any(getattr(resources, name) for name in NEEDING_A_GPU)


def typed_hyperparameters(document: JobDocument) -> dict[str, Any]:
    """Parsed hyperparameters. Raises InvalidHyperparameter."""
    return dict(parsing.parse(*trainer(document), document.training_config.hyperparameters))


def sources(document: JobDocument) -> Iterator[tuple[int, Source, Split]]:
    """(index, source, its split) of a document for a built-in trainer. Raises BadSplit."""
    for i, source in enumerate(document.data_config.sources):
        yield i, source, parse_split(source.split)


def is_trained_on(split: Split) -> bool:
    return split.name == TRAIN


def has_validation_data(document: JobDocument) -> bool:
    return document.data_config.validation_split > 0 or any(
        split.name == VALIDATION for _, _, split in sources(document)
    )


def evaluates(document: JobDocument) -> bool:
    """Whether a built-in trainer measures validation data while it trains."""
    evaluation = document.training_config.evaluation
    return (evaluation is None or evaluation.strategy != "no") and has_validation_data(document)


def images(document: JobDocument) -> list[tuple[Image, str]]:
    """(image, field of its reference) of each role that has one of its own, and of the job unless no role has that."""
    of_roles = [(role.resource_config.image, f"tasks.{i}.") for i, role in enumerate(document.tasks)]
    has_jobs = not of_roles or any(image is None for image, _ in of_roles)
    given = [*([(document.resource_config.image, "")] if has_jobs else []), *of_roles]
    return [(image, f"{at}{IMAGE_FIELD}") for image, at in given if image is not None and image.reference]


def _image_path(image: Image) -> str:
    """The path of an image that lies in a storage root; empty for one of a registry. Raises BadSpec."""
    reference = parse_image(image.reference)
    return reference.name if reference.is_local else ""


def locations(document: JobDocument) -> list[tuple[str, str]]:
    """(location, field) of everything that the job reads."""
    training, listed = document.training_config, document.data_config.sources
    model, framework = training.base_model, training.framework
    named = [
        (model.model_id, "training_config.base_model.model_id"),
        (model.tokenizer_id, "training_config.base_model.tokenizer_id"),
        (framework.custom_script_path, "training_config.framework.custom_script_path"),
        (framework.custom_code_dir, "training_config.framework.custom_code_dir"),
        *((_image_path(image), field) for image, field in images(document)),
        *((source.path, f"data_config.sources.{i}.path") for i, source in enumerate(listed)),
        *((each.dataset.path, f"{at}.dataset.path") for each, at in _planned(document) if each.dataset is not None),
        *benchmark_files(document),
        *benchmark_judges(document),
        *((role.training_config.custom_script_path, script_of_role(i)) for i, role in enumerate(document.tasks)),
    ]
    if not is_custom(document):
        values, field = training.hyperparameters, "training_config.hyperparameters"
        named += [(reward_file(values), f"{field}.{REWARD}"), (reward_model(values), f"{field}.{REWARD_MODEL}")]
    return [(location, field) for location, field in named if location]


def script_of_role(number: int) -> str:
    """The field with the script of a role."""
    return f"tasks.{number}.training_config.custom_script_path"


def uploads(document: JobDocument) -> list[tuple[str, str]]:
    """(file id, field) of every uploaded file that the job reads: as data, as a model, or as its code."""
    return [
        (location, field)
        for location, field in locations(document)
        if is_upload(location) and (is_directory(field) or field.startswith("data_config.") or ".dataset." in field)
    ]


def is_directory(field: str) -> bool:
    """Whether an uploaded file that the field names is an archive of a directory."""
    return field.startswith("training_config.base_model.") or field == "training_config.framework.custom_code_dir"


def benchmark_files(document: JobDocument) -> Iterator[tuple[str, str]]:
    """(location, field) of the user's code that benchmarks run: `custom:PATH`, `reward` with a file, or a task's."""
    for name, parameters, at in _benchmarks(document):
        family, _, path = name.partition(":")
        if family == "custom" and path:
            yield path, f"{at}.name"
        if family == LM_EVAL and isinstance(directory := parameters.get(TASK_DIR), str) and directory:
            yield directory, f"{at}.parameters.{TASK_DIR}"
        kind, path = reward_kind(str(parameters.get(REWARD, "")))
        if family == REWARD and kind == FILE and path:
            yield path, f"{at}.parameters.{REWARD}"


def benchmark_judges(document: JobDocument) -> Iterator[tuple[str, str]]:
    """(location, field) of the reward models that judge answers in the benchmark `reward`."""
    for name, parameters, at in _benchmarks(document):
        if name == REWARD and (judge := reward_model(parameters)):
            yield judge, f"{at}.parameters.{REWARD_MODEL}"


def judging_model(document: JobDocument) -> str:
    """The reward model of a training, or of the evaluation that the document is; empty when there is none."""
    if document.inference is None:
        return "" if is_custom(document) else reward_model(document.training_config.hyperparameters)
    return next((judge for judge, _ in benchmark_judges(document)), "")


def judging_job(document: JobDocument) -> str | None:
    """The job whose result is `judging_model`; None where that is no job's id."""
    judge = judging_model(document)
    return judge if JOB_ID.fullmatch(judge) else None


def judging_jobs(document: JobDocument) -> list[tuple[str, str]]:
    """(job, field) of every job that the document, also in evaluations that it plans, names as a reward model."""
    named = [(judge, field) for judge, field in locations(document) if field.endswith(f".{REWARD_MODEL}")]
    return [(judge, field) for judge, field in named if JOB_ID.fullmatch(judge)]


def _benchmarks(document: JobDocument) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(name, parameters, field) of each benchmark that the document measures or plans."""
    measured = document.inference.benchmarks if document.inference is not None else ()
    yield from ((each.name, each.parameters, f"{BENCHMARKS}.{i}") for i, each in enumerate(measured))
    yield from ((each.name, each.parameters, at) for each, at in _planned(document))


def _planned(document: JobDocument) -> Iterator[tuple[PlannedBenchmark, str]]:
    """Each benchmark that a training plans, and its field."""
    for i, planned in enumerate(document.training_config.evaluations):
        for j, each in enumerate(planned.benchmarks):
            yield each, f"training_config.evaluations.{i}.benchmarks.{j}"
