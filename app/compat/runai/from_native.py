"""Jobs of the native API → Run:ai's trainings and workloads. Pure."""

import shlex
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.compat.ids import uuid_of
from app.compat.mpirun import mpirun_of
from app.compat.runai.owners import Owner
from app.compat.runai.pods import WORKER
from app.compat.runai.reaching import URLS, addresses_of, of_native, with_addresses
from app.compat.runai.to_native import DIALECT, DISTRIBUTED, MPI, PRIORITIES, PYTORCH, naming_of
from app.domain.lifecycle.states import RUNNING, TERMINAL, JobState
from app.domain.scheduling.fair_share import quota_of
from app.domain.spec.frameworks.custom import MPI as LAUNCHED
from app.domain.spec.frameworks.custom import launcher, processes_per_node
from app.domain.spec.model import ResourceConfig
from app.domain.spec.role_documents import document_of
from app.domain.spec.roles import instances
from app.schemas.strict_fields import on_the_wire
from app.services.jobs.details import JobDetails
from app.services.rows import Attempt, JobEvent, Project

_S = JobState
STATES: dict[JobState, str] = {
    _S.PENDING: "Creating",
    _S.QUEUED: "Pending",
    _S.SCHEDULING: "Pending",
    _S.PREPARING: "Initializing",
    _S.TRAINING: "Running",
    _S.CHECKPOINTING: "Running",
    _S.EVALUATING: "Running",
    _S.SERVING: "Running",
    _S.EXPORTING: "Running",
    _S.PAUSED: "Stopped",
    _S.COMPLETED: "Completed",
    _S.FAILED: "Failed",
    _S.CANCELLED: "Stopped",
    _S.PREEMPTED: "Pending",
}
_NOT_ENDED = tuple(state for state in JobState if state not in TERMINAL)
# Phase → states of the jobs that may be in it, also after a control request or an earlier attempt.
STATES_OF_PHASES: dict[str, tuple[JobState, ...]] = {
    **{phase: tuple(state for state in JobState if STATES[state] == phase) for phase in STATES.values()},
    "Stopping": _NOT_ENDED,
    "Terminating": _NOT_ENDED,
    "Deleting": _NOT_ENDED,
    "Resuming": (_S.QUEUED,),
}
DEPARTMENT, DEPARTMENT_NAME = 1, "default"  # there is only one
THE_CLUSTER = "00000000-0000-0000-0000-000000000000"  # clusterId of jobs whose client did not set it


def is_deleted(details: JobDetails, now: datetime) -> bool:
    """Whether the job has ended and a client deleted it, or its autoDeletionTimeAfterCompletionSeconds are over."""
    foreign, job = _foreign(details), details.job
    if job.state not in TERMINAL:
        return False
    lifetime = (foreign.get("spec") or {}).get("autoDeletionTimeAfterCompletionSeconds")
    ended_for = (now - job.finished_at).total_seconds() if job.finished_at is not None else 0
    return bool(foreign.get("deleted")) or (lifetime is not None and ended_for > lifetime)


def is_distributed(details: JobDetails) -> bool:
    """Whether it is a distributed workload; jobs of other APIs are if they have several nodes."""
    if foreign := _foreign(details):
        return foreign.get("kind") == DISTRIBUTED
    return len(_pod_names(details)) > 1


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


def training_of(details: JobDetails, owner: Owner) -> dict[str, Any]:
    """A training or distributed workload."""
    job, foreign = details.job, _foreign(details)
    config, spec = details.document.interactive_config, foreign.get("spec") or spec_of(details)
    masters_urls = (foreign.get("master_spec") or {}).get(URLS)
    stopped = job.state in (JobState.PAUSED, JobState.CANCELLED) or details.requested is not None
    return {
        "name": job.name,
        "requestedName": foreign.get("requested_name", job.name),
        "workloadId": uuid_of(job.id),
        # Older clients send numbers, newer ones strings; the form that was sent is returned.
        "projectId": owner.project if foreign.get("numbered") else str(owner.project),
        "departmentId": DEPARTMENT if foreign.get("numbered") else str(DEPARTMENT),
        "clusterId": foreign.get("cluster_id", THE_CLUSTER),
        "createdBy": owner.author,
        "createdAt": on_the_wire(job.created_at),
        "desiredPhase": "Deleted" if foreign.get("deleted") else "Stopped" if stopped else "Running",
        "actualPhase": phase_of(details),
        "spec": with_addresses(spec, config, owner.address_of(job), worker=WORKER if masters_urls else None),
        **_of_master(details, owner),
    }


