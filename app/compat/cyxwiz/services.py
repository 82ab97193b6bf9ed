"""JobConfig of type INFERENCE whose model_config has kind `service` → the document of a service, and back. Pure."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.compat.cyxwiz import messages_pb2 as pb
from app.compat.cyxwiz.from_native import DEVICES, moment, popped, whole
from app.compat.cyxwiz.to_native import DEVICE, GPU_MEMORY, PRIORITY, RAM, REST, refuse, set_devices, set_value
from app.domain.errors import BadSpec
from app.domain.names import NAME, NAME_RULE
from app.domain.serving.states import ServiceState
from app.services.serving.listing import ServiceDetails, UsedTime

KIND, SERVICE = "kind", "service"
SECTIONS = (
    *("model", "task", "adapters", "replicas", "engine", "limits", "defaults", "resource_config", "scheduling_config"),
    "environment",
)
STATES: Mapping[ServiceState, "pb.JobStatus.State"] = {
    ServiceState.ACTIVE: pb.JobStatus.RUNNING,
    ServiceState.PAUSED: pb.JobStatus.PAUSED,
    ServiceState.ENDING: pb.JobStatus.RUNNING,
    ServiceState.ENDED: pb.JobStatus.CANCELLED,
}
_OF_JOBS = ("dataset_uri", "epochs", "batch_size", "learning_rate", "timeout_seconds", "max_output_size_mb")


def makes_service(config: pb.JobConfig) -> bool:
    """Whether it asks for a service; a model_config that is no JSON object is one of an inference job."""
    return config.job_type == pb.INFERENCE and _sections(config).get(KIND) == SERVICE


def to_native(config: pb.JobConfig) -> dict[str, Any]:
    """The request for the service. Raises BadSpec for an invalid JobConfig."""
    for field in _OF_JOBS:
        if getattr(config, field):
            raise BadSpec("is of jobs that end; omit it for a service, which reads requests", field=field)
    refuse(config, needed=(REST,))
    if NAME.fullmatch(config.job_id) is None:
        raise BadSpec(f"must be the name that requests to the service call as model: {NAME_RULE}", field="job_id")
    sections = _sections(config)
    unknown = sorted(sections.keys() - {KIND, *SECTIONS})
    if unknown:
        raise BadSpec(f"{unknown[0][:64]} is unknown; known: {', '.join((KIND, *SECTIONS))}", field=REST)
    document = {**{name: value for name, value in sections.items() if name != KIND}, "name": config.job_id}
    document.setdefault("resource_config", {})
    if config.priority:
        set_value(document, PRIORITY.path, config.priority, PRIORITY.field)
    set_devices(document, config)
    return document


def status_of(details: ServiceDetails, document: Mapping[str, Any]) -> pb.JobStatus:
    """``document``: the service as its API shows it, without secrets."""
    service = details.service
    return pb.JobStatus(
        job_id=service.name,
        status=STATES[ServiceState(service.status)],
        progress=_progress(details),
        start_time=moment(service.created_at),
        end_time=moment(service.ended_at),
        metrics=_metrics(details),
        step=_step(details),
        trainyard_job_id=service.id,
        pending_reason=details.pending_reason,
        config=_config_of(details, document),
    )


def progress_of(details: ServiceDetails, now: datetime) -> pb.ProgressUpdate:
    service = details.service
    return pb.ProgressUpdate(
        job_id=service.name,
        progress=_progress(details),
        metrics=_metrics(details),
        elapsed_seconds=round(((service.ended_at or now) - service.created_at).total_seconds()),
    )


def report_of(details: ServiceDetails, used: UsedTime) -> pb.CompletionReport:
    """Of a service that has ended."""
    return pb.CompletionReport(
        job_id=details.service.name,
        status=pb.CANCELLED,
        final_metrics={"replicas": float(used.replicas)},
        compute_time_ms=round(used.seconds * 1000),
        gpu_time_ms=round(used.gpu_seconds * 1000),
    )


def _sections(config: pb.JobConfig) -> dict[str, Any]:
    if not config.model_config.lstrip().startswith("{"):
        return {}
    try:
        found = json.loads(config.model_config)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _progress(details: ServiceDetails) -> float:
    """The share of the wanted replicas that answer."""
    wanted = details.service.wanted
    return min(1.0, details.answering / wanted) if wanted else 1.0


def _metrics(details: ServiceDetails) -> dict[str, float]:
    counts = {"answering": details.answering, "starting": details.starting, "wanted": details.service.wanted}
    counts |= {"in_flight": details.load.in_flight, "waiting": details.load.waiting}
    return {name: float(count) for name, count in counts.items()}


def _step(details: ServiceDetails) -> "pb.Step":
    if details.answering or not details.service.wanted or details.service.status != ServiceState.ACTIVE:
        return pb.EXECUTE
    return pb.DOWNLOAD if details.starting else pb.RECEIVED


def _config_of(details: ServiceDetails, document: Mapping[str, Any]) -> pb.JobConfig:
    rest = {name: document[name] for name in SECTIONS if name in details.document.given}
    priority, device = popped(rest, PRIORITY.path), str(popped(rest, DEVICE) or "auto")
    memory = popped(rest, GPU_MEMORY if device == "cuda" else RAM)
    return pb.JobConfig(
        job_id=details.service.name,
        job_type=pb.INFERENCE,
        model_config=json.dumps({KIND: SERVICE, **rest}, sort_keys=True),
        priority=whole(priority),
        required_device=DEVICES.get(device, pb.DEVICE_UNKNOWN),
        min_memory_mb=whole(memory),
    )
