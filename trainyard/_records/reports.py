"""Types of the server's answers about the results of jobs, part of trainyard.records."""

from typing import TypedDict

from trainyard._records.inference import ReportedEvaluation


class Artifact(TypedDict):
    path: str
    size_bytes: int
    sha256: str


class Goodput(TypedDict):
    wall_seconds: float
    productive_seconds: float
    ratio: float
    badput: dict[str, float]


class TrainingReport(TypedDict):
    job_id: str
    status: str
    output_model_name: str | None
    model_hash: str
    model_uri: str
    weight_files: list[str]
    final_metrics: dict[str, float | str]  # as trainyard.records.Metric
    compute_time_ms: int
    gpu_time_ms: int
    average_gpu_util: float | None
    steps: int
    tokens: int
    attempts: int
    goodput: Goodput | None
    error_message: str | None
    error_stack: str | None
    forked_from: int | None  # of a sweep's trial: the trial whose checkpoint it began with
    steps_saved: int


class Report(TrainingReport):
    evaluations: list[ReportedEvaluation]
    passed: bool | None