def _of_master(details: JobDetails, owner: Owner) -> dict[str, Any]:
    if not is_distributed(details):
        return {}
    master = _foreign(details).get("master_spec") or (None if _foreign(details) else _first_spec_of(details))
    if not master:
        return {"masterSpecSameAsWorker": True}
    config = details.document.interactive_config
    return {"masterSpec": with_addresses(master, config, owner.address_of(details.job))}


def spec_of(details: JobDetails) -> dict[str, Any]:
    """The spec of a job of another API, as far as Run:ai can express it."""
    document = details.document
    if document.tasks:
        document = document_of(document, document.tasks[-1])
    training, resources = document.training_config, document.resource_config
    command = training.framework.custom_command
    scheduling = details.document.scheduling_config
    found: dict[str, Any] = {
        "backoffLimit": details.job.max_retries,
        "priorityClass": class_of(details.job.priority, preemptible=scheduling.preemptible),
        "terminateAfterPreemption": scheduling.on_preemption != "requeue",
        "compute": compute_of(resources),
        "labels": [{"name": name, "value": value} for name, value in details.job.labels.items()],
        "environmentVariables": [{"name": name, "value": value} for name, value in training.environment.items()],
        **of_native(details.document.interactive_config),
    }
    by_mpi = launcher(document) == LAUNCHED
    if is_distributed(details):
        pods = len(_pod_names(details))
        slots = processes_per_node(document, devices=resources.gpu_count) if by_mpi else 0
        of_workers = {"distributedFramework": MPI, "numWorkers": pods, "slotsPerWorker": slots} if by_mpi else {}
        found |= of_workers or {"distributedFramework": PYTORCH, "numWorkers": pods - 1}
    return found | (_words_of([*mpirun_of(document), *command]) if command else {})


def _words_of(command: Sequence[str]) -> dict[str, str]:
    if not command:
        return {}
    return {"command": shlex.join(command[:1])} | ({"args": shlex.join(command[1:])} if command[1:] else {})


def _first_spec_of(details: JobDetails) -> dict[str, Any] | None:
    """What the first role of a job of another API has for itself."""
    document = details.document
    if len(document.tasks) < 2:
        return None
    first = document_of(document, document.tasks[0])
    own = document.tasks[0].training_config.environment
    variables = [{"name": name, "value": value} for name, value in own.items()]
    found = {"compute": compute_of(first.resource_config)} | _words_of(first.training_config.framework.custom_command)
    return found | ({"environmentVariables": variables} if variables else {})


def compute_of(resources: ResourceConfig) -> dict[str, Any]:
    on_cpu = resources.device_type == "cpu"
    found: dict[str, Any] = {"gpuDevicesRequest": 0 if on_cpu else resources.gpu_count}
    if resources.gpu_fraction:
        found |= {"gpuRequestType": "portion", "gpuPortionRequest": resources.gpu_fraction}
    elif resources.gpu_memory_request_mb:
        found |= {"gpuRequestType": "memory", "gpuMemoryRequest": f"{resources.gpu_memory_request_mb}Mi"}
    elif resources.mig_profile:
        found |= {"gpuRequestType": "migProfile", "migProfile": resources.mig_profile}
    if resources.cpu_cores:
        found["cpuCoreRequest"] = resources.cpu_cores
    if resources.ram_min_mb:
        found["cpuMemoryRequest"] = f"{resources.ram_min_mb}Mi"
    if resources.limits.cpu_cores:
        found["cpuCoreLimit"] = resources.limits.cpu_cores
    if resources.limits.ram_mb:
        found["cpuMemoryLimit"] = f"{resources.limits.ram_mb}Mi"
    return found


