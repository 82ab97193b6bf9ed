"""Jobs of the native API → ModelArts' training jobs, with times in its units: milliseconds, and seconds of records."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.compat.ids import uuid_of
from app.compat.modelarts.flavors import detail, of_resources
from app.compat.modelarts.to_native import DIALECT, METHODS, PRIORITIES
from app.domain.job_state import TERMINAL, JobState
from app.domain.resources import NodeCapacity
from app.models import Attempt
from app.services.job_details import JobDetails

_S = JobState
_RUNNING = ("Running", "Running")
STATES: dict[JobState, tuple[str, str]] = {
    _S.PENDING: ("Creating", "Creating"), _S.QUEUED: ("Pending", "Queuing"), _S.SCHEDULING: ("Pending", "Queuing"),
    _S.PREPARING: _RUNNING, _S.TRAINING: _RUNNING, _S.CHECKPOINTING: _RUNNING, _S.EVALUATING: _RUNNING,
    _S.EXPORTING: _RUNNING, _S.PAUSED: ("Pending", "Queuing"), _S.COMPLETED: ("Completed", "Completed"),
    _S.FAILED: ("Failed", "Failed"), _S.CANCELLED: ("Terminated", "Terminated"),
    _S.PREEMPTED: ("Terminated", "Terminated"),
}  # fmt: skip
# Of each level-1 status, which states jobs that are told to be in it may be in.
STATES_OF_PHASES: dict[str, tuple[JobState, ...]] = {
    **{phase: tuple(state for state in JobState if STATES[state][0] == phase) for phase, _ in STATES.values()},
    "Terminating": tuple(state for state in JobState if state not in TERMINAL), "Abnormal": (_S.FAILED,),
}  # fmt: skip
# Their fault of another kind than a failed job: the platform's own.
_LOST = ("NODE_LOST", "SUPERVISOR_LOST")
_STARTS = ("init_or_rescheduled", "restarted")


def is_deleted(details: JobDetails) -> bool:
    """Whether a client of ModelArts has deleted it: then it is gone for all of them."""
    return bool(_foreign(details).get("deleted"))


def phase_of(details: JobDetails) -> tuple[str, str]:
    """Level-1 and level-2 status."""
    job = details.job
    if details.requested == "cancel" and job.state not in TERMINAL:
        return "Terminating", "Terminating"
    if job.state is JobState.FAILED and job.error_type in _LOST:
        return "Abnormal", "Lost"
    return STATES[job.state]


def job_of(details: JobDetails, attempts: Sequence[Attempt], capacities: Sequence[NodeCapacity]) -> dict[str, Any]:
    """All of it; `attempts` in their order, `capacities` of the nodes that its flavor is of."""
    return {
        "kind": "job",
        "metadata": metadata_of(details),
        "status": status_of(details, attempts),
        "algorithm": algorithm_of(details),
        "spec": spec_of(details, capacities),
        "endpoints": {},
    }


def metadata_of(details: JobDetails) -> dict[str, Any]:
    job, kept = details.job, _foreign(details).get("metadata") or {}
    return {
        "id": uuid_of(job.id),
        "name": job.name,
        "description": kept.get("description", ""),
        "create_time": milliseconds(job.created_at),
        "workspace_id": kept.get("workspace_id", "0"),
        "user_name": job.created_by,
        "annotations": kept.get("annotations") or {},
    }


def status_of(details: JobDetails, attempts: Sequence[Attempt]) -> dict[str, Any]:
    phase, secondary = phase_of(details)
    started = next((each.started_at for each in attempts if each.started_at is not None), None)
    found: dict[str, Any] = {
        "phase": phase,
        "secondary_phase": secondary,
        "duration": round(details.elapsed_seconds * 1000),
        "start_time": milliseconds(started) if started is not None else 0,
        "node_count_metrics": node_counts(attempts),
        "tasks": tasks_of(details),
    }
    if ended := [each for each in attempts if each.ended_at is not None]:
        found["task_statuses"] = [_task_status(details, ended[-1])]
    if attempts:
        found["running_records"] = [record_of(each) for each in attempts]
    return found


def tasks_of(details: JobDetails) -> list[str]:
    return [f"worker-{number}" for number in range(int(details.spec["resource_config"].get("node_count") or 1))]


def node_counts(attempts: Sequence[Attempt]) -> list[list[int]] | None:
    """[milliseconds, how many nodes from then on]; None before it has had any."""
    found: list[list[int]] = []
    for each in attempts:
        found.append([milliseconds(each.created_at), len(each.node_names)])
        if each.ended_at is not None:
            found.append([milliseconds(each.ended_at), 0])
    return found or None


def record_of(attempt: Attempt) -> dict[str, Any]:
    """A running record: an attempt, in seconds."""
    found: dict[str, Any] = {
        "start_at": seconds(attempt.started_at or attempt.created_at),
        "start_type": attempt.start_type if attempt.start_type in _STARTS else _STARTS[0],
    }
    optional = {
        "end_at": seconds(attempt.ended_at) if attempt.ended_at is not None else None,
        "end_reason": attempt.end_reason,
        "end_related_task": attempt.end_related_task,
        "end_recover": attempt.policy or attempt.end_recover,
        "end_recover_before_downgrade": attempt.recover_before_downgrade,
    }
    return found | {name: value for name, value in optional.items() if value is not None}


def _task_status(details: JobDetails, last: Attempt) -> dict[str, Any]:
    failed = details.job.state is JobState.FAILED
    exit_code = last.exit_code if last.exit_code is not None else (1 if failed else 0)
    message = (details.job.error_message or last.end_reason or "") if failed else last.end_reason or ""
    return {"task": last.end_related_task or "worker-0", "exit_code": exit_code, "message": message}


def algorithm_of(details: JobDetails) -> dict[str, Any]:
    """As it was sent; of a job in other words as much as ModelArts has words for. Variables as an array of maps."""
    foreign, training = _foreign(details), details.spec["training_config"]
    environment: Mapping[str, str] = training.get("environment") or {}
    if "algorithm" in foreign:
        shown = [{name: environment.get(name, "***")} for name in foreign.get("variables", [])]
        found = dict(foreign["algorithm"])
    else:
        shown = [{name: value} for name, value in environment.items()]
        found = _own_words(training, details.spec)
    found.setdefault("name", training["training_type"])
    found.setdefault("engine", {"engine_name": training["framework"]["type"]})
    return found | {"environments": shown}


def _own_words(training: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    framework = training["framework"]
    inputs = [
        {"name": f"data_{number}", "remote": {"obs": {"obs_url": each["path"]}}}
        for number, each in enumerate(spec["data_config"]["sources"])
    ]
    output = (spec.get("output_config") or {}).get("output_path")
    outputs = [{"name": "output", "remote": {"obs": {"obs_url": output}}}] if output else []
    found: dict[str, Any] = {"inputs": inputs, "outputs": outputs}
    if framework["type"] != "CUSTOM":
        method = next(name for name, each in METHODS.items() if each == training["training_type"])
        values = {"base_model": training["base_model"]["model_id"], **(training.get("hyperparameters") or {})}
        parameters = [{"name": name, "value": str(value)} for name, value in values.items()]
        return found | {"id": method, "parameters": parameters}
    if words := framework.get("custom_command"):
        return found | {"command": shlex.join(words)}
    script = framework.get("custom_script_path", "")
    code = framework.get("custom_code_dir") or script.rpartition("/")[0]
    arguments = [word.removeprefix("--").partition("=") for word in framework.get("custom_arguments") or []]
    parameters = [{"name": name, "value": value} for name, _, value in arguments]
    return found | {"code_dir": code, "boot_file": script, "parameters": parameters}


def spec_of(details: JobDetails, capacities: Sequence[NodeCapacity]) -> dict[str, Any]:
    kept, resources = _foreign(details).get("spec") or {}, details.spec["resource_config"]
    asked = kept.get("resource") or {}
    found = of_resources(dict(resources), capacities)
    resource: dict[str, Any] = {
        "policy": "regular",
        "flavor_id": asked.get("flavor_id") or (found.id if found is not None else ""),
        "node_count": int(resources.get("node_count") or 1),
    }
    resource["flavor_name"] = resource["flavor_id"]
    if asked.get("pool_id"):
        resource["pool_id"] = asked["pool_id"]
    elif found is not None:  # told of public pools alone
        resource["flavor_detail"] = detail(found, disk_size="0")
    policy = {
        "priority": _nearest(details.job.priority),
        "preemptible": bool((details.spec.get("scheduling_config") or {}).get("preemptible")),
    }
    others = {name: kept[name] for name in ("volumes", "log_export_path", "auto_stop", "notification") if name in kept}
    return {"resource": resource, "schedule_policy": {**(kept.get("schedule_policy") or {}), **policy}, **others}


def _nearest(priority: int) -> int:
    """Theirs, from 1 to 3."""
    return min(PRIORITIES, key=lambda each: (abs(PRIORITIES[each] - priority), each))


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _foreign(details: JobDetails) -> Mapping[str, Any]:
    found: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    return found
