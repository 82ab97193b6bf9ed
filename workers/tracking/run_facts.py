"""What the process of a tracking service gets: the service, and the job's parameters and tags.

These come from the stored document, which has no secrets.
"""

import json
import math
import re
import time
from typing import Any

from app.domain.spec.model import MLFLOW, TRACKIO, WANDB, Tracker
from app.domain.spec.rules.tracking import LONGEST_TAG, WANDB_URL
from app.domain.spec.secrets import tracker_token_path
from app.services.attempts.work_orders import WorkOrder
from config.settings import Settings
from workers.job_secrets import opened_secrets

SWEEP_LABEL, TRIAL_LABEL = "trainyard/sweep", "trainyard/trial"
MOST_PARAMS = 500
_WHOLE = re.compile(r"-?[0-9]{1,18}")
CALLS_IN_A_ROUND = 4.0  # a round of calls, such as finding the run and describing it, may take so many timeouts


def service_request(settings: Settings, work: WorkOrder, number: int) -> dict[str, Any]:
    """The first request to the process of a service: where it is, how it is opened, and what its run shows."""
    tracker = work.document.tracking[number]
    service = {
        "kind": tracker.kind,
        "url": tracker.url or (WANDB_URL if tracker.kind == WANDB else ""),
        "username": tracker.username or "",
        "token": opened_secrets(settings, work.sealed_secrets).get(tracker_token_path(number), ""),
        "allow": list(settings.tracking.allow),
        "timeout_seconds": settings.tracking.timeout_seconds,
        "round_seconds": settings.tracking.timeout_seconds * CALLS_IN_A_ROUND,
    }
    return {"service": service, "facts": _FACTS[tracker.kind](work, tracker)}


def _wandb_facts(work: WorkOrder, tracker: Tracker) -> dict[str, Any]:
    labels, started_from = work.document.labels, work.document.training_config.resume_from_checkpoint
    config = {name: _typed(value) for name, value in _params(work).items()}
    return {
        "job_id": work.job_id,
        "name": tracker.run_name or work.name,
        "project": tracker.experiment or work.project,
        "entity": tracker.entity or "",
        "config": {**config, **({"started_from": started_from} if started_from else {})},
        "tags": [*dict.fromkeys((*tracker.tags, *(f"{name}={value}"[:LONGEST_TAG] for name, value in labels.items())))],
        "group": labels.get(SWEEP_LABEL, ""),
        "job_type": work.training_type,
    }


def _typed(value: str) -> object:
    """Hyperparameters are stored as texts; those that are numbers are compared as such."""
    try:
        found = float(value) if not _WHOLE.fullmatch(value) else int(value)
    except ValueError:
        return value
    return found if math.isfinite(found) else value


def _trackio_facts(work: WorkOrder, tracker: Tracker) -> dict[str, Any]:
    return {
        "job_id": work.job_id,
        "name": tracker.run_name or work.name,
        "project": tracker.experiment or work.project,
        "attempt": work.attempt,
        "config": {
            **{name: _typed(value) for name, value in _params(work).items()},
            **{f"label.{name}": value for name, value in work.document.labels.items()},
        },
    }


def _facts(work: WorkOrder, tracker: Tracker) -> dict[str, Any]:
    return {
        "job_id": work.job_id,
        "name": tracker.run_name or work.name,
        "attempt": work.attempt,
        "experiment": tracker.experiment or work.project,
        "started_ms": int(time.time() * 1000),
        "params": _params(work),
        "tags": _tags(work),
    }


def _params(work: WorkOrder) -> dict[str, str]:
    """The values that people compare runs by; hyperparameters have the names of the document."""
    training, data = work.document.training_config, work.document.data_config
    values: dict[str, object] = {
        "base_model": training.base_model.model_id,
        "training_type": work.training_type,
        "framework": work.framework,
        "batch_size": data.batch_size,
        "gradient_accumulation_steps": data.gradient_accumulation_steps,
        "max_seq_length": data.max_seq_length,
        "seed": data.seed,
        "world_size": work.world_size,
        **training.hyperparameters,
    }
    return {name: _shown(value) for name, value in list(values.items())[:MOST_PARAMS]}


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _tags(work: WorkOrder) -> dict[str, str]:
    labels, started_from = work.document.labels, work.document.training_config.resume_from_checkpoint
    tags = {
        "mlflow.source.name": "trainyard",
        "mlflow.source.type": "JOB",
        "trainyard.project": work.project,
        **{f"trainyard.label.{name}": value for name, value in labels.items()},
    }
    if sweep := labels.get(SWEEP_LABEL):
        tags |= {"trainyard.sweep_id": sweep, "trainyard.trial": labels.get(TRIAL_LABEL, "")}
    if started_from:
        tags["trainyard.started_from"] = started_from  # of a fork: the checkpoint that it begins with
    return tags


_FACTS = {MLFLOW: _facts, TRACKIO: _trackio_facts, WANDB: _wandb_facts}