def class_of(priority: int, *, preemptible: bool) -> str:
    """The nearest class; of several the one with the same preemptibility."""
    order = sorted(PRIORITIES.items(), key=lambda each: (abs(each[1][0] - priority), each[1][1] != preemptible))
    return order[0][0]


def workload_of(details: JobDetails, owner: Owner) -> dict[str, Any]:
    """An item of the list of workloads."""
    job = details.job
    changed, pending_message = on_the_wire(job.updated_at), pending_message_of(details)
    scheduling = details.document.scheduling_config
    return {
        "type": _kind(details),
        "name": job.name,
        "id": uuid_of(job.id),
        "source": "Other",
        "tenantId": 1,
        "conditions": _conditions(details, pending_message, changed),
        "category": "Train",
        "priorityClassName": class_of(job.priority, preemptible=scheduling.preemptible),
        "submittedBy": owner.author,
        "clusterId": _foreign(details).get("cluster_id", THE_CLUSTER),
        "projectName": job.project,
        "projectId": str(owner.project),
        "departmentName": DEPARTMENT_NAME,
        "departmentId": str(DEPARTMENT),
        "namespace": job.project,
        "createdAt": on_the_wire(job.created_at),
        "updatedAt": changed,
        "deletedAt": None,
        "completedAt": on_the_wire(job.finished_at) if job.finished_at else None,
        "phase": phase_of(details),
        "phaseUpdatedAt": changed,
        "k8sPhase": phase_of(details),
        "k8sPhaseUpdatedAt": changed,
        "phaseMessage": pending_message or job.error_message or job.status_reason or "",
        "preemptible": scheduling.preemptible,
        "runningPods": len(_pod_names(details)) if job.node_names else 0,
        "requestedPods": {"number": len(_pod_names(details))},
        "currentNodePools": list(job.node_names),
        "totalRunningTimeSeconds": round(details.elapsed_seconds),
        "urls": addresses_of(details.document.interactive_config, owner.address_of(job)),
        "actionsSupport": {"delete": True, "suspend": job.state not in TERMINAL},
    }


def pending_message_of(details: JobDetails) -> str:
    """The pending reason, with the names of Run:ai's fields."""
    roles = [role.role for role in details.document.tasks]
    return naming_of(_foreign(details).get("spec") or {}, roles).text(details.pending_reason)


def _conditions(details: JobDetails, pending_message: str, since: str) -> list[dict[str, str]]:
    """Why it waits; of a running one whether it is ready, by its readiness probe."""
    job = details.job
    if job.state is JobState.QUEUED and pending_message:
        return [_condition("PodScheduled", "False", "Unschedulable", pending_message, since)]
    if job.state not in RUNNING or details.document.interactive_config.readiness_probe is None:
        return []
    status = {None: "Unknown", True: "True", False: "False"}[job.ready]
    reason = "ReadinessProbeSucceeded" if job.ready else "ReadinessProbeFailed" if status == "False" else "NotProbed"
    return [_condition("Ready", status, reason, "", since)]


