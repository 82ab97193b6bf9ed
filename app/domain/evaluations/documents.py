"""Documents of evaluations, from what users ask for or a training's document plans."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.evaluations.catalog import LOSS, PERPLEXITY
from app.domain.spec.document import typed_hyperparameters
from app.domain.spec.inference import EVALUATION, TRANSFORMERS, TYPES, ModelReference, Requirement
from app.domain.spec.model import BaseModel, DataConfig, JobDocument, PlannedBenchmark, ResourceConfig, SchedulingConfig

LONGEST_NAME = 128
LABEL, LABEL_VALUE = "type", "evaluation"  # of every evaluation that has no label of this name
PRETRAINING = "CONTINUED_PRETRAIN"
# How records become tokens: the same for a training and the evaluation of its model.
_OF_RECORDS = ("preprocess", "max_seq_length", "batch_size", "seed")
# What of a record is measured: hyperparameters of trainings, and parameters of the benchmarks.
_MASKS = ("completion_only_loss", "assistant_only_loss")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._\- ]+")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is measured: the base model and the reference of a document; ``trained`` is the document that made it."""

    base: BaseModel
    model: ModelReference
    trained: JobDocument | None = None


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """What else the document of an evaluation says; sections that are missing get their defaults.

    ``planned``: the document of the training asks for it, not a request.
    """

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    data: DataConfig | None = None
    resources: ResourceConfig | None = None
    scheduling: SchedulingConfig | None = None
    seed: int = 0
    require: Sequence[Requirement] = ()
    planned: bool = False


def document(subject: Subject, benchmarks: Sequence[PlannedBenchmark], options: EvaluationOptions) -> JobDocument:
    """The document of an evaluation, before its defaults and checks.

    Without data options of its own it reads records as the training did that made the model, so that its loss is the
    training's.
    """
    sources, measured = _numbered(_as_trained(each, subject.trained) for each in benchmarks)
    section: dict[str, Any] = {"model": subject.model.to_json(), "benchmarks": measured, "seed": options.seed}
    if options.require:
        section["require"] = [each.to_json() for each in options.require]
    if options.planned:
        section["planned"] = True
    return JobDocument.from_json(
        {
            "name": options.name or default_name(subject),
            "labels": {LABEL: LABEL_VALUE, **options.labels},
            "training_config": {
                "training_type": TYPES[EVALUATION],
                "base_model": subject.base.to_json(),
                "framework": {"type": TRANSFORMERS},
            },
            "data_config": {**_data(options.data, subject.trained), "sources": sources},
            "resource_config": (options.resources or ResourceConfig()).to_json(),
            "output_config": {},
            "scheduling_config": (options.scheduling or SchedulingConfig()).to_json(),
            "kind": EVALUATION,
            "inference": section,
        }
    )


def default_name(subject: Subject) -> str:
    """Of an evaluation that has no name: which model it is of."""
    model = subject.model
    of = model.service or model.checkpoint_id or model.job_id or subject.base.model_id.rstrip("/").rpartition("/")[2]
    return _NOT_IN_NAMES.sub("-", f"evaluation of {of}")[:LONGEST_NAME].strip()


def as_asked(stored: JobDocument) -> list[dict[str, Any]]:
    """The benchmarks of a stored document as users write them: with the dataset in place of its index."""
    if stored.inference is None:
        return []
    sources = [each.to_json() for each in stored.data_config.sources]
    return [
        {
            "name": each.name,
            "dataset": sources[each.dataset] if each.dataset is not None and each.dataset < len(sources) else None,
            "num_samples": each.num_samples,
            "parameters": dict(each.parameters),
        }
        for each in stored.inference.benchmarks
    ]


def _numbered(benchmarks: Iterable[PlannedBenchmark]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(data sources, each once; benchmarks with their index among them)."""
    sources: list[dict[str, Any]] = []
    measured = []
    for each in benchmarks:
        found: dict[str, Any] = {"name": each.name, "parameters": dict(each.parameters)}
        if each.num_samples is not None:
            found["num_samples"] = each.num_samples
        if each.dataset is not None:
            source = each.dataset.to_json()
            if source not in sources:
                sources.append(source)
            found["dataset"] = sources.index(source)
        measured.append(found)
    return sources, measured


def _data(asked: DataConfig | None, trained: JobDocument | None) -> dict[str, Any]:
    if asked is not None:
        return asked.without("sources").to_json()
    data = trained.data_config if trained is not None else DataConfig()
    return {name: value for name, value in data.to_json().items() if name in _OF_RECORDS}


def _as_trained(benchmark: PlannedBenchmark, trained: JobDocument | None) -> PlannedBenchmark:
    """Loss and perplexity count as in the training, where parameters do not say otherwise."""
    if trained is None or benchmark.name not in (LOSS, PERPLEXITY):
        return benchmark
    found: dict[str, Any] = {"batch_size": trained.data_config.batch_size}
    if trained.training_config.training_type == PRETRAINING:
        found["records_as"] = PRETRAINING
    values = typed_hyperparameters(trained)
    found |= {name: False for name in _MASKS if values.get(name) is False}
    return benchmark.changed(parameters={**found, **benchmark.parameters})
