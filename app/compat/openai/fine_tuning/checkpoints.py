"""Checkpoints and metrics of steps in OpenAI's words. Pure."""

from collections.abc import Mapping
from typing import Any, Protocol

from app.compat.ids import uuid_of
from app.compat.openai.bodies import seconds
from app.compat.openai.fine_tuning.from_native import id_of
from app.domain.model_names import checkpoint_name
from app.services.rows import Job

ID = "ftckpt-"
_PREFIX = "ckpt-"
# Native metric → the client's. An evaluation measures all validation data.
_METRICS: dict[str, tuple[str, ...]] = {
    "loss": ("train_loss",),
    "mean_token_accuracy": ("train_mean_token_accuracy",),
    "eval_loss": ("valid_loss", "full_valid_loss"),
    "eval_mean_token_accuracy": ("valid_mean_token_accuracy", "full_valid_mean_token_accuracy"),
    "reward": ("train_mean_reward",),
    "eval_reward": ("valid_mean_reward", "full_valid_mean_reward"),
}
MEASURED = tuple(_METRICS)  # the first is that of every step


class SavedRow(Protocol):
    """A row of a checkpoint."""

    id: str
    step: int
    metrics: Any
    created_at: Any


def metrics_of(values: Mapping[str, object]) -> dict[str, float]:
    """The finite ones of them: JSON has no others."""
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {name: float(numbers[native]) for native, names in _METRICS.items() if native in numbers for name in names}


def checkpoint_of(job: Job, checkpoint: SavedRow, model: str) -> dict[str, Any]:
    """``model``: the name of the fine-tuned model that the job makes."""
    return {
        "id": checkpoint_id(checkpoint.id),
        "object": "fine_tuning.job.checkpoint",
        "created_at": seconds(checkpoint.created_at),
        "fine_tuning_job_id": id_of(job.id),
        "fine_tuned_model_checkpoint": checkpoint_name(model, checkpoint.step),
        "step_number": checkpoint.step,
        "metrics": {"step": float(checkpoint.step), **metrics_of(checkpoint.metrics)},
    }


def checkpoint_id(native: str) -> str:
    return f"{ID}{uuid_of(native).removeprefix(_PREFIX)}"
