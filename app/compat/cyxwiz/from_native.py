"""Jobs, reports and nodes of the native API → CyxWiz's messages. Pure."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from app.compat.cyxwiz import inference
from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz.to_native import (
    DEFINED,
    DEVICE,
    DIALECT,
    GPU_MEMORY,
    NUMBERS,
    PLAIN,
    RAM,
    SECTIONS,
    SOURCES,
    TOKENIZER,
)
from app.domain.lifecycle.states import JobState
from app.domain.spec.inference import BATCH, FEATURES, TRAINING
from app.services.jobs.details import JobDetails
from app.services.jobs.reports import CompletionReport
from app.services.nodes.listing import NodeDetails

_S, _State = JobState, pb.JobStatus
# Job state → CyxWiz's state and step.
STATES: dict[JobState, tuple["pb.JobStatus.State", pb.Step]] = {
    _S.PENDING: (_State.PENDING, pb.RECEIVED),
    _S.QUEUED: (_State.PENDING, pb.RECEIVED),
    _S.SCHEDULING: (_State.ASSIGNED, pb.VALIDATE),
    _S.PREPARING: (_State.ASSIGNED, pb.DOWNLOAD),
    _S.TRAINING: (_State.RUNNING, pb.EXECUTE),
    _S.CHECKPOINTING: (_State.RUNNING, pb.EXECUTE),
    _S.EVALUATING: (_State.RUNNING, pb.UPLOAD),
    _S.SERVING: (_State.RUNNING, pb.EXECUTE),
    _S.EXPORTING: (_State.RUNNING, pb.UPLOAD),
    _S.PAUSED: (_State.PAUSED, pb.EXECUTE),
    _S.COMPLETED: (_State.COMPLETED, pb.UPLOAD),
    _S.FAILED: (_State.FAILED, pb.EXECUTE),
    _S.CANCELLED: (_State.CANCELLED, pb.EXECUTE),
    _S.PREEMPTED: (_State.PENDING, pb.RECEIVED),
}
# Last state before FAILED or CANCELLED → step; admission is part of VALIDATE.
_ENDED_IN = {**{state: step for state, (_, step) in STATES.items()}, _S.PENDING: pb.VALIDATE}
_COMPLETIONS = {"SUCCESS": pb.SUCCESS, "FAILED": pb.FAILED, "CANCELLED": pb.CANCELLED}
DEVICES = {"cpu": pb.CPU, "cuda": pb.CUDA}
_LARGEST = 2**31 - 1
_FAILED_ATTEMPT = 13  # gRPC's INTERNAL
_MEMORY = ("gpu_memory_mb", "memory_mb")  # metrics with the memory in use, the first one that exists


def status_of(details: JobDetails, ended_in: JobState | None = None) -> pb.JobStatus:
    """``ended_in``: the last state of a failed or cancelled job before it ended."""
    job = details.job
    state, step = STATES[job.state]
    if job.state is JobState.EVALUATING and details.document.kind != TRAINING:
        step = pb.EXECUTE  # of a training it comes after all steps
    if ended_in is not None:
        step = _ENDED_IN[ended_in]
    return pb.JobStatus(
        job_id=id_of(details),
        status=state,
        progress=job.progress,
        current_node_id=next(iter(job.node_names), ""),
        start_time=moment(job.started_at),
        end_time=moment(job.finished_at),
        metrics=numbers(job.latest_metrics),
        error=pb.Error(code=_FAILED_ATTEMPT, message=job.error_message) if job.error_message else None,
        current_epoch=_epoch(job.current_epoch),
        step=step,
        trainyard_job_id=job.id,
        pending_reason=details.pending_reason,
        config=config_of(details),
    )


def id_of(details: JobDetails) -> str:
    """The client's job_id, or the native id."""
    foreign: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    return str(foreign.get("job_id") or details.job.id)


def config_of(details: JobDetails) -> pb.JobConfig:
    """The JobConfig that would submit this job; `model_config` has all that JobConfig has no other field for."""
    foreign: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    trains = details.document.kind == TRAINING
    rest = _trained(details) if trains else inference.document_of(details)
    numbered = {held.field: popped(rest, held.path) for held in (NUMBERS if trains else inference.NUMBERS)}
    sources = popped(rest, SOURCES)
    device = str(popped(rest, DEVICE) or "auto")
    memory = popped(rest, GPU_MEMORY) if device == "cuda" else popped(rest, RAM)
    return pb.JobConfig(
        job_id=id_of(details),
        job_type=pb.TRAINING if trains else pb.INFERENCE,
        dataset_uri=_path_of(sources),
        model_config=_model_of(foreign, details, rest) if trains else inference.model_of(foreign, rest),
        epochs=whole(numbered.get("epochs")),
        batch_size=whole(numbered.get("batch_size")),
        learning_rate=_number(numbered.get("learning_rate")),
        priority=whole(numbered["priority"]),
        timeout_seconds=whole(numbered["timeout_seconds"]),
        required_device=DEVICES.get(device, pb.DEVICE_UNKNOWN),
        min_memory_mb=whole(memory),
        # Of a job of an earlier release, which stored the field and ignored it.
        max_output_size_mb=int(_number(numbered["max_output_size_mb"] or foreign.get("max_output_size_mb"))),
    )