def _condition(kind: str, status: str, reason: str, message: str, since: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def pods_of(details: JobDetails, attempt: Attempt | None, owner: Owner) -> list[dict[str, Any]]:
    """A pod per node of the newest attempt, or per instance of its roles."""
    if attempt is None:
        return []
    job, row = details.job, workload_of(details, owner)
    return [
        {
            "name": f"{job.name}-{name}",
            "priorityClassName": row["priorityClassName"],
            "id": str(uuid.uuid5(uuid.UUID(uuid_of(job.id)), f"{attempt.number}/{name}")),
            "workloadId": row["id"],
            "workloadName": job.name,
            "clusterId": row["clusterId"],
            "projectId": row["projectId"],
            "projectName": job.project,
            "tenantId": 1,
            "nodeName": node,
            "createdAt": on_the_wire(attempt.created_at),
            "completedAt": on_the_wire(attempt.ended_at) if attempt.ended_at else None,
            "containers": [
                {"name": "trainer", "image": "", "startedAt": on_the_wire(attempt.started_at or attempt.created_at)}
            ],
            "requestedResources": {"gpu": {"request": gpus}} if gpus else {},
            "k8sPhase": phase,
            "k8sPhaseUpdatedAt": row["k8sPhaseUpdatedAt"],
            "updatedAt": row["updatedAt"],
        }
        for name, node, gpus, phase in _placed_pods(details, attempt)
    ]


def _placed_pods(details: JobDetails, attempt: Attempt) -> list[tuple[str, str, int, str]]:
    """(name, node, GPUs, phase) of each."""
    phase, has_gpus = _pod_phase(details, attempt), attempt.device_type != "cpu"
    if attempt.instances is None:
        gpus = len(attempt.device_indices[0]) if has_gpus else 0
        return [(str(number), node, gpus, phase) for number, node in enumerate(attempt.node_names)]
    on_gpus = {role.role for role in details.document.tasks if has_gpus and role.resource_config.device_type != "cpu"}
    return [
        (
            f"{each['role']}-{each['index']}",
            each["node"],
            len(each["devices"]) if each["role"] in on_gpus else 0,
            _phase_of_instance(details, phase, each.get("exit_code")),
        )
        for each in attempt.instances
    ]


def _phase_of_instance(details: JobDetails, phase: str, exit_code: int | None) -> str:
    """Workers that were stopped since their master has ended have done their part."""
    if exit_code is None or details.job.state is JobState.COMPLETED:
        return phase
    return "Succeeded" if exit_code == 0 else "Failed"


def _pod_names(details: JobDetails) -> list[str]:
    """Of the pods that the workload asks for: its nodes, or the instances of its roles."""
    document = details.document
    if document.tasks:
        return [f"{role.role}-{index}" for role, index in instances(document.tasks)]
    return [str(number) for number in range(document.resource_config.node_count)]


def _pod_phase(details: JobDetails, attempt: Attempt) -> str:
    if attempt.ended_at is None:
        return "Running" if attempt.started_at is not None else "Pending"
    return "Succeeded" if details.job.state is JobState.COMPLETED else "Failed"


def record_of(event: JobEvent) -> dict[str, Any]:
    """A record of the history: a phase update or an event."""
    at = on_the_wire(event.at)
    if event.to_status is None:
        return {"meta": {"creationTimestamp": at, "type": "Event"}, "spec": {"event": event_of(event)}}
    update = {"phase": STATES[JobState(event.to_status)], "phaseMessage": event.message or event.reason or ""}
    return {"meta": {"creationTimestamp": at, "type": "PhaseUpdate"}, "spec": {"phaseUpdate": update}}


def project_of(project: Project) -> dict[str, Any]:
    """The project with its quota of the only node pool."""
    quota = quota_of(project.quota)
    devices = {kind: quota.of(kind) for kind in ("cuda", "cpu")}
    resources = {
        name: {
            "deserved": devices[kind].deserved,
            "limit": devices[kind].limit,
            "overQuotaWeight": devices[kind].over_quota_weight,
        }
        for name, kind in (("gpu", "cuda"), ("cpu", "cpu"))
    }
    return {
        "id": str(project.number),
        "name": project.name,
        "departmentId": str(DEPARTMENT),
        "description": project.description,
        "clusterId": THE_CLUSTER,
        "createdAt": on_the_wire(project.created_at),
        "resources": [{"nodePool": {"id": "default", "name": "default"}, **resources}],
        "defaultNodePools": ["default"],
        "status": {"namespace": project.name, "phase": "Ready"},
    }


def event_of(event: JobEvent) -> dict[str, Any]:
    is_warning = event.type == "job.warning" or event.to_status == JobState.FAILED
    return {
        "id": event.id,
        "createdAt": on_the_wire(event.at),
        "type": "Warning" if is_warning else "Normal",
        "reason": event.reason or event.type,
        "message": event.message or event.to_status or event.type,
        "clusterId": THE_CLUSTER,
        "source": "trainyard",
        "involvedObject": {"kind": "Workload", "uid": uuid_of(event.job_id), "name": uuid_of(event.job_id)},
    }


def _kind(details: JobDetails) -> str:
    return "Distributed" if is_distributed(details) else "Training"


def _foreign(details: JobDetails) -> Mapping[str, Any]:
    found: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    return found
