"""Jobs, reports and nodes of the native API → CyxWiz's messages. Pure."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

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
from app.services.jobs.details import JobDetails
from app.services.jobs.reports import CompletionReport
from app.services.nodes.listing import NodeDetails

_S, _State = JobState, pb.JobStatus
# What became of a job, and where it is on its way.
STATES: dict[JobState, tuple["pb.JobStatus.State", pb.Step]] = {
    _S.PENDING: (_State.PENDING, pb.RECEIVED),
    _S.QUEUED: (_State.PENDING, pb.RECEIVED),
    _S.SCHEDULING: (_State.ASSIGNED, pb.VALIDATE),
    _S.PREPARING: (_State.ASSIGNED, pb.DOWNLOAD),
    _S.TRAINING: (_State.RUNNING, pb.EXECUTE),
    _S.CHECKPOINTING: (_State.RUNNING, pb.EXECUTE),
    _S.EVALUATING: (_State.RUNNING, pb.UPLOAD),
    _S.EXPORTING: (_State.RUNNING, pb.UPLOAD),
    _S.PAUSED: (_State.PAUSED, pb.EXECUTE),
    _S.COMPLETED: (_State.COMPLETED, pb.UPLOAD),
    _S.FAILED: (_State.FAILED, pb.EXECUTE),
    _S.CANCELLED: (_State.CANCELLED, pb.EXECUTE),
    _S.PREEMPTED: (_State.PENDING, pb.RECEIVED),
}
# Where a job was when it ended, if it did not reach its goal: what admission finds is found by validating.
_ENDED_IN = {**{state: step for state, (_, step) in STATES.items()}, _S.PENDING: pb.VALIDATE}
_COMPLETIONS = {"SUCCESS": pb.SUCCESS, "FAILED": pb.FAILED, "CANCELLED": pb.CANCELLED}
_DEVICES = {"cpu": pb.CPU, "cuda": pb.CUDA}
_LARGEST = 2**31 - 1
_FAILED_ATTEMPT = 13  # gRPC's INTERNAL
_BYTES = 1 << 20
_MEMORY = ("gpu_memory_mb", "memory_mb")  # of the metrics of a job, whichever there is


def status_of(details: JobDetails, ended_in: JobState | None = None) -> pb.JobStatus:
    """``ended_in``: the state that a job which failed or was cancelled was in before."""
    job = details.job
    state, step = STATES[job.state]
    if ended_in is not None:
        step = _ENDED_IN[ended_in]
    return pb.JobStatus(
        job_id=id_of(details), status=state, progress=job.progress, current_node_id=next(iter(job.node_names), ""),
        start_time=moment(job.started_at), end_time=moment(job.finished_at), metrics=numbers(job.latest_metrics),
        error=pb.Error(code=_FAILED_ATTEMPT, message=job.error_message) if job.error_message else None,
        current_epoch=_epoch(job.current_epoch), step=step, trainyard_job_id=job.id,
        pending_reason=details.pending_reason, config=config_of(details),
    )  # fmt: skip


def id_of(details: JobDetails) -> str:
    """What its client called it, or what we do."""
    foreign: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    return str(foreign.get("job_id") or details.job.id)


def config_of(details: JobDetails) -> pb.JobConfig:
    """As if the job had been submitted so; `model_config` has all for which there is no other field."""
    foreign: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    rest: dict[str, Any] = {name: details.spec[name] for name in SECTIONS if details.spec.get(name)}
    taken = {held.field: _taken(rest, held.path) for held in NUMBERS}
    sources = _taken(rest, SOURCES) or [{}]
    device = str(_taken(rest, DEVICE) or "auto")
    memory = _taken(rest, GPU_MEMORY) if device == "cuda" else _taken(rest, RAM)
    return pb.JobConfig(
        job_id=id_of(details), job_type=pb.TRAINING, dataset_uri=sources[0].get("path", ""),
        model_config=_model_of(foreign, details.spec, rest),
        epochs=_whole(taken["epochs"]), batch_size=_whole(taken["batch_size"]),
        learning_rate=_number(taken["learning_rate"]), priority=_whole(taken["priority"]),
        timeout_seconds=_whole(taken["timeout_seconds"]), required_device=_DEVICES.get(device, pb.DEVICE_UNKNOWN),
        min_memory_mb=_whole(memory),
        # Of a job that an earlier release took, which kept it without acting on it.
        max_output_size_mb=int(taken["max_output_size_mb"] or foreign.get("max_output_size_mb", 0)),
    )  # fmt: skip


def _model_of(foreign: Mapping[str, Any], spec: Mapping[str, Any], rest: Mapping[str, Any]) -> str:
    """In the form in which it was submitted; of other jobs all for which there is no other field."""
    base = spec["training_config"].get("base_model", {})
    if PLAIN.items() <= foreign.items():
        return str(base.get("model_id", ""))
    if DEFINED.items() <= foreign.items():
        return json.dumps({**base["from_config"], TOKENIZER: base[TOKENIZER]}, sort_keys=True)
    return json.dumps(rest, sort_keys=True)


def progress_of(details: JobDetails) -> pb.ProgressUpdate:
    job = details.job
    metrics = numbers(job.latest_metrics)
    return pb.ProgressUpdate(
        job_id=id_of(details), progress=job.progress, current_epoch=_epoch(job.current_epoch),
        total_epochs=math.ceil(job.total_epochs or 0), metrics=metrics,
        gpu_utilization=metrics.get("gpu_utilization", 0.0),
        memory_used_mb=round(next((metrics[name] for name in _MEMORY if name in metrics), 0.0)),
        elapsed_seconds=round(details.elapsed_seconds), eta_seconds=round(job.eta_seconds or 0),
    )  # fmt: skip


def _epoch(passed: float) -> int:
    """The number of the epoch that the newest step belongs to, the first being 1; 0 before the first step."""
    return math.ceil(round(passed, 6))


def report_of(job_id: str, report: CompletionReport) -> pb.CompletionReport:
    return pb.CompletionReport(
        job_id=job_id, status=_COMPLETIONS[report.status], model_hash=report.model_hash, model_uri=report.model_uri,
        final_metrics=numbers(report.final_metrics), compute_time_ms=report.compute_time_ms,
        gpu_time_ms=report.gpu_time_ms, average_gpu_util=report.average_gpu_util or 0.0,
        error_message=report.error_message or "", error_stack=report.error_stack or "",
    )  # fmt: skip


def node_of(details: NodeDetails, score: float) -> pb.NodeInfo:
    node = details.node
    return pb.NodeInfo(
        node_id=node.name, status=node.state, cpu_cores=node.cpu_cores, memory_mb=node.ram_mb, score=score,
        active_jobs=details.active_jobs, max_concurrent=(node.limits or {}).get("max_concurrent") or 0,
        reputation=details.reputation, last_heartbeat=moment(node.last_seen_at),
        devices=[
            pb.DeviceInfo(
                type=pb.CPU if each.device.type == "cpu" else pb.CUDA, name=each.device.type,
                memory_mb=each.device.memory_mb, in_use=each.in_use,
            )
            for each in details.devices
        ],
    )  # fmt: skip


def moment(at: datetime | None) -> Timestamp | None:
    if at is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(at)
    return stamp


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Those that are numbers; NaN and infinities are kept as texts, and are numbers again."""
    return {name: float(value) for name, value in metrics.items()}


def _taken(document: dict[str, Any], path: str) -> Any:
    """What stands there, or None; the document is the same without it, and nothing else is changed."""
    name, _, below = path.partition(".")
    if name not in document:
        return None
    if not below:
        return document.pop(name)
    inner = document[name] = dict(document[name])
    return _taken(inner, below)


def _whole(value: Any) -> int:
    number = _number(value)
    return int(number) if number <= _LARGEST else _LARGEST


def _number(value: Any) -> float:
    try:
        return float(value or 0)
    except ValueError:  # of a custom script, whose hyperparameters may be anything
        return 0.0
