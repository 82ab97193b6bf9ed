"""Jobs of the native API → fine-tuning jobs. Pure."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from app.compat.ids import job_id_of, uuid_of
from app.compat.openai.bodies import seconds, seconds_or_none
from app.compat.openai.fine_tuning import rates
from app.compat.openai.fine_tuning.data_files import TRAINING_FILE, VALIDATION_FILE
from app.compat.openai.fine_tuning.graders import grader_of, param_of, retold
from app.compat.openai.fine_tuning.naming import DIALECT, DPO, INTEGRATIONS, REINFORCEMENT, SUPERVISED
from app.domain.lifecycle.states import TERMINAL, JobState
from app.services.jobs.details import JobDetails

ID = "ftjob-"
_S = JobState
STATUSES: dict[JobState, str] = {
    _S.PENDING: "validating_files",
    _S.QUEUED: "queued",
    _S.SCHEDULING: "queued",
    _S.PREPARING: "queued",
    _S.TRAINING: "running",
    _S.CHECKPOINTING: "running",
    _S.EVALUATING: "running",
    _S.SERVING: "running",
    _S.EXPORTING: "running",
    _S.PAUSED: "paused",
    _S.COMPLETED: "succeeded",
    _S.FAILED: "failed",
    _S.CANCELLED: "cancelled",
    _S.PREEMPTED: "cancelled",
}
_METHODS = {"DPO": DPO, "RLHF": REINFORCEMENT}  # all other training types: supervised
_OF_SUPERVISED = ("n_epochs", "batch_size", "learning_rate_multiplier")


def id_of(job_id: str) -> str:
    """The id of the job as a fine-tuning job."""
    return f"{ID}{uuid_of(job_id)}"


def native_id(fine_tuning_job_id: str) -> str:
    """The native id, which clients may give, too; empty for an id that can't be one."""
    return job_id_of(fine_tuning_job_id.removeprefix(ID).removeprefix("job-"))


def foreign_of(details: JobDetails) -> Mapping[str, Any]:
    """What a client of this dialect said of the job; empty for jobs of others."""
    found: Mapping[str, Any] = details.job.foreign.get(DIALECT) or {}
    return found


def job_of(details: JobDetails, model: str | None = None, result_files: Sequence[str] = ()) -> dict[str, Any]:
    """``model``: the name of the fine-tuned model; without one its job's id is."""
    job, foreign = details.job, foreign_of(details)
    ended = job.state in TERMINAL
    method = foreign.get("method") or _method_of(details)
    return {
        "id": id_of(job.id),
        "object": "fine_tuning.job",
        "created_at": seconds(job.created_at),
        "finished_at": seconds_or_none(job.finished_at) if ended else None,
        "estimated_finish": _estimated_finish(details),
        "status": STATUSES[job.state],
        "error": _error_of(details),
        "model": foreign.get("model") or details.document.training_config.base_model.model_id or "none",
        "fine_tuned_model": (model or job.id) if job.state is JobState.COMPLETED else None,
        "organization_id": job.project,
        TRAINING_FILE: foreign.get(TRAINING_FILE) or _source_of(details, "train") or "none",
        VALIDATION_FILE: foreign.get(VALIDATION_FILE) or _source_of(details, "validation"),
        "result_files": list(result_files) if job.state is JobState.COMPLETED else [],
        "trained_tokens": job.tokens if ended else None,
        "seed": foreign.get("seed", details.document.data_config.seed),
        "hyperparameters": _hyperparameters_of(method),
        "method": method,
        "user_provided_suffix": foreign.get("suffix"),
        "metadata": foreign.get("metadata"),
        INTEGRATIONS: foreign.get(INTEGRATIONS),
        "trainyard": {"job_id": job.id, "status": job.status, "pending_reason": details.pending_reason},
    }


def _estimated_finish(details: JobDetails) -> int | None:
    job = details.job
    if STATUSES[job.state] != "running" or job.eta_seconds is None:
        return None
    return seconds(job.updated_at + timedelta(seconds=job.eta_seconds))


def _error_of(details: JobDetails) -> dict[str, Any] | None:
    job, message = details.job, details.job.error_message or details.job.status_reason
    if job.state is not JobState.FAILED:
        return None
    param = param_of(message) or _param_of(details, message)
    return {"code": job.error_type or "INTERNAL", "message": retold(message), "param": param}


def _param_of(details: JobDetails, message: str) -> str | None:
    """The file that the error is about."""
    files = {name: foreign_of(details).get(name) for name in (VALIDATION_FILE, TRAINING_FILE)}
    named = next((name for name, file in files.items() if file and file in message), None)
    is_of_data = (details.job.error_type or "").startswith("DATA_")
    return named or (TRAINING_FILE if is_of_data else None)


def _source_of(details: JobDetails, split: str) -> str | None:
    sources = details.document.data_config.sources
    return next((each.path for each in sources if (each.split or "train").partition("[")[0] == split), None)


def _method_of(details: JobDetails) -> dict[str, Any]:
    """Of a job that another client submitted."""
    training = details.stored["training_config"]
    kind = _METHODS.get(details.job.training_type, SUPERVISED)
    settings: dict[str, Any] = {"hyperparameters": rates.hyperparameters_of(details.stored)}
    if kind == REINFORCEMENT:
        settings["grader"] = grader_of(training)
        if settings["grader"] is None:  # no grader means it, and a method without one is none of OpenAI's
            return {"type": kind}
    return {"type": kind, kind: settings}


def _hyperparameters_of(method: Mapping[str, Any]) -> dict[str, Any]:
    """The deprecated place of the three that every method has."""
    found = (method.get(method["type"]) or {}).get("hyperparameters") or {}
    return {name: found[name] for name in _OF_SUPERVISED if name in found}
