"""Documents of sweeps for tests, and how they are refused."""

from typing import Any

import pytest

from app.domain.errors import InvalidRequest
from app.domain.sweeps.rules.document import check
from app.domain.sweeps.spec import SweepSpec

JOB: dict[str, Any] = {
    "training_config": {
        "training_type": "LORA",
        "base_model": {"model_id": "base"},
        "framework": {"type": "HF_TRAINER"},
        "hyperparameters": {"max_steps": "900"},
    },
    "data_config": {"sources": [{"path": "train.jsonl"}], "validation_split": 0.05},
    "resource_config": {"gpu_count": 1},
}
SCRIPT: dict[str, Any] = {
    "training_config": {
        "training_type": "SFT",
        "framework": {
            "type": "CUSTOM",
            "custom_script_path": "train.py",
            "custom_arguments": [
                "--lr=$(sweep.lr)",
                "--opt",
                "$(sweep.optim)",
                "$(sweep.lr)/$(sweep.data_config.seed)",
            ],
        },
        "environment": {"MODE": "fast"},
    }
}
RATE = {"type": "double", "min": 1e-5, "max": 1e-3, "scale": "log"}
# Changes that leave one parameter and no early stopping.
PLAIN: dict[str, Any] = {"parameters": {"learning_rate": RATE}, "require": [], "early_stopping": {}}


def sweep(**changes: Any) -> dict[str, Any]:
    """A sweep that is accepted, with changed fields."""
    return {
        "name": "support-lr",
        "job": JOB,
        "parameters": {
            "learning_rate": RATE,
            "lora_r": {"type": "int", "values": [8, 16, 32]},
            "data_config.batch_size": {"type": "int", "min": 4, "max": 32, "step": 4},
            "lr_scheduler_type": {"type": "categorical", "values": ["linear", "cosine"]},
            "warmup_ratio": {"type": "double", "min": 0.0, "max": 0.2, "only_if": {"lr_scheduler_type": ["cosine"]}},
        },
        "require": ["lora_r * 2 <= 64"],
        "objective": {"metric": "eval_loss", "goal": "minimize", "select": "best"},
        "constraints": [{"metric": "rank_memory_mb_max", "at_most": 40_000}],
        "method": {"name": "tpe", "seed": 7},
        "early_stopping": {"name": "asha", "unit": "steps", "min": 100, "max": 900, "reduction": 3},
        "budget": {"max_trials": 60, "parallel_trials": 4, "max_device_hours": 40, "target": 1.35},
        "on_failed_trials": {"max_failed": 5},
        "enqueue": [],
        "keep": {"checkpoints_of_best": 3},
        **changes,
    }


def with_training(job: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**job, "training_config": {**job["training_config"], **changes}}


def refused(**changes: Any) -> InvalidRequest:
    """The refusal of a sweep with changed fields."""
    with pytest.raises(InvalidRequest) as caught:
        check(SweepSpec.from_json(sweep(**changes)))
    assert caught.value.message
    return caught.value
