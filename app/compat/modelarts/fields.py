"""What becomes of each field that ModelArts' clients send, and of values of theirs that have no effect."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.domain.errors import BadSpec
from app.domain.spec.rules.training import is_reserved
from app.schemas.spec.field_verdicts import Table, acted_on, refused, warned, warning

RETRY_NUM, UNCONDITIONAL, HANG = (
    f"fault-tolerance/{name}" for name in ("job-retry-num", "job-unconditional-retry", "hang-retry")
)
TENSORBOARD, JUPYTER_LAB, INSIGHT = (f"{name}/enable" for name in ("tensorboard", "jupyter-lab", "mindstudio-insight"))
TEMPLATE = "job_template"
_FLAGS = (UNCONDITIONAL, HANG, TENSORBOARD, JUPYTER_LAB, INSIGHT)
_TOLD = acted_on("kept and returned")
_NOT_ENFORCED = acted_on("kept and returned; not enforced")
_ALIKE = "heterogeneous tasks are not supported; submit several jobs"
_NO_GALLERY = refused("there is no gallery of algorithms; name code_dir and boot_file, or an id")
_NO_SEARCH = refused("searching for hyperparameters is not supported; submit several jobs")
_LIBRARIES = warned("jobs run with the libraries of the node, which GET /training-job-engines lists")
_NO_CONTAINERS = warned("jobs run on the node itself, without containers")
_METRICS = warned("metrics are stored for every job; the annotation tensorboard/enable opens a TensorBoard over them")
_READ_ONLY = warned("is read-only: flavor_id decides")
_NOT_MOUNTED = warned("nothing is mounted; name the data as an input")
_LOGS = warned("logs stay in the storage of jobs, where the API reads them")
_CABINETS = warned("nodes are chosen without regard to cabinets and supernodes; pool_id names a label of nodes")
_NO_TOPICS = warned("nothing is sent to topics; use a webhook of the native API")
_PARAMETERS, _INPUTS, _OUTPUTS = (f"algorithm.{name}" for name in ("parameters", "inputs", "outputs"))
_ENGINE, _SUMMARY, _AFFINITY = "algorithm.engine", "algorithm.summary", "spec.schedule_policy.required_affinity"

_ALGORITHM: Table = {
    "algorithm.id": acted_on("one of the built-in methods"),
    "algorithm.name": _TOLD,
    "algorithm.subscription_id": _NO_GALLERY,
    "algorithm.item_version_id": _NO_GALLERY,
    "algorithm.code_dir": acted_on("the directory that the ranks see"),
    "algorithm.boot_file": acted_on("the script that runs, once on each node"),
    "algorithm.autosearch_config_path": _NO_SEARCH,
    "algorithm.autosearch_framework_path": _NO_SEARCH,
    "algorithm.command": acted_on("run by bash -c instead of a script; starts in code_dir"),
    f"{_PARAMETERS}.name": acted_on("arguments --NAME=VALUE; of a built-in method its hyperparameters"),
    f"{_PARAMETERS}.value": acted_on("arguments --NAME=VALUE; of a built-in method its hyperparameters"),
    f"{_PARAMETERS}.description": _TOLD,
    **{
        f"{_PARAMETERS}.constraint.{name}": _NOT_ENFORCED
        for name in ("type", "editable", "required", "sensitive", "valid_type", "valid_range")
    },
    f"{_PARAMETERS}.i18n_description.language": _TOLD,
    f"{_PARAMETERS}.i18n_description.description": _TOLD,
    "algorithm.policies": _NO_SEARCH,
    f"{_ENGINE}.engine_id": _LIBRARIES,
    f"{_ENGINE}.engine_name": _LIBRARIES,
    f"{_ENGINE}.engine_version": _LIBRARIES,
    f"{_ENGINE}.image_url": _NO_CONTAINERS,
    f"{_ENGINE}.install_sys_packages": _NO_CONTAINERS,
    "algorithm.local_code_dir": acted_on(
        "must be below /home; where it stands in command, parameters and environments, it becomes where the node has "
        "the code. Nothing lies at the path itself, and beside a code_dir with file:// it has no effect"
    ),
    "algorithm.working_dir": acted_on(
        "where the script or command starts, if it is in the code or the local_dir of an input or output; named in a "
        "warning if it is elsewhere"
    ),
    "algorithm.environments": acted_on("variables of the ranks; those that the platform sets are named in a warning"),
    f"{_SUMMARY}.log_type": _METRICS,
    f"{_SUMMARY}.log_dir.pfs.pfs_path": _METRICS,
    f"{_SUMMARY}.data_sources.job.job_id": _METRICS,
}  # fmt: skip

_CHANNELS: Table = {
    **{
        f"{channel}.{name}": rule
        for channel in (_INPUTS, _OUTPUTS)
        for name, rule in {
            "name": acted_on("the script is told its place by --NAME="),
            "description": _TOLD,
            "local_dir": acted_on(
                "where it stands in command, parameters and environments, it becomes that place; nothing lies at the "
                "path itself"
            ),
            "access_method": acted_on("env: the script is told by a variable instead of an argument"),
            "remote.dataset": refused("there are no data sets; name its place as remote.obs.obs_url"),
        }.items()
    },
    f"{_INPUTS}.remote.obs.obs_url": acted_on("the data of the job"),
    f"{_OUTPUTS}.remote.obs.obs_url": acted_on("results are copied there when the job ends, not before"),
    f"{_INPUTS}.remote_constraint.data_type": _NOT_ENFORCED,
    f"{_INPUTS}.remote_constraint.attributes": _NOT_ENFORCED,
}

_SPEC: Table = {
    "spec.resource.policy": acted_on("checked: regular is the only one"),
    "spec.resource.flavor_id": acted_on("the devices of each node; one that no node has is refused"),
    "spec.resource.flavor_name": _READ_ONLY,
    "spec.resource.flavor_detail": _READ_ONLY,
    "spec.resource.node_count": acted_on("on how many nodes at once"),
    "spec.resource.pool_id": acted_on("a label that the nodes must have"),
    "spec.volumes.nfs.nfs_server_path": _NOT_MOUNTED,
    "spec.volumes.nfs.local_path": _NOT_MOUNTED,
    "spec.volumes.nfs.read_only": _NOT_MOUNTED,
    "spec.volumes.pfs": _NOT_MOUNTED,
    "spec.volumes.obs": _NOT_MOUNTED,
    "spec.log_export_path.obs_url": _LOGS,
    "spec.log_export_path.host_path": _LOGS,
    "spec.auto_stop.time_unit": acted_on("checked: HOURS is the only one"),
    "spec.auto_stop.duration": acted_on("the longest that the job may run"),
    f"{_AFFINITY}.affinity_type": _CABINETS,
    f"{_AFFINITY}.affinity_group_size": warned("checked against node_count; nodes are chosen without regard to it"),
    "spec.schedule_policy.priority": acted_on("1, 2, 3 is the priority 3, 5, 8"),
    "spec.schedule_policy.preemptible": acted_on("others of a higher priority may take its devices"),
    "spec.notification.topic_urn": _NO_TOPICS,
    "spec.notification.events": _NO_TOPICS,
}

# Of the request that makes a job.
FIELDS: Table = {
    "kind": acted_on("checked: job is the only one"),
    "metadata.name": acted_on("the job's name, which no other job of the project may have"),
    "metadata.workspace_id": acted_on("kept and returned; any but 0 is named in a warning, as there is one workspace"),
    "metadata.description": _TOLD,
    "metadata.annotations": acted_on(
        f"{RETRY_NUM}, {UNCONDITIONAL}, {HANG} and {TENSORBOARD} are acted on; others are named in a warning"
    ),
    **_ALGORITHM,
    **_CHANNELS,
    "tasks": refused(_ALIKE),
    **_SPEC,
    "endpoints.ssh.key_pair_names": warned("there is no SSH into jobs"),
    "train_type": warned("all training jobs are of one kind"),
}

_ONE_WORKSPACE = warned("there is one workspace")
# Of what other requests, and queries, may say without effect.
SEARCH_FIELDS: Table = {
    "group_by": warned("jobs are not grouped"),
    "workspace_id": _ONE_WORKSPACE,
    "train_type": FIELDS["train_type"],
}
WORKSPACE_FIELDS: Table = {"workspace_id": _ONE_WORKSPACE}
QUOTAS_FIELDS: Table = {
    "user_id": warned("quotas are of projects"),
    "quotas.used": warned("is counted, not set"),
    "quotas.extra_info": warned("is not kept"),
}


def check_annotations(annotations: Mapping[str, str]) -> None:
    """Raises BadSpec for one of theirs whose value is none of its values."""
    for name in _FLAGS:
        if annotations.get(name, "true") not in ("true", "false"):
            raise BadSpec("must be true or false", field=f"metadata.annotations.{name}")


def warnings_of_values(job: Mapping[str, Any]) -> list[str]:
    """Lines for values without effect, where the table can't tell by the field alone."""
    metadata, algorithm = job["metadata"], job["algorithm"]
    found = [
        *(
            (f"metadata.annotations.{name}", why)
            for name, why in _annotations(metadata.get("annotations") or {}, algorithm)
        ),
        *((f"algorithm.{name}", why) for name, why in _beside_others(algorithm)),
        *(
            (f"algorithm.environments.{name}", "the platform sets it itself")
            for name in algorithm.get("environments") or {}
            if is_reserved(name)
        ),
    ]
    if metadata.get("workspace_id") not in (None, "", "0"):
        found.insert(0, ("metadata.workspace_id", "there is one workspace"))
    return [warning(field, why) for field, why in found]


