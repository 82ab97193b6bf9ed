"""Native jobs → ModelArts' training jobs; `status.py` has their status."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from app.compat.ids import uuid_of
from app.compat.modelarts.code import CUSTOM
from app.compat.modelarts.fields import JUPYTER_LAB
from app.compat.modelarts.flavors import of_job, of_resources
from app.compat.modelarts.status import UncontrolledJobs, milliseconds, status_of
from app.compat.modelarts.tasks import tasks_of_job
from app.compat.modelarts.to_native import BUILT_IN, DIALECT, METHODS, PRIORITIES
from app.compat.mpirun import mpirun_of
from app.domain.scheduling.resources import NodeCapacity
from app.domain.spec.model import JobDocument
from app.services.jobs.details import JobDetails
from app.services.rows import Attempt


class TranslationData(NamedTuple):
    """Data for the translation of jobs, read once per response."""

    capacities: Sequence[NodeCapacity]  # of the nodes, for flavors
    names: Mapping[str, str]  # key id → name
    trouble: UncontrolledJobs
    now: datetime


def is_deleted(details: JobDetails) -> bool:
    """Whether a client of ModelArts has deleted the job."""
    return bool(_foreign(details).get("deleted"))


def is_trial(details: JobDetails) -> bool:
    """Whether it is a trial of a training job with a search."""
    return details.job.sweep_id is not None and "trial" in _foreign(details)


def job_of(details: JobDetails, attempts: Sequence[Attempt], cluster: TranslationData) -> dict[str, Any]:
    """The complete training job; ``attempts`` oldest first."""
    return {
        "kind": "job",
        "metadata": metadata_of(details, cluster.names),
        "status": status_of(details, attempts, now=cluster.now, trouble=cluster.trouble),
        "algorithm": algorithm_of(details),
        **_tasks(details, cluster.capacities),
        "spec": spec_of(details, cluster.capacities),
        "endpoints": {},
    }


def _tasks(details: JobDetails, capacities: Sequence[NodeCapacity]) -> dict[str, Any]:
    if not details.document.tasks:
        return {}
    return {"tasks": tasks_of_job(details.document, _foreign(details).get("tasks") or (), capacities)}


def metadata_of(details: JobDetails, names: Mapping[str, str]) -> dict[str, Any]:
    """``names``: key id → name; keys without a name are shown by their id."""
    job, stored = details.job, _foreign(details).get("metadata") or {}
    return {
        "id": uuid_of(job.id),
        "name": job.name,
        "description": stored.get("description", ""),
        "create_time": milliseconds(job.created_at),
        "workspace_id": stored.get("workspace_id", "0"),
        "user_name": names.get(job.created_by) or job.created_by,
        "annotations": stored.get("annotations") or _annotations_of(details),
    }


def _annotations_of(details: JobDetails) -> dict[str, str]:
    """Of a job of another API."""
    has_notebook = DIALECT not in details.job.foreign and details.document.interactive_config.notebook
    return {JUPYTER_LAB: "true"} if has_notebook else {}


def algorithm_of(details: JobDetails) -> dict[str, Any]:
    """The algorithm as it was sent; for a job of another API as far as ModelArts can express it."""
    foreign, training = _foreign(details), details.document.training_config
    environment = training.environment
    if "algorithm" in foreign:
        shown = [{name: environment.get(name, "***")} for name in foreign.get("variables", [])]
        found = dict(foreign["algorithm"])
    else:
        shown = [{name: value} for name, value in environment.items()]
        found = _algorithm_of_native(details.document)
    if (name := algorithm_name(details)) is not None:
        found["name"] = name
    found.setdefault("engine", {"engine_name": training.framework.type})
    return found | {"environments": shown}


def algorithm_name(details: JobDetails) -> str | None:
    """The name as it was sent, or that of a built-in method; None for other jobs."""
    stored = (_foreign(details).get("algorithm") or {}).get("name")
    training = details.document.training_config
    if stored or training.framework.type == CUSTOM:
        return stored or None
    return training.training_type


def _algorithm_of_native(document: JobDocument) -> dict[str, Any]:
    training = document.training_config
    framework = training.framework
    inputs = [
        {"name": f"data_{number}", "remote": {"obs": {"obs_url": _as_request_path(each.path)}}}
        for number, each in enumerate(document.data_config.sources)
    ]
    output = document.output_config.output_path
    outputs = [{"name": "output", "remote": {"obs": {"obs_url": _as_request_path(output)}}}] if output else []
    found: dict[str, Any] = {"inputs": inputs, "outputs": outputs}
    if framework.type != CUSTOM:
        known = (name for name, each in METHODS.items() if each == training.training_type)
        method = next(known, training.training_type.lower())  # jobs of other kinds than training have no method
        values = {"base_model": training.base_model.model_id, **training.hyperparameters}
        if framework.type != BUILT_IN:
            values["framework"] = framework.type
        parameters = [{"name": name, "value": str(value)} for name, value in values.items()]
        return found | {"id": method, "parameters": parameters}
    if command := framework.custom_command:
        return found | {"command": shlex.join([*mpirun_of(document), *command])}
    script = framework.custom_script_path or ""
    code = _as_request_path(framework.custom_code_dir or script.rpartition("/")[0])
    if by_mpi := mpirun_of(document):
        command = (*by_mpi, "python", script, *framework.custom_arguments)
        return found | {"code_dir": code, "command": shlex.join(command)}
    script = _as_request_path(script)
    arguments = [word.removeprefix("--").partition("=") for word in framework.custom_arguments]
    parameters = [{"name": name, "value": value} for name, _, value in arguments]
    return found | {"code_dir": code, "boot_file": script, "parameters": parameters}


def _as_request_path(path: str) -> str:
    """The path in the form of requests, where a path without a scheme is in OBS."""
    return f"file://{path}" if path.startswith("/") else path


def spec_of(details: JobDetails, capacities: Sequence[NodeCapacity]) -> dict[str, Any]:
    stored, resources = _foreign(details).get("spec") or {}, details.document.resource_config
    wanted = stored.get("resource") or {}
    has_roles = bool(details.document.tasks)  # each of them has a flavor of its own
    found = None if has_roles else of_resources(resources, capacities)
    resource: dict[str, Any] = {
        "policy": "regular",
        "flavor_id": wanted.get("flavor_id") or (found.id if found is not None else ""),
        "node_count": resources.node_count,
    }
    resource["flavor_name"] = resource["flavor_id"]
    if wanted.get("pool_id"):
        resource["pool_id"] = wanted["pool_id"]
    elif not has_roles and (details_of_flavor := of_job(resources, capacities)) is not None:
        resource["flavor_detail"] = details_of_flavor  # only public pools have it
    policy = {"priority": _nearest(details.job.priority), "preemptible": details.document.scheduling_config.preemptible}
    unchanged = ("volumes", "log_export_path", "auto_stop", "notification")
    logs = details.document.output_config.log_path
    others = {
        **({"log_export_path": {"obs_url": _as_request_path(logs)}} if logs else {}),
        **{name: stored[name] for name in unchanged if name in stored},
    }
    return {"resource": resource, "schedule_policy": {**(stored.get("schedule_policy") or {}), **policy}, **others}


def _nearest(priority: int) -> int:
    """The nearest priority of ModelArts, 1 to 3."""
    return min(PRIORITIES, key=lambda each: (abs(PRIORITIES[each] - priority), each))


def _foreign(details: JobDetails) -> Mapping[str, Any]:
    found: Mapping[str, Any] = details.job.foreign.get(DIALECT, {})
    return found
