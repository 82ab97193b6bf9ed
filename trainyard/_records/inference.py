"""Types of the server's answers about inference jobs and evaluations, part of trainyard.records."""

from typing import Any, TypedDict

Figure = float | str | None  # as trainyard.records.Metric; None: there is none


class CreatedInference(TypedDict):
    job_id: str
    status: str
    message: str
    estimated_wait_seconds: float | None
    warnings: list[str]


class InferenceJob(TypedDict):
    """A batch or a features job. Results of ``records`` are stored; ``failed_records`` of them have an error instead.

    ``total_records`` is None until they have been counted; tokens are those of the stored results, ``shards`` their
    number of parts.
    """

    job_id: str
    kind: str
    name: str
    labels: dict[str, str]
    project: str
    created_by: str
    created_by_name: str
    model: dict[str, Any]
    adapter: bool
    data_config: dict[str, Any]
    task: dict[str, Any]
    output: dict[str, Any]
    on_error: dict[str, Any]
    resource_config: dict[str, Any]
    scheduling_config: dict[str, Any]
    status: str
    status_reason: str
    pending_reason: str
    progress: float
    records: int
    total_records: int | None
    failed_records: int
    prompt_tokens: int
    completion_tokens: int
    shards: int
    total_shards: int | None
    eta_seconds: float | None
    elapsed_seconds: float
    parent_job_id: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    error_type: str | None
    error_message: str | None
    version: int


class CreatedEvaluation(TypedDict):
    evaluation_id: str
    status: str
    message: str
    estimated_wait_seconds: float | None
    warnings: list[str]


class BenchmarkResult(TypedDict):
    """``metrics`` has ``value`` and ``stderr`` of each; ``n`` samples."""

    metrics: dict[str, dict[str, Figure]]
    n: int
    seconds: float | None
    tokens: int


class Verdict(TypedDict):
    """A requirement, what was measured, and whether that ``passed``."""

    metric: str
    min: float | None
    max: float | None
    baseline: str | None
    margin: float
    value: Figure
    baseline_value: Figure
    passed: bool


class ReportedEvaluation(TypedDict):
    """An evaluation in the report of the job whose model it measures; ``planned`` in that job's document."""

    evaluation_id: str
    name: str
    planned: bool
    checkpoint_id: str | None
    step: int | None
    status: str
    results: dict[str, BenchmarkResult]
    passed: bool | None
    verdicts: list[Verdict]


class Evaluation(TypedDict):
    """``job_id`` is that of the model, or None; ``step`` that of its checkpoint, None of a result.

    ``results`` and ``verdicts`` are empty until the evaluation has completed, and ``passed`` is None.
    """

    evaluation_id: str
    name: str
    labels: dict[str, str]
    project: str
    created_by: str
    created_by_name: str
    job_id: str | None
    model: dict[str, Any]
    checkpoint_id: str | None
    step: int | None
    benchmarks: list[dict[str, Any]]
    require: list[dict[str, Any]]
    data_config: dict[str, Any]
    seed: int
    resource_config: dict[str, Any]
    scheduling_config: dict[str, Any]
    status: str
    status_reason: str
    pending_reason: str
    progress: float
    eta_seconds: float | None
    elapsed_seconds: float
    results: dict[str, BenchmarkResult]
    passed: bool | None
    verdicts: list[Verdict]
    error_type: str | None
    error_message: str | None
    parent_job_id: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    version: int


class Difference(TypedDict):
    """The evaluation ``id`` minus the baseline, on the samples that both have measured.

    ``interval`` holds the true difference with 95 % confidence. For metrics that are right or wrong ``p_value`` is
    McNemar's, ``changes`` the number of samples that changed sides, and ``changed`` the first of them: ``index``,
    ``from``, ``to``.
    """

    id: str
    difference: Figure
    interval: list[Figure] | None
    p_value: float | None
    n: int
    changes: int
    changed: list[dict[str, Any]]


class ComparedMetric(TypedDict):
    """``values`` has one per evaluation; ``notes`` say what is not comparable."""

    benchmark: str
    metric: str
    values: dict[str, Figure]
    differences: list[Difference]
    notes: list[str]


class EvaluationComparison(TypedDict):
    baseline: str
    comparisons: list[ComparedMetric]
