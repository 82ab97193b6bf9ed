"""The columns of a new job's row that repeat parts of its document."""

from typing import Any

from app.domain.spec.model import JobDocument


def columns_of(document: JobDocument) -> dict[str, Any]:
    training, scheduling = document.training_config, document.scheduling_config
    return {
        "name": document.name,
        "labels": dict(document.labels),
        "spec": document.to_json(),
        "training_type": training.training_type,
        "framework": training.framework.type,
        "queue": scheduling.queue,
        "priority": scheduling.priority,
        "max_retries": training.max_retries,
        "max_runtime_seconds": scheduling.max_runtime_seconds,
    }
