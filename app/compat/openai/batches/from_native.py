"""Batches as OpenAI's clients read them. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.compat.openai.bodies import seconds, seconds_or_none
from app.domain.batches.limits import HOUR_SECONDS
from app.domain.batches.states import BatchState
from app.services.rows import Batch, BatchJob

_ENDED_AT = {
    BatchState.COMPLETED: "completed_at",
    BatchState.FAILED: "failed_at",
    BatchState.EXPIRED: "expired_at",
    BatchState.CANCELLED: "cancelled_at",
}


def batch_of(batch: Batch, jobs: Sequence[BatchJob] = (), waits: str = "") -> dict[str, Any]:
    """``jobs``: those that answer its requests, as far as there are any yet; ``waits``: why one of them waits."""
    # While requests are checked, not all models and problems are known.
    models = list(batch.models) if batch.status != BatchState.VALIDATING else []
    problems = batch.problems if batch.status == BatchState.FAILED else ()
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "input_file_id": batch.input_file_id,
        "completion_window": window_of(batch.window_seconds),
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "errors": {"object": "list", "data": list(map(_problem, problems))} if problems else None,
        **_moments(batch),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "model": models[0] if len(models) == 1 else None,
        "usage": _usage(batch.prompt_tokens, batch.completion_tokens),
        "metadata": dict(batch.tags) or None,
        "trainyard": {
            "pending_reason": batch.pending_reason or waits or None,
            "jobs": {job.model: job.job_id for job in jobs},
        },
    }


def window_of(window_seconds: int) -> str:
    return f"{window_seconds // HOUR_SECONDS}h"


def _moments(batch: Batch) -> dict[str, int | None]:
    ended: dict[str, datetime | None] = dict.fromkeys(_ENDED_AT.values())
    if (name := _ENDED_AT.get(BatchState(batch.status))) is not None:
        ended[name] = batch.ended_at
    return {
        "created_at": seconds(batch.created_at),
        "in_progress_at": seconds_or_none(batch.in_progress_at),
        "expires_at": seconds(batch.expires_at),
        "finalizing_at": seconds_or_none(batch.finalizing_at),
        "cancelling_at": seconds_or_none(batch.cancelling_at),
        **{each: seconds_or_none(moment) for each, moment in ended.items()},
    }


def _problem(problem: Mapping[str, Any]) -> dict[str, Any]:
    return {name: problem.get(name) for name in ("code", "message", "param", "line")}


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Nothing is cached between requests, and no model here reasons apart from its answer."""
    return {
        "input_tokens": prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt_tokens + completion_tokens,
    }
