"""The form to create an evaluation: its fields, a row for each benchmark, and the document that it begins with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.domain.evaluations.catalog import BENCHMARKS
from app.domain.lifecycle.states import JobState
from app.schemas.evaluations import CreateEvaluationSchema
from app.schemas.spec.benchmarks import BenchmarkSchema
from app.services.jobs.details import JobDetails
from app.web.job_form import FieldGroup, FormField, field_at

BENCHMARK: Mapping[str, Any] = {"name": "perplexity", "dataset": ""}
_CHECKPOINTS = ("best", "latest")
_MODEL = {"model.job_id": "Job", "model.checkpoint": "Checkpoint of the job", "model.model_uri": "Or another model"}
_FIELDS_OF_INPUTS = {"base model ": "model.model_uri", "data source ": "benchmarks"}
_RESOURCES = ("gpu_count", "gpu_type", "device_type")
_MORE = (
    "labels",
    "data_config.max_seq_length",
    "model.revision",
    "model.tokenizer_id",
    "model.dtype",
    "model.quantization",
    "scheduling_config.queue",
    "scheduling_config.priority",
    "seed",
)


@dataclass(frozen=True, kw_only=True)
class BenchmarkRow:
    """One benchmark of the evaluation."""

    number: int
    fields: Sequence[FormField]


def groups() -> list[FieldGroup]:
    model = [_field(path, title) for path, title in _MODEL.items()]
    model[1] = replace(model[1], suggestions=_CHECKPOINTS)
    return [
        FieldGroup(title="Evaluation", fields=[_field("name")]),
        FieldGroup(title="Model", fields=model),
        FieldGroup(title="Resources", fields=[_field(f"resource_config.{name}") for name in _RESOURCES]),
    ]


def more() -> FieldGroup:
    return FieldGroup(title="More of the evaluation", fields=list(map(_field, _MORE)))


def rows(count: int) -> list[BenchmarkRow]:
    return [BenchmarkRow(number=number, fields=list(_row(number))) for number in range(count)]


def known_benchmarks() -> list[dict[str, Any]]:
    return [each.describe() for each in BENCHMARKS.values()]


def field_of_input(failure: str) -> str:
    """The field of what is missing; empty if the form has none for it."""
    return next((field for words, field in _FIELDS_OF_INPUTS.items() if failure.startswith(words)), "")


def document_of(job: JobDetails | None, checkpoint: str, model_uri: str) -> dict[str, Any]:
    """The evaluation to begin with, of a job's result or a checkpoint, or of another model."""
    if job is None:
        model: dict[str, Any] = {"model_uri": model_uri} if model_uri else {}
        return {"model": model, "benchmarks": [dict(BENCHMARK)], "resource_config": {"gpu_count": 1}}
    if not checkpoint and job.job.state is not JobState.COMPLETED:
        checkpoint = "latest"
    sources = job.document.data_config.sources
    validation = next((each.path for each in sources if (each.split or "").startswith("validation")), "")
    resources: dict[str, Any] = {"gpu_count": 1}
    if job.document.resource_config.gpu_type:
        resources["gpu_type"] = job.document.resource_config.gpu_type
    return {
        "model": {"job_id": job.job.id, **({"checkpoint": checkpoint} if checkpoint else {})},
        "benchmarks": [{**BENCHMARK, "dataset": validation}],
        "resource_config": resources,
    }


def _field(path: str, title: str = "") -> FormField:
    return field_at(path, CreateEvaluationSchema, title=title)


def _row(number: int) -> Iterator[FormField]:
    at = f"benchmarks.{number}"
    yield from benchmark_fields(at, "What is measured")
    yield field_at("num_samples", BenchmarkSchema, title="Records").below(at)


def benchmark_fields(at: str, meaning: str) -> Iterator[FormField]:
    """Name and dataset of the benchmark at this path of a document; ``meaning``: of the name."""
    names = tuple(each.name for each in BENCHMARKS.values() if not each.takes_argument)
    yield FormField(
        path=f"{at}.name", kind="text", meaning=meaning, suggestions=names, is_required=True, title="Benchmark"
    )
    dataset = "A path, a URI, or file-… of an upload"
    yield FormField(path=f"{at}.dataset", kind="source", meaning=dataset, title="Dataset")
