"""Types of a comparison of jobs, part of trainyard.records."""

from typing import Any, TypedDict


class ComparedJob(TypedDict):
    job_id: str
    name: str
    project: str
    status: str
    training_type: str
    framework: str
    devices: dict[str, Any] | None
    versions: dict[str, str]
    model_hash: str | None
    steps: int
    tokens: int
    attempts: int
    elapsed_seconds: float
    gpu_seconds: float
    error_type: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None


class Comparison(TypedDict):
    """Lists have a value per job, in the order of ``jobs``."""

    jobs: list[ComparedJob]
    differences: list[dict[str, Any]]
    metrics: dict[str, dict[str, Any]]
    left_out: list[str]
    curves: dict[str, list[list[dict[str, float | str]]]]
