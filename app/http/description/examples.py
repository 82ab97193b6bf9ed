"""Example request bodies by schema name; a test sends each."""

from typing import Any

from marshmallow import Schema

_DATA = {"sources": [{"path": "/srv/data/train.jsonl", "format": "jsonl"}], "batch_size": 4, "validation_split": 0.05}
_JOB = {
    "name": "support-v3",
    "labels": {"team": "support"},
    "training_config": {
        "training_type": "SFT",
        "base_model": {"model_id": "/srv/models/base"},
        "framework": {"type": "HF_TRAINER"},
        "hyperparameters": {"learning_rate": "2e-4", "num_train_epochs": "3"},
    },
    "data_config": _DATA,
    "resource_config": {"gpu_count": 1, "device_type": "cpu"},
    "output_config": {"checkpoint": {"save_steps": 200, "save_total_limit": 3}},
    "scheduling_config": {"queue": "default", "priority": 6},
}
_SWEEP = {
    "name": "support-lr",
    "job": {name: value for name, value in _JOB.items() if name != "name"},
    "parameters": {
        "learning_rate": {"type": "double", "min": 1e-5, "max": 1e-3, "scale": "log"},
        "data_config.batch_size": {"type": "int", "values": [4, 8, 16]},
    },
    "objective": {"metric": "eval_loss"},
    "method": {"name": "tpe", "seed": 7},
    "budget": {"max_trials": 20, "parallel_trials": 2},
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "SubmitJobSchema": _JOB,
    "PauseSchema": {"save_checkpoint": True},
    "ResumeSchema": {"from_best": False},
    "RetrySchema": {"modify_resources": True, "new_resource_config": {"gpu_count": 2}},
    "CancelSchema": {"reason": "the data was wrong"},
    "CreateSweepSchema": _SWEEP,
    "ChangeSweepSchema": {"budget": {"max_trials": 40}},
    "PauseSweepSchema": {"trials": "finish"},
    "CancelSweepSchema": {"reason": "the data was wrong"},
    "AddTrialSchema": {"values": {"learning_rate": 1e-4, "data_config.batch_size": 8}},
    "CompareJobsSchema": {
        "jobs": ["job-0197d2a4-7c1e-7d3a-9f53-1d2c5b0a9e11", "job-0197d2a4-8d2f-7b41-8c10-5e6f7a8b9c0d"],
        "metrics": ["loss", "eval_loss"],
    },
    "ValidateDataSchema": {"data_config": _DATA},
    "ChangeJobSchema": {"priority": 8, "labels": {"team": "support"}},
    "CreateQueueSchema": {"name": "nightly", "max_running_jobs": 4},
    "ChangeQueueSchema": {"paused": True},
    "DrainSchema": {"requeue": True},
    "RotateKeySchema": {"grace_seconds": 3600},
    "CreateProjectSchema": {"name": "support", "description": "The support team's models"},
    "ChangeProjectSchema": {"description": "The support team's models and their evaluations"},
    "CreateWebhookSchema": {"url": "https://hooks.example.org/trainyard", "event_types": ["COMPLETED", "FAILED"]},
    "ChangeWebhookSchema": {"is_active": False},
    "CreateKeySchema": {"role": "user", "name": "nightly runs", "expires_days": 90},
}


def example_of(schema: Schema) -> dict[str, Any] | None:
    """An example body for the schema, if there is one."""
    return EXAMPLES.get(type(schema).__name__)