def _trained(details: JobDetails) -> dict[str, Any]:
    return {name: details.stored[name] for name in SECTIONS if details.stored.get(name)}


def _model_of(foreign: Mapping[str, Any], details: JobDetails, rest: Mapping[str, Any]) -> str:
    """`model_config` in the form in which it was submitted; for other jobs the remaining sections."""
    base = details.document.training_config.base_model
    if PLAIN.items() <= foreign.items():
        return base.model_id
    if DEFINED.items() <= foreign.items() and isinstance(base.from_config, Mapping):
        return json.dumps({**base.from_config, TOKENIZER: base.tokenizer_id}, sort_keys=True)
    return json.dumps(rest, sort_keys=True)


def progress_of(details: JobDetails) -> pb.ProgressUpdate:
    job = details.job
    metrics = numbers(job.latest_metrics)
    if details.document.kind in (BATCH, FEATURES):
        metrics |= {"records": float(job.current_step), "total_records": float(job.total_steps or 0)}
    return pb.ProgressUpdate(
        job_id=id_of(details),
        progress=job.progress,
        current_epoch=_epoch(job.current_epoch),
        total_epochs=math.ceil(job.total_epochs or 0),
        metrics=metrics,
        gpu_utilization=metrics.get("gpu_utilization", 0.0),
        memory_used_mb=round(next((metrics[name] for name in _MEMORY if name in metrics), 0.0)),
        elapsed_seconds=round(details.elapsed_seconds),
        eta_seconds=round(job.eta_seconds or 0),
    )


def _epoch(passed: float) -> int:
    """The number of the epoch of the newest step, from 1; 0 before the first step."""
    return math.ceil(round(passed, 6))


def report_of(job_id: str, report: CompletionReport) -> pb.CompletionReport:
    return pb.CompletionReport(
        job_id=job_id,
        status=_COMPLETIONS[report.status],
        model_hash=report.model_hash,
        model_uri=report.model_uri,
        final_metrics=numbers(report.final_metrics),
        compute_time_ms=report.compute_time_ms,
        gpu_time_ms=report.gpu_time_ms,
        average_gpu_util=report.average_gpu_util or 0.0,
        error_message=report.error_message or "",
        error_stack=report.error_stack or "",
    )


def node_of(details: NodeDetails, score: float) -> pb.NodeInfo:
    node = details.node
    return pb.NodeInfo(
        node_id=node.name,
        status=node.state,
        cpu_cores=node.cpu_cores,
        memory_mb=node.ram_mb,
        score=score,
        active_jobs=details.active_jobs,
        max_concurrent=(node.limits or {}).get("max_concurrent") or 0,
        reputation=details.reputation,
        last_heartbeat=moment(node.last_seen_at),
        devices=[
            pb.DeviceInfo(
                type=pb.CPU if each.device.type == "cpu" else pb.CUDA,
                name=each.device.type,
                memory_mb=each.device.memory_mb,
                in_use=each.in_use,
            )
            for each in details.devices
        ],
    )


def moment(at: datetime | None) -> Timestamp | None:
    if at is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(at)
    return stamp


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics as floats; NaN and infinities are stored as strings."""
    return {name: float(value) for name, value in metrics.items()}


def popped(document: dict[str, Any], path: str) -> object:
    """Remove the value at ``path`` and return it, or None; nested sections are copied, not changed."""
    name, _, below = path.partition(".")
    if name not in document:
        return None
    if not below:
        return document.pop(name)
    inner = document[name] = dict(document[name])
    return popped(inner, below)


def _path_of(sources: object) -> str:
    """The path of the first source of the data."""
    return str(sources[0].get("path") or "") if isinstance(sources, list) and sources else ""


def whole(value: object) -> int:
    number = _number(value)
    return int(number) if number <= _LARGEST else _LARGEST


def _number(value: object) -> float:
    try:
        return float(value) if isinstance(value, str | int | float) and value else 0.0
    except ValueError:  # hyperparameters of a custom script may be any string
        return 0.0
