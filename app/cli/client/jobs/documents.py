"""Parts of a job's document as tables show them."""

from typing import Any

from trainyard.client import Job

# Of documents that are stored without them, as by the first versions.
_DEFAULTS = {"queue": "default", "priority": 5}


def scheduling(job: Job) -> dict[str, Any]:
    return {**_DEFAULTS, **job.data["scheduling_config"]}


def training(job: Job) -> dict[str, Any]:
    """Training type and framework."""
    found = job.data["training_config"]
    return {
        "training_type": found.get("training_type", ""),
        "framework": (found.get("framework") or {}).get("type", ""),
    }
