"""Jobs of the native API → TrainingJobs, their pods and their events. Pure."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from app.compat.ids import uuid_of
from app.compat.mpirun import mpirun_of
from app.compat.ome.dialect import API_VERSION
from app.compat.ome.to_native import DIALECT
from app.domain.lifecycle.states import TERMINAL, JobState
from app.domain.spec.frameworks.custom import processes_per_node
from app.domain.spec.role_documents import document_of
from app.domain.spec.roles import JobRole, instances
from app.services.jobs.details import JobDetails
from app.services.rows import Attempt, JobEvent, SweepEvent

_S = JobState
# State → the condition that is true in it.
STATES: dict[JobState, str] = {
    _S.PENDING: "",
    _S.QUEUED: "Created",
    _S.SCHEDULING: "Created",
    _S.PREPARING: "Created",
    _S.TRAINING: "Running",
    _S.CHECKPOINTING: "Running",
    _S.EVALUATING: "Running",
    _S.SERVING: "Running",
    _S.EXPORTING: "Running",
    _S.PAUSED: "Suspended",
    _S.COMPLETED: "Succeeded",
    _S.FAILED: "Failed",
    _S.CANCELLED: "Failed",
    _S.PREEMPTED: "Failed",
}
_REASONS = {_S.CANCELLED: "Cancelled", _S.PREEMPTED: "Preempted"}
KIND = "TrainingJob"
_OF_TRIALS = {"apiVersion": "batch/v1", "kind": "Job"}


def name_of(details: JobDetails) -> str:
    """The name of the TrainingJob; for other jobs, also retries, the job's id, which is a valid Kubernetes name.

    A trial is no TrainingJob; its name is that of its pods.
    """
    if is_trial(details):
        return trial_name(_foreign(details)["trial_of"], _foreign(details)["trial"])
    is_named = is_deleted(details) or (details.job.alias or "").startswith(f"{DIALECT}:")
    return str((is_named and _foreign(details).get("name")) or details.job.id)


def trial_name(sweep: str, number: int) -> str:
    return f"{sweep}-trial-{number}"


def is_trial(details: JobDetails) -> bool:
    """Whether it is a trial of a TrainingJob with hyperParameterTuningConfig."""
    return details.job.sweep_id is not None and "trial" in _foreign(details)


def training_job_of(details: JobDetails) -> str:
    """The name of the TrainingJob to which its pods belong."""
    return str(_foreign(details)["trial_of"]) if is_trial(details) else name_of(details)


def model_named_by(details: JobDetails) -> str:
    """The base model as the job names it, as a valid Kubernetes name."""
    spec: Mapping[str, Any] = _foreign(details).get("spec") or {}
    named = (spec.get("modelConfig") or {}).get("inputModel")
    found = str(named or details.document.training_config.base_model.model_id)
    return re.sub(r"[^a-z0-9.-]+", "-", found.lower()).strip("-.")[:253] or "none"


def is_deleted(details: JobDetails) -> bool:
    return bool(_foreign(details).get("deleted"))


def version_of(details: JobDetails) -> str:
    """Changes whenever the object does."""
    return resource_version(details.job.updated_at, details.job.version)


def resource_version(at: datetime, version: int = 1) -> str:
    """Milliseconds, followed by the version in five digits."""
    return f"{milliseconds(at)}{version:05d}"


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def moment(at: datetime | None) -> str | None:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if at is not None else None


def object_of(details: JobDetails) -> dict[str, Any]:
    job, foreign = details.job, _foreign(details)
    suspends = {"suspend": job.state is JobState.PAUSED or details.requested == "pause"}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name_of(details),
            "namespace": job.project,
            "uid": uuid_of(job.id),
            "resourceVersion": version_of(details),
            "generation": foreign.get("generation", 1),
            "creationTimestamp": moment(job.created_at),
            "labels": foreign.get("labels", dict(job.labels)),
            "annotations": foreign.get("annotations", {}),
        },
        # A trial keeps a part of a spec, which a retry of it inherits.
        "spec": {**(spec_of(details) if "trial" in foreign else foreign.get("spec") or spec_of(details)), **suspends},
        "status": status_of(details),
    }


def spec_of(details: JobDetails) -> dict[str, Any]:
    """The spec of a job of another API, as far as OME can express it: of several roles the first."""
    document = details.document
    if document.tasks:
        document = document_of(document, document.tasks[0])
    training, resources = document.training_config, document.resource_config
    framework = training.framework
    trainer: dict[str, Any] = {
        "numNodes": details.document.tasks[0].count if details.document.tasks else resources.node_count
    }
    if command := framework.custom_command:
        trainer["command"] = [*mpirun_of(document), *command]
    elif script := framework.custom_script_path:
        trainer["command"] = [*mpirun_of(document), "python", script, *framework.custom_arguments]
    else:
        method = shlex.join([framework.type, training.training_type])
        trainer["command"] = ["trainyard", *shlex.split(method)]
    sources = details.document.data_config.sources
    found: dict[str, Any] = {
        "runtimeRef": {"name": "pytorch-runtime", "kind": "ClusterTrainingRuntime", "apiGroup": "ome.io"},
        "trainer": trainer,
        "modelConfig": {"inputModel": training.base_model.model_id},
        "datasets": {"storageUri": sources[0].path} if sources else {},
    }
    if place := details.document.output_config.output_path:
        found["modelConfig"]["outputModel"] = {"storageUri": place}
    return found


def status_of(details: JobDetails) -> dict[str, Any]:
    job = details.job
    found: dict[str, Any] = {
        "conditions": list(_conditions(details)),
        "jobsStatus": [{"name": f"{name_of(details)}-job-0", **_pod_counts(details)}],
        "retryCount": job.retries_used,
        "lastReconcileTime": moment(job.updated_at),
    }
    times = {"startTime": moment(job.started_at), "completionTime": moment(job.finished_at)}
    return found | {name: at for name, at in times.items() if at is not None}


def _pod_counts(details: JobDetails) -> dict[str, int]:
    """Number of pods by phase, consistent with `pods_of`; all pods of a job are in the same phase."""
    state, pods = details.job.state, ranks_of(details)
    is_suspended = state is JobState.PAUSED
    return {
        "ready": pods * (STATES[state] == "Running"),
        "active": pods * (state not in TERMINAL and not is_suspended),
        "succeeded": pods * (state is JobState.COMPLETED),
        "failed": pods * (state in TERMINAL and state is not JobState.COMPLETED),
        "suspended": pods * is_suspended,
    }


def _conditions(details: JobDetails) -> Iterator[dict[str, Any]]:
    job = details.job
    now = STATES[job.state]
    if now:
        yield condition("Created", "JobsCreationSucceeded", "Succeeded to create Jobs", job.created_at)
    if job.started_at is not None:
        yield condition("Running", "JobStarted", "Training job is running", job.started_at, holds=now == "Running")
    if now == "Suspended":
        yield condition("Suspended", "Suspended", "TrainJob is suspended", job.updated_at)
    elif now in ("Created", "Running") and job.attempt > 1:
        yield condition("Suspended", "Resumed", "TrainJob is resumed", job.updated_at, holds=False)
    if now == "Succeeded":
        yield condition("Succeeded", "JobsCompleted", "Training job is complete", job.finished_at)
        yield condition("Complete", "JobsCompleted", "Training job is complete", job.finished_at)
    elif now == "Failed":
        reason = _REASONS.get(job.state) or job.error_type or "JobsFailed"
        yield condition("Failed", reason, job.error_message or job.status_reason or reason, job.finished_at)


def condition(kind: str, reason: str, message: str, at: datetime | None, *, holds: bool = True) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": moment(at),
    }


def ranks_of(details: JobDetails) -> int:
    """Number of processes of the job on all its nodes, or of all instances of its roles."""
    if roles := details.document.tasks:
        return sum(role.count * _ranks_of_role(details, role) for role in roles)
    resources = details.document.resource_config
    nodes = resources.node_count
    return nodes * processes_per_node(details.document, devices=resources.gpu_count)


def _ranks_of_role(details: JobDetails, role: JobRole) -> int:
    return processes_per_node(document_of(details.document, role), devices=role.resource_config.gpu_count)


def pods_of(details: JobDetails, attempt: Attempt | None) -> list[dict[str, Any]]:
    """A pod per rank, Pending before the first attempt."""
    return [_pod(details, attempt, rank, node, role) for rank, (node, role) in enumerate(_places(details, attempt))]


def _places(details: JobDetails, attempt: Attempt | None) -> Iterator[tuple[str | None, str]]:
    """(node, role) of each rank; no node before it is placed, and no role in a job without."""
    document = details.document
    if document.tasks:
        nodes = {(each["role"], each["index"]): each["node"] for each in (attempt and attempt.instances) or ()}
        for role, index in instances(document.tasks):
            yield from [(nodes.get((role.role, index)), role.role)] * _ranks_of_role(details, role)
        return
    per_node = max(1, ranks_of(details) // document.resource_config.node_count)
    names = attempt.node_names if attempt is not None else ()
    for rank in range(ranks_of(details)):
        number = rank // per_node
        yield names[number] if number < len(names) else None, ""


def rank_of(details: JobDetails, pod: str) -> int | None:
    """The rank of a pod by its name; None if the job has no such pod."""
    prefix, _, number = pod.rpartition("-")
    if prefix != name_of(details) or not number.isdecimal() or int(number) >= ranks_of(details):
        return None
    return int(number)


def _pod(details: JobDetails, attempt: Attempt | None, rank: int, node: str | None, role: str) -> dict[str, Any]:
    job, name = details.job, name_of(details)
    foreign: Mapping[str, Any] = _foreign(details).get("spec") or {}
    phase = _phase(details, attempt)
    started = attempt.started_at if attempt is not None else None
    spec: dict[str, Any] = {
        "containers": [{"name": "trainer", "image": _image(details), "resources": {}}],
        "restartPolicy": "Never",
    }
    if node is not None:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-{rank}",
            "namespace": job.project,
            "uid": f"{uuid_of(job.id)}-{rank}",
            "resourceVersion": version_of(details),
            "creationTimestamp": moment(attempt.created_at if attempt is not None else job.created_at),
            "labels": {**(foreign.get("labels") or {}), **_labels_of_pod(details, rank, role)},
            "annotations": dict(foreign.get("annotations") or {}),
        },
        "spec": spec,
        "status": {
            "phase": phase,
            "startTime": moment(started),
            "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
            "containerStatuses": [
                {
                    "name": "trainer",
                    "ready": phase == "Running",
                    "restartCount": max(0, job.attempt - 1),
                    "image": _image(details),
                    "imageID": "",
                    "state": _container_state(phase, attempt),
                }
            ],
        },
    }


def _labels_of_pod(details: JobDetails, rank: int, role: str) -> dict[str, str]:
    trial = {"training.ome.io/trial": str(_foreign(details)["trial"])} if is_trial(details) else {}
    of_role = {"training.ome.io/role": role} if role else {}
    return {"job-name": training_job_of(details), **trial, **of_role, "training.ome.io/rank": str(rank)}


def _phase(details: JobDetails, attempt: Attempt | None) -> str:
    """Pending also between attempts and while the job is suspended."""
    state = details.job.state
    if state in TERMINAL:
        return "Succeeded" if state is JobState.COMPLETED else "Failed"
    return "Running" if attempt is not None and STATES[state] == "Running" else "Pending"


def _container_state(phase: str, attempt: Attempt | None) -> dict[str, Any]:
    if phase == "Pending":
        return {"waiting": {"reason": "ContainerCreating"}}
    if attempt is None:  # cancelled, or refused by admission, before it started
        return {"terminated": {"exitCode": 1, "reason": "Error"}}
    if phase == "Running":
        return {"running": {"startedAt": moment(attempt.started_at)}}
    ended = {"exitCode": attempt.exit_code or int(phase == "Failed"), "finishedAt": moment(attempt.ended_at)}
    return {"terminated": {**ended, "reason": "Completed" if phase == "Succeeded" else "Error"}}


def _image(details: JobDetails) -> str:
    spec: Mapping[str, Any] = _foreign(details).get("spec") or {}
    return str((spec.get("trainer") or {}).get("image") or "")


def events_of(details: JobDetails, events: Sequence[JobEvent]) -> list[dict[str, Any]]:
    job = details.job
    kind = _OF_TRIALS if is_trial(details) else {"apiVersion": API_VERSION, "kind": KIND}
    involved = {**kind, "name": name_of(details), "namespace": job.project, "uid": uuid_of(job.id)}
    return [event_of(event, involved) for event in events]


def event_of(event: JobEvent | SweepEvent, involved: Mapping[str, str]) -> dict[str, Any]:
    """``involved``: the object that it is about."""
    is_warning = event.type.endswith(".warning") or event.to_status == JobState.FAILED
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event.id,
            "namespace": involved["namespace"],
            "creationTimestamp": moment(event.at),
            "resourceVersion": resource_version(event.at),
            "uid": event.id,
        },
        "involvedObject": dict(involved),
        "type": "Warning" if is_warning else "Normal",
        "reason": event.reason or event.type,
        "message": event.message or event.to_status or event.type,
        "source": {"component": "trainyard"},
        "firstTimestamp": moment(event.at),
        "lastTimestamp": moment(event.at),
        "count": 1,
    }


def _foreign(details: JobDetails) -> Mapping[str, Any]:
    found: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    return found