def warnings_of_annotations(annotations: Mapping[str, str]) -> list[str]:
    """Of a job that is there already: what annotations ask for was decided when it was made."""
    late = [name for name in annotations if name.startswith("fault-tolerance/")]
    return [warning(f"metadata.annotations.{name}", "is decided when the job is created") for name in late]


def _annotations(annotations: Mapping[str, str], algorithm: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in annotations.items():
        if name == UNCONDITIONAL and value == "true" and algorithm.get("id"):
            yield name, "a built-in method is tried again only after faults that may pass"
        if name == HANG and value == "false" and (RETRY_NUM in annotations or annotations.get(UNCONDITIONAL) == "true"):
            yield name, "jobs that hang are restarted as after any fault that may pass"
        elif name == TEMPLATE:
            yield name, _ALIKE
        elif name in (JUPYTER_LAB, INSIGHT) and value == "true":
            yield name, f"there is none; {TENSORBOARD} opens a TensorBoard"
        elif name not in (RETRY_NUM, *_FLAGS):
            yield name, "is kept and returned, and has no meaning here"


def _beside_others(algorithm: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What another field makes superfluous."""
    code, command = algorithm.get("code_dir") or "", algorithm.get("command")
    if algorithm.get("id"):
        own = ("code_dir", "boot_file", "command", "local_code_dir", "working_dir")
        yield from ((name, "has no effect beside id, a built-in method") for name in own if algorithm.get(name))
        channels = [(name, each) for name in ("inputs", "outputs") for each in algorithm.get(name) or []]
        told = {
            f"{name}.{part}" for name, each in channels for part in ("local_dir", "access_method") if each.get(part)
        }
        yield from ((name, "has no effect beside id: a built-in method finds its data itself") for name in sorted(told))
        return
    if command and algorithm.get("boot_file"):
        yield "boot_file", "has no effect beside command, which runs instead"
    if algorithm.get("local_code_dir") and code.startswith("file://"):
        yield "local_code_dir", "has no effect beside a code_dir with file://"
