"""The effect of each field of ModelArts' requests, and warnings of values without an effect."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from app.compat.images import IN_AN_IMAGE
from app.domain.errors import BadSpec
from app.domain.spec.rules.mounts import why_not_free
from app.domain.spec.rules.training import is_reserved
from app.schemas.spec.field_verdicts import Table, acted_on, refused, warned, warning

RETRY_NUM, UNCONDITIONAL, HANG = (
    f"fault-tolerance/{name}" for name in ("job-retry-num", "job-unconditional-retry", "hang-retry")
)
TENSORBOARD, JUPYTER_LAB, INSIGHT = (f"{name}/enable" for name in ("tensorboard", "jupyter-lab", "mindstudio-insight"))
TEMPLATE, OF_ROLES = "job_template", "Template RL"
_FLAGS = (UNCONDITIONAL, HANG, TENSORBOARD, JUPYTER_LAB, INSIGHT)
_RETURNED = acted_on("stored and returned")
_NOT_ENFORCED = acted_on("stored and returned; not enforced")
NO_INSIGHT = "MindStudio Insight reads profiles of Ascend NPUs, which nodes here do not have; leave it out"
_ALIKE = "describes the tasks of a heterogeneous job, and this job has none"
_NO_GALLERY = refused("the algorithm gallery is not supported; set code_dir and boot_file, or id")
_NO_FILES = refused("searches are not read from files; set algorithm.policies.auto_search")
_SEARCH = "algorithm.policies.auto_search"
_LIBRARIES = warned("jobs run with the libraries of the node, which GET /training-job-engines lists")
_NO_CONTAINERS = warned("jobs run on the node itself, without containers")
_METRICS = warned("metrics are stored for every job; the annotation tensorboard/enable opens a TensorBoard over them")
_READ_ONLY = warned("is read-only: flavor_id decides")
_OF_ANOTHER = warned("is read-only: a new job gets its own")
_OF_BUCKET = acted_on("data of the job")
_MOUNTED = acted_on(
    "the volume lies there, read-only, on nodes with a sandbox; in command, parameters and environments the path works "
    "on all nodes; a path of the system is refused"
)
_LOGS = acted_on("the log of each attempt is copied there when it ends, to JOB/attempt-N/rank-R.log")
_LOGS_ON_HOST = acted_on("as obs_url, for a directory below an output root; beside obs_url it has a warning")
_CABINETS = warned("affinity to cabinets and supernodes is not supported; pool_id selects nodes by a label")
_NO_TOPICS = warned("notifications are not supported; use a webhook of the native API")
_PARAMETERS, _INPUTS, _OUTPUTS = (f"algorithm.{name}" for name in ("parameters", "inputs", "outputs"))
_ENGINE, _SUMMARY, _AFFINITY = "algorithm.engine", "algorithm.summary", "spec.schedule_policy.required_affinity"

_ALGORITHM: Table = {
    "algorithm.id": acted_on("one of the built-in methods"),
    "algorithm.name": _RETURNED,
    "algorithm.subscription_id": _NO_GALLERY,
    "algorithm.item_version_id": _NO_GALLERY,
    "algorithm.code_dir": acted_on(
        "the code directory of the ranks; packages of a pip-requirements.txt in it are installed, if their index has "
        "wheels of them"
    ),
    "algorithm.boot_file": acted_on(
        "the script, run once per node; with the engines MPI, Horovod and MindSpore-GPU by mpirun, once for each device"
    ),
    "algorithm.autosearch_config_path": _NO_FILES,
    "algorithm.autosearch_framework_path": _NO_FILES,
    "algorithm.command": acted_on(
        "run by bash -c in code_dir, instead of boot_file; with mpirun as its only command the ranks are started by MPI"
    ),
    f"{_PARAMETERS}.name": acted_on("arguments --NAME=VALUE; hyperparameters of a built-in method"),
    f"{_PARAMETERS}.value": acted_on("arguments --NAME=VALUE; hyperparameters of a built-in method"),
    f"{_PARAMETERS}.description": _RETURNED,
    **{
        f"{_PARAMETERS}.constraint.{name}": _NOT_ENFORCED
        for name in ("type", "editable", "required", "sensitive", "valid_type", "valid_range")
    },
    f"{_PARAMETERS}.i18n_description.language": _RETURNED,
    f"{_PARAMETERS}.i18n_description.description": _RETURNED,
    f"{_SEARCH}.skip_search_params": acted_on("these parameters keep their values"),
    f"{_SEARCH}.reward_attrs.name": acted_on("a metric that trials are compared by; several have a Pareto front"),
    f"{_SEARCH}.reward_attrs.mode": acted_on("max or min"),
    f"{_SEARCH}.reward_attrs.regex": acted_on(
        "of a line of the log, with the number as its only group; without it NAME=0.9 and NAME: 0.9"
    ),
    f"{_SEARCH}.search_params.name": acted_on("an argument --NAME=VALUE; a hyperparameter of a built-in method"),
    f"{_SEARCH}.search_params.param_type": acted_on("continuous or discrete"),
    f"{_SEARCH}.search_params.lower_bound": acted_on("lower end of a continuous parameter"),
    f"{_SEARCH}.search_params.upper_bound": acted_on("upper end of a continuous parameter"),
    f"{_SEARCH}.search_params.discrete_points_num": acted_on("so many values at equal distances, both ends included"),
    f"{_SEARCH}.search_params.discrete_values": acted_on("values of a discrete parameter"),
    f"{_SEARCH}.algo_configs.name": acted_on(
        "bayes_opt_search (gp), tpe_search (tpe), anneal_search (anneal); without one all points are tried"
    ),
    f"{_SEARCH}.algo_configs.params.key": acted_on(
        "num_samples, n_initial_points, avg_best_idx, shrink_coef; others have a warning"
    ),
    f"{_SEARCH}.algo_configs.params.value": acted_on("its value"),
    f"{_SEARCH}.algo_configs.params.type": _RETURNED,
    f"{_ENGINE}.engine_id": _LIBRARIES,
    f"{_ENGINE}.engine_name": _LIBRARIES,
    f"{_ENGINE}.engine_version": _LIBRARIES,
    f"{_ENGINE}.image_url": acted_on(f"{IN_AN_IMAGE}; with algorithm.id, too"),
    f"{_ENGINE}.install_sys_packages": _NO_CONTAINERS,
    "algorithm.local_code_dir": acted_on(
        "must be below /home; the code lies there, on nodes with a sandbox; in command, parameters and environments "
        "the path works on all nodes"
    ),
    "algorithm.working_dir": acted_on(
        "working directory, if it is in the code or the local_dir of an input or output; elsewhere it has a warning"
    ),
    "algorithm.environments": acted_on("environment variables of the ranks; one that the platform sets has a warning"),
    f"{_SUMMARY}.log_type": _METRICS,
    f"{_SUMMARY}.log_dir.pfs.pfs_path": _METRICS,
    f"{_SUMMARY}.data_sources.job.job_id": _METRICS,
}

_CHANNELS: Table = {
    **{
        f"{channel}.{name}": rule
        for channel in (_INPUTS, _OUTPUTS)
        for name, rule in {
            "name": acted_on("the script gets its path as --NAME="),
            "description": _RETURNED,
            "local_dir": acted_on(
                "it lies there, on nodes with a sandbox; in command, parameters and environments the path works on all "
                "nodes"
            ),
            "access_method": acted_on("env: the path is a variable instead of an argument"),
            "remote.dataset": refused("datasets are not supported; use remote.obs.obs_url"),
        }.items()
    },
    f"{_INPUTS}.remote.obs.obs_url": acted_on("data of the job"),
    f"{_OUTPUTS}.remote.obs.obs_url": acted_on("results are copied there when the job ends"),
    f"{_INPUTS}.remote_constraint.data_type": _NOT_ENFORCED,
    f"{_INPUTS}.remote_constraint.attributes": _NOT_ENFORCED,
}

_SPEC: Table = {
    "spec.resource.policy": acted_on("checked: regular is the only one"),
    "spec.resource.flavor_id": acted_on("devices per node; a flavor that no node has is refused"),
    "spec.resource.flavor_name": _READ_ONLY,
    "spec.resource.flavor_detail": _READ_ONLY,
    "spec.resource.node_count": acted_on("number of nodes"),
    "spec.resource.pool_id": acted_on("a required node label"),
    "spec.volumes.nfs.nfs_server_path": acted_on(
        "nfs/SERVER/PATH below a storage root, mounted by the operator; others are refused"
    ),
    "spec.volumes.nfs.local_path": _MOUNTED,
    "spec.volumes.nfs.read_only": acted_on("volumes are read-only; false has a warning"),
    "spec.volumes.pfs.pfs_path": _OF_BUCKET,
    "spec.volumes.pfs.local_path": _MOUNTED,
    "spec.volumes.obs.obs_path": _OF_BUCKET,
    "spec.volumes.obs.local_path": _MOUNTED,
    "spec.log_export_path.obs_url": _LOGS,
    "spec.log_export_path.host_path": _LOGS_ON_HOST,
    "spec.auto_stop.time_unit": acted_on("checked: HOURS is the only one"),
    "spec.auto_stop.duration": acted_on("maximum run time of the job"),
    f"{_AFFINITY}.affinity_type": _CABINETS,
    f"{_AFFINITY}.affinity_group_size": warned("only checked against node_count"),
    "spec.schedule_policy.priority": acted_on("1, 2, 3 are the native priorities 3, 5, 8"),
    "spec.schedule_policy.preemptible": acted_on("jobs of higher priority may preempt it"),
    "spec.notification.topic_urn": _NO_TOPICS,
    "spec.notification.events": _NO_TOPICS,
}

_TASK = "tasks.algorithm"
_TASKS: Table = {
    "tasks.role": acted_on("a role of the job; two that differ only in capitals are refused"),
    f"{_TASK}.code_dir": acted_on("code of the task, in one directory with that of the others; else it is refused"),
    f"{_TASK}.boot_file": acted_on("the script, run once per instance"),
    f"{_TASK}.local_code_dir": _ALGORITHM["algorithm.local_code_dir"],
    f"{_TASK}.working_dir": _ALGORITHM["algorithm.working_dir"],
    f"{_TASK}.environments": _ALGORITHM["algorithm.environments"],
    **{f"{_TASK}.engine.{name}": _LIBRARIES for name in ("engine_id", "engine_name", "engine_version")},
    f"{_TASK}.engine.image_url": acted_on(f"{IN_AN_IMAGE}; tasks that name different ones are on different nodes"),
    f"{_TASK}.engine.run_user": acted_on(
        "the user ID that the processes see, where nodes can give them one; one for all tasks, else it has a warning"
    ),
    f"{_TASK}.engine.v1_compatible": _RETURNED,
    **{
        f"{_TASK}.{inner}{kind}{path.removeprefix(f'algorithm.{kind}')}": rule
        for inner in ("", "job_config.")
        for kind in ("inputs", "outputs")
        for path, rule in _CHANNELS.items()
        if path.startswith(f"algorithm.{kind}.")
    },
    **{
        f"{_TASK}.{inner}outputs.{name}": warned("results are copied when the job ends")
        for inner in ("", "job_config.")
        for name in ("mode", "period")
    },
    **{
        path.replace("algorithm.parameters", f"{_TASK}.job_config.parameters"): rule
        for path, rule in _ALGORITHM.items()
        if path.startswith(f"{_PARAMETERS}.")
    },
    "tasks.task_resource.flavor_id": acted_on("devices of each instance; a flavor that no node has is refused"),
    "tasks.task_resource.node_count": acted_on("number of instances of the role"),
    "tasks.task_resource.pool_id": acted_on("a required node label"),
    **{
        f"tasks.task_resource.{name}": _READ_ONLY
        for name in ("flavor_name", "flavor_type", "max_num", "billing", "flavor_info", "attributes")
    },
    "tasks.log_export_path.obs_url": _LOGS,
    "tasks.log_export_path.host_path": _LOGS_ON_HOST,
}

# Fields of the request that creates a job.
FIELDS: Table = {
    "kind": acted_on("checked: job is the only one"),
    "metadata.name": acted_on("the job's name, unique in the project"),
    "metadata.workspace_id": acted_on("stored and returned; there is one workspace, so others than 0 have a warning"),
    "metadata.description": _RETURNED,
    "metadata.id": _OF_ANOTHER,
    "metadata.create_time": _OF_ANOTHER,
    "metadata.user_name": _OF_ANOTHER,
    "metadata.annotations": acted_on(
        f"{RETRY_NUM}, {UNCONDITIONAL}, {HANG}, {TENSORBOARD} and {JUPYTER_LAB} have an effect; {INSIGHT} is refused, "
        "others have a warning"
    ),
    **_ALGORITHM,
    **_CHANNELS,
    **_TASKS,
    **_SPEC,
    "status": _OF_ANOTHER,
    "endpoints.tensorboard": _OF_ANOTHER,
    "endpoints.jupyter_lab": _OF_ANOTHER,
    "endpoints.mindstudio_insight": refused(NO_INSIGHT),
    "endpoints.ssh.key_pair_names": warned(
        "no key lies on nodes: `trainyard ssh-proxy` enters with an API key, at the address that answers have"
    ),
    "endpoints.ssh.task_urls": _OF_ANOTHER,
    "train_type": warned("there is one type of training jobs"),
}

_ONE_WORKSPACE = warned("there is one workspace")
# Fields of other requests and queries without an effect.
SEARCH_FIELDS: Table = {
    "group_by": warned("grouping is not supported"),
    "workspace_id": _ONE_WORKSPACE,
    "train_type": FIELDS["train_type"],
}
WORKSPACE_FIELDS: Table = {"workspace_id": _ONE_WORKSPACE}
QUOTAS_FIELDS: Table = {
    "user_id": warned("quotas are of projects"),
    "quotas.used": warned("is read-only"),
    "quotas.extra_info": warned("is not stored"),
}


def check_annotations(annotations: Mapping[str, str]) -> None:
    """Raises BadSpec for an invalid value of a known annotation."""
    for name in _FLAGS:
        if annotations.get(name, "true") not in ("true", "false"):
            raise BadSpec("must be true or false", field=f"metadata.annotations.{name}")
    if annotations.get(INSIGHT) == "true":
        raise BadSpec(f"is refused: {NO_INSIGHT}", field=f"metadata.annotations.{INSIGHT}")


def wants_tensorboard(metadata: Mapping[str, Any]) -> bool:
    return (metadata.get("annotations") or {}).get(TENSORBOARD) == "true"


def wants_notebook(job: Mapping[str, Any]) -> bool:
    """Whether the code of a job runs with JupyterLab beside it; a search has none."""
    algorithm = job["algorithm"]
    is_own = not algorithm.get("id") and not (algorithm.get("policies") or {}).get("auto_search")
    return is_own and (job["metadata"].get("annotations") or {}).get(JUPYTER_LAB) == "true"


def warnings_of_values(job: Mapping[str, Any]) -> list[str]:
    """Warnings of values without effect, in fields that otherwise have one."""
    metadata, algorithm = job["metadata"], job["algorithm"]
    found = [
        *(
            (f"metadata.annotations.{name}", why)
            for name, why in _annotations(metadata.get("annotations") or {}, algorithm, job.get("tasks"))
        ),
        *((f"algorithm.{name}", why) for name, why in _beside_others(algorithm)),
        *(
            (f"algorithm.environments.{name}", "the platform sets this variable")
            for name in algorithm.get("environments") or {}
            if is_reserved(name)
        ),
    ]
    if metadata.get("workspace_id") not in (None, "", "0"):
        found.insert(0, ("metadata.workspace_id", "there is one workspace"))
    return [warning(field, why) for field, why in found]


def warnings_of_annotations(annotations: Mapping[str, str]) -> list[str]:
    """Warnings of annotations that have an effect only when a job is created."""
    late = [name for name in annotations if name.startswith("fault-tolerance/") or name == JUPYTER_LAB]
    return [warning(f"metadata.annotations.{name}", "has an effect only when the job is created") for name in late]


def _annotations(
    annotations: Mapping[str, str], algorithm: Mapping[str, Any], tasks: object
) -> Iterator[tuple[str, str]]:
    for name, value in annotations.items():
        if name == UNCONDITIONAL and value == "true" and algorithm.get("id"):
            yield name, "a built-in method is retried only after transient failures"
        elif name == TEMPLATE:
            if not tasks:
                yield name, _ALIKE
            elif value != OF_ROLES:
                yield name, f"{OF_ROLES} is the only template"
        elif name == JUPYTER_LAB and value == "true" and algorithm.get("id"):
            yield name, f"a built-in method has none; {TENSORBOARD} opens a TensorBoard"
        elif name == JUPYTER_LAB and value == "true" and (algorithm.get("policies") or {}).get("auto_search"):
            yield name, "a search has none; its trials run side by side"
        elif name not in (RETRY_NUM, *_FLAGS):
            yield name, "is stored and returned, without an effect"


def _beside_others(algorithm: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Fields that have no effect because of another one."""
    command = algorithm.get("command")
    if algorithm.get("id"):
        own = ("code_dir", "boot_file", "command", "local_code_dir", "working_dir")
        yield from ((name, "has no effect with id, a built-in method") for name in own if algorithm.get(name))
        channels = [(name, each) for name in ("inputs", "outputs") for each in algorithm.get(name) or []]
        parts = {
            f"{name}.{part}" for name, each in channels for part in ("local_dir", "access_method") if each.get(part)
        }
        yield from ((name, "has no effect with id: a built-in method finds its data itself") for name in sorted(parts))
        return
    if command and algorithm.get("boot_file"):
        yield "boot_file", "has no effect with command, which runs instead"
    yield from _unmounted(algorithm)


def _unmounted(algorithm: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Inputs and outputs that do not lie at their ``local_dir``."""
    seen: set[str] = set()
    for kind in ("inputs", "outputs"):
        for each in algorithm.get(kind) or []:
            if not each.get("local_dir"):
                continue
            path = posixpath.normpath(each["local_dir"])
            if why := why_not_free(path) or ("is the path of another one, too" if path in seen else ""):
                yield f"{kind}.local_dir", f"{path} {why}; {each['name']} is passed to the script with its place"
            seen.add(path)
