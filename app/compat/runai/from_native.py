"""Jobs of the native API → Run:ai's trainings and workloads. Pure."""

import shlex
from collections.abc import Mapping
from typing import Any

from app.compat.runai.to_native import DIALECT, PRIORITIES
from app.domain.ids import JOB_ID
from app.domain.job_state import TERMINAL, JobState
from app.models import JobEvent
from app.schemas.strict_fields import on_the_wire
from app.services.job_details import JobDetails

_S = JobState
STATES: dict[JobState, str] = {
    _S.PENDING: "Creating", _S.QUEUED: "Pending", _S.SCHEDULING: "Pending", _S.PREPARING: "Initializing",
    _S.TRAINING: "Running", _S.CHECKPOINTING: "Running", _S.EVALUATING: "Running", _S.EXPORTING: "Running",
    _S.PAUSED: "Stopped", _S.COMPLETED: "Completed", _S.FAILED: "Failed", _S.CANCELLED: "Stopped",
    _S.PREEMPTED: "Pending",
}  # fmt: skip
THE_CLUSTER = "00000000-0000-0000-0000-000000000000"  # of jobs whose client named none
_PREFIX = "job-"


def workload_id(job_id: str) -> str:
    """The part of our id that is a UUID."""
    return job_id.removeprefix(_PREFIX)


def job_id_of(workload: str) -> str:
    """Ours; what is no UUID names no job."""
    job_id = f"{_PREFIX}{workload}"
    return job_id if JOB_ID.fullmatch(job_id) else ""


def is_deleted(details: JobDetails) -> bool:
    """Whether a client of Run:ai has deleted it, and it has ended since: then it is gone."""
    return bool(_foreign(details).get("deleted")) and details.job.state in TERMINAL


def phase_of(details: JobDetails) -> str:
    job = details.job
    if _foreign(details).get("deleted"):
        return "Deleting"
    if details.requested == "pause":
        return "Stopping"
    if details.requested == "cancel":
        return "Terminating"
    if job.state is JobState.QUEUED and job.attempt:
        return "Resuming"
    return STATES[job.state]


def training_of(details: JobDetails) -> dict[str, Any]:
    job, foreign = details.job, _foreign(details)
    stopped = job.state in (JobState.PAUSED, JobState.CANCELLED) or details.requested is not None
    return {
        "name": job.name,
        "requestedName": foreign.get("requested_name", job.name),
        "workloadId": workload_id(job.id),
        "projectId": job.project,
        "clusterId": foreign.get("cluster_id", THE_CLUSTER),
        "createdBy": job.created_by,
        "createdAt": on_the_wire(job.created_at),
        "desiredPhase": "Deleted" if foreign.get("deleted") else "Stopped" if stopped else "Running",
        "actualPhase": phase_of(details),
        "spec": foreign.get("spec") or spec_of(details),
    }


def spec_of(details: JobDetails) -> dict[str, Any]:
    """Of a job that was submitted in other words: as much as Run:ai has words for."""
    training, resources = details.spec["training_config"], details.spec["resource_config"]
    words = training["framework"].get("custom_command") or []
    scheduling = details.spec.get("scheduling_config", {})
    found: dict[str, Any] = {
        "backoffLimit": details.job.max_retries,
        "priorityClass": class_of(details.job.priority, preemptible=bool(scheduling.get("preemptible"))),
        "terminateAfterPreemption": scheduling.get("on_preemption") != "requeue",
        "compute": compute_of(resources),
        "labels": [{"name": name, "value": value} for name, value in details.job.labels.items()],
        "environmentVariables": [
            {"name": name, "value": value} for name, value in (training.get("environment") or {}).items()
        ],
    }
    if words:
        found |= {"command": shlex.join(words[:1])} | ({"args": shlex.join(words[1:])} if words[1:] else {})
    return found


def compute_of(resources: Mapping[str, Any]) -> dict[str, Any]:
    on_cpu = resources.get("device_type") == "cpu"
    found: dict[str, Any] = {"gpuDevicesRequest": 0 if on_cpu else resources["gpu_count"]}
    if resources.get("gpu_fraction"):
        found |= {"gpuRequestType": "portion", "gpuPortionRequest": resources["gpu_fraction"]}
    elif resources.get("gpu_memory_request_mb"):
        found |= {"gpuRequestType": "memory", "gpuMemoryRequest": f"{resources['gpu_memory_request_mb']}Mi"}
    elif resources.get("mig_profile"):
        found |= {"gpuRequestType": "migProfile", "migProfile": resources["mig_profile"]}
    if resources.get("cpu_cores"):
        found["cpuCoreRequest"] = resources["cpu_cores"]
    if resources.get("ram_min_mb"):
        found["cpuMemoryRequest"] = f"{resources['ram_min_mb']}Mi"
    return found


def class_of(priority: int, *, preemptible: bool) -> str:
    """The class that is nearest; of several the one that says as much of preemption."""
    order = sorted(PRIORITIES.items(), key=lambda each: (abs(each[1][0] - priority), each[1][1] != preemptible))
    return order[0][0]


def workload_of(details: JobDetails) -> dict[str, Any]:
    """A row of the list of all workloads."""
    job = details.job
    changed = on_the_wire(job.updated_at)
    scheduling = details.spec.get("scheduling_config", {})
    return {
        "type": "Training",
        "name": job.name,
        "id": workload_id(job.id),
        "source": "Other",
        "tenantId": 1,
        "conditions": [],
        "category": "Train",
        "priorityClassName": class_of(job.priority, preemptible=bool(scheduling.get("preemptible"))),
        "submittedBy": job.created_by,
        "clusterId": _foreign(details).get("cluster_id", THE_CLUSTER),
        "projectName": job.project,
        "projectId": job.project,
        "departmentName": "default",
        "departmentId": "default",
        "namespace": job.project,
        "createdAt": on_the_wire(job.created_at),
        "updatedAt": changed,
        "deletedAt": None,
        "completedAt": on_the_wire(job.finished_at) if job.finished_at else None,
        "phase": phase_of(details),
        "phaseUpdatedAt": changed,
        "k8sPhase": phase_of(details),
        "k8sPhaseUpdatedAt": changed,
        "phaseMessage": details.pending_reason or job.error_message or job.status_reason or "",
        "preemptible": bool(scheduling.get("preemptible")),
        "runningPods": len(job.node_names),
        "currentNodePools": list(job.node_names),
        "totalRunningTimeSeconds": round(details.elapsed_seconds),
        "actionsSupport": {"delete": True, "suspend": job.state not in TERMINAL},
    }


def event_of(event: JobEvent) -> dict[str, Any]:
    is_bad = event.type == "job.warning" or event.to_status == JobState.FAILED
    return {
        "id": event.id,
        "createdAt": on_the_wire(event.at),
        "type": "Warning" if is_bad else "Normal",
        "reason": event.reason or event.type,
        "message": event.message or event.to_status or event.type,
        "clusterId": THE_CLUSTER,
        "source": "trainyard",
        "involvedObject": {"kind": "Training", "uid": workload_id(event.job_id), "name": workload_id(event.job_id)},
    }


def _foreign(details: JobDetails) -> Mapping[str, Any]:
    found: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    return found
