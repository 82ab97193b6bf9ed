"""The completion report of a job that has ended."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.domain.errors import NotFound
from app.domain.job_state import TERMINAL, JobState
from app.models import Attempt, Job

# The three ways a completion is reported; a preempted job did not reach its goal.
STATUS = {
    JobState.COMPLETED: "SUCCESS",
    JobState.FAILED: "FAILED",
    JobState.PREEMPTED: "FAILED",
    JobState.CANCELLED: "CANCELLED",
}


@dataclass(frozen=True, kw_only=True)
class CompletionReport:
    """``model_hash`` is the SHA-256 over the bytes of ``weight_files``, in that order; empty without a model."""

    job_id: str
    status: str
    output_model_name: str | None  # as the job document named its result
    model_hash: str
    model_uri: str
    weight_files: list[str]
    final_metrics: dict[str, Any]
    compute_time_ms: int
    gpu_time_ms: int
    average_gpu_util: float | None  # 0–100; None when no device could be observed
    steps: int
    tokens: int
    attempts: int
    error_message: str | None
    error_stack: str | None


def completion_report(session: Session, job: Job) -> CompletionReport:
    """Raises NotFound until the job has ended."""
    if job.state not in TERMINAL:
        raise NotFound(f"job {job.id} is {job.status}; its report exists when it has ended")
    result = job.report or {}
    attempts = session.scalar(select(func.count()).select_from(Attempt).where(Attempt.job_id == job.id)) or 0
    return CompletionReport(
        job_id=job.id,
        status=STATUS[job.state],
        output_model_name=job.spec.get("output_config", {}).get("output_model_name"),
        model_hash=result.get("model_hash", ""),
        model_uri=result.get("model_uri", ""),
        weight_files=result.get("weight_files", []),
        final_metrics=result.get("final_metrics") or job.latest_metrics,
        compute_time_ms=round(job.elapsed_seconds * 1000),
        gpu_time_ms=round(job.gpu_seconds * 1000),
        average_gpu_util=round((job.gpu_util_sum or 0.0) / job.gpu_util_samples, 1) if job.gpu_util_samples else None,
        steps=job.current_step,
        tokens=job.tokens,
        attempts=attempts,
        error_message=job.error_message,
        error_stack=job.error_stack,
    )
