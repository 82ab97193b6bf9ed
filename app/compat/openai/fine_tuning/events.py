"""Events of a job, and its trained steps, as events of a fine-tuning job. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from app.compat.ids import uuid_of
from app.compat.openai.bodies import seconds
from app.compat.openai.fine_tuning.checkpoints import metrics_of
from app.compat.openai.fine_tuning.from_native import STATUSES, id_of
from app.compat.openai.fine_tuning.graders import retold
from app.domain.lifecycle.events import EventType
from app.domain.lifecycle.states import JobState
from app.domain.model_names import checkpoint_name
from app.services.jobs.details import JobDetails
from app.services.jobs.timeline import Entry, TrainedStep
from app.services.rows import Job, JobEvent

Level = Literal["info", "warn", "error"]
WAITS = "ftevent-waits"  # why a job waits now; no event of its history
_ID, _OF_STEP, _PREFIX = "ftevent-", "ftevent-step-", "evt-"
_STEP = re.compile(rf"{_OF_STEP}([0-9]{{1,9}})")
_E = EventType
_STATES: dict[str, str] = {
    JobState.QUEUED: "Files validated; the job is queued",
    JobState.SCHEDULING: "The job has its devices",
    JobState.PREPARING: "Model and data are being prepared",
    JobState.TRAINING: "Fine-tuning job started",
    JobState.CHECKPOINTING: "A checkpoint is being saved",
    JobState.EVALUATING: "The validation file is being evaluated",
    JobState.EXPORTING: "The fine-tuned model is being exported",
    JobState.PAUSED: "The job is paused",
    JobState.COMPLETED: "The job has successfully completed",
    JobState.CANCELLED: "The job was cancelled",
    JobState.PREEMPTED: "The job was preempted",
    JobState.FAILED: "The job failed",
}
_BESIDE_TRAINING = (JobState.CHECKPOINTING, JobState.EVALUATING)
_CONTINUES = "Training continues"
_REQUESTS: dict[str, str] = {
    _E.CANCEL_REQUESTED: "Cancellation of the job was requested",
    _E.PAUSE_REQUESTED: "A pause of the job was requested",
    _E.CHECKPOINT_REQUESTED: "A checkpoint was requested",
    _E.PREEMPT_REQUESTED: "The job is being preempted",
    _E.ATTEMPT_STARTED: "An attempt started",
    _E.ATTEMPT_ENDED: "An attempt ended",
}
_WARNINGS = (
    *(_E.WARNING, _E.PAUSE_FAILED, _E.CHECKPOINT_FAILED, _E.RESUME_FALLBACK, _E.RANK_EXITED),
    *(_E.ADJUSTED, _E.PREEMPT_REQUESTED),
)
_SHOWN = {  # in the message of a step
    "train_loss": "training loss",
    "train_mean_token_accuracy": "token accuracy",
    "train_mean_reward": "reward",
    "valid_loss": "validation loss",
    "valid_mean_token_accuracy": "validation token accuracy",
    "valid_mean_reward": "validation reward",
}


def events_of(details: JobDetails, entries: list[Entry], model: str) -> list[dict[str, Any]]:
    """``model``: the name of the fine-tuned model that the job makes."""
    return [
        _step_of(details.job, entry) if isinstance(entry, TrainedStep) else _event_of(details.job, entry, model)
        for entry in entries
    ]


def waiting_of(details: JobDetails, now: datetime) -> dict[str, Any] | None:
    """Why the job waits, if it does: what it needs, when it may start, and its place in the queue."""
    if STATUSES[details.job.state] not in ("validating_files", "queued") or not details.pending_reason:
        return None
    parts = [f"The job waits: {details.pending_reason.rstrip('.')}"]
    if details.estimated_start_at is not None:
        parts.append(f"Expected to start {details.estimated_start_at:%H:%M} UTC")
    if details.queue_position is not None:
        parts.append(f"Position {details.queue_position}")
    return _event(WAITS, now, f"{'. '.join(parts)}.")


def event_id_of(client_id: str) -> str:
    """The native id of an event."""
    return f"{_PREFIX}{client_id.removeprefix(_ID)}"


def step_of_id(client_id: str) -> int | None:
    """The step of the event of a step; None for other events."""
    found = _STEP.fullmatch(client_id)
    return int(found[1]) if found is not None else None


def _event(
    event_id: str, at: datetime, message: str, level: Level = "info", data: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "id": event_id,
        "object": "fine_tuning.job.event",
        "created_at": seconds(at),
        "level": level,
        "message": message,
        "type": "message" if data is None else "metrics",
        "data": {} if data is None else dict(data),
    }


def _step_of(job: Job, entry: TrainedStep) -> dict[str, Any]:
    found = metrics_of(entry.values)
    of_total = f"/{job.total_steps}" if job.total_steps else ""
    numbers = [f"{words}={found[name]:.4g}" for name, words in _SHOWN.items() if name in found]
    message = f"Step {entry.step}{of_total}: {', '.join(numbers) or 'no finite metrics'}{_remaining(job, entry.step)}"
    data = {"step": entry.step, "total_steps": job.total_steps, **found}
    return _event(f"{_OF_STEP}{entry.step}", entry.at, message, data=data)


def _remaining(job: Job, step: int) -> str:
    """Only of the newest step of a job that runs."""
    if STATUSES[job.state] != "running" or job.eta_seconds is None or step < job.current_step:
        return ""
    return f", about {max(1, round(job.eta_seconds / 60))} min left"


def _event_of(job: Job, event: JobEvent, model: str) -> dict[str, Any]:
    level, message = _said(job, event, model)
    return _event(f"{_ID}{uuid_of(event.id).removeprefix(_PREFIX)}", event.at, message, level)


def _said(job: Job, event: JobEvent, model: str) -> tuple[Level, str]:
    if event.type == _E.STATUS:
        return _said_of_state(job, event, model)
    if event.type == _E.SUBMITTED:
        return "info", f"Created fine-tuning job: {id_of(job.id)}"
    if event.type == _E.CHECKPOINT_SAVED and "step" in event.data:
        return "info", f"New checkpoint: {checkpoint_name(model, event.data['step'])}"
    known = _REQUESTS.get(event.type)
    message = ": ".join(part for part in (known, event.message) if part)
    has_failed = event.type == _E.PREFLIGHT and bool(event.data.get("errors"))
    level: Level = "error" if has_failed else "warn" if event.type in _WARNINGS else "info"
    return level, message or event.type


def _said_of_state(job: Job, event: JobEvent, model: str) -> tuple[Level, str]:
    """Errors word for word, unless they are about the grader."""
    state = event.to_status or ""
    if state == JobState.FAILED:
        return "error", retold(event.message or job.error_message or _STATES[state])
    if state == JobState.COMPLETED:
        return "info", f"{_STATES[state]}. New fine-tuned model: {model}"
    known = _CONTINUES if state == JobState.TRAINING and event.from_status in _BESIDE_TRAINING else _STATES.get(state)
    message = ": ".join(part for part in (known or state, event.message) if part)
    return ("warn" if state == JobState.PREEMPTED else "info"), message
