"""Schemas of ModelArts' requests; `fields.py` has the effect of each field."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, Section, Text, TextMap, Whole, says

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ANNOTATION = re.compile(r"[A-Za-z0-9_./-]{1,128}")
IGNORED = says("Accepted but ignored")
READ_ONLY = says("Read-only: a new job gets its own")
_MANY = validate.Length(max=100)
FILTERS = ("name", "create_time", "phase", "algorithm_name", "kind", "user_id", "runtime_type")


def _document(name: str, described: Mapping[str, Any]) -> type[DocumentSchema]:
    schema: Any = DocumentSchema.from_dict(dict(described), name=f"{name}Schema")
    return schema  # type: ignore[no-any-return]


def _objects(**kwargs: Any) -> fields.List[Any]:
    return fields.List(FreeObject(), validate=_MANY, **kwargs)


def _list_of(schema: type[DocumentSchema], **kwargs: Any) -> fields.List[Any]:
    return fields.List(Section(schema), validate=_MANY, **kwargs)


class _Variables(TextMap):
    """An object of variables, or an array of such objects, as responses have it."""

    def __init__(self, *, keys: re.Pattern[str], rule: str) -> None:
        names = {"propertyNames": {"pattern": rf"^(?:{keys.pattern})$"}}
        each = {"type": "object", **names, "additionalProperties": {"type": "string", "maxLength": 4096}}
        super().__init__(keys=keys, rule=rule, metadata={"type": ["object", "array"], "items": each, "maxItems": 100})

    def _deserialize(self, value: object, *args: Any, **kwargs: Any) -> dict[str, str]:
        if isinstance(value, list):
            value = _merged(value)
        found: dict[str, str] = super()._deserialize(value, *args, **kwargs)  # type: ignore[no-untyped-call]
        return found


def _merged(several: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in several:
        if not isinstance(each, dict):
            raise ValidationError("must be an object of variables, or an array of such")
        if twice := found.keys() & each.keys():
            raise ValidationError(f"{min(twice)[:128]} is named twice")
        found |= each
    return found


_Obs = _document("Obs", {"obs_url": Text(longest=1024, shortest=1, required=True)})
_Remote = _document("Remote", {"obs": Section(_Obs), "dataset": FreeObject(**says("Refused: not supported"))})
_CHANNEL = {
    "name": Matching(_VARIABLE, "must be a name of letters, digits and _", required=True),
    "description": Text(longest=1024, **IGNORED),
    "local_dir": Text(longest=1024, **says("Path in the container; replaced by the path on the node")),
    "access_method": Choice(("parameter", "env"), **says("How the script gets the path: as an argument or a variable")),
    "remote": Section(_Remote, required=True),
}
_InputConstraint = _document(
    "InputConstraint", {"data_type": Text(longest=256, **IGNORED), "attributes": Text(longest=4096, **IGNORED)}
)
_Input = _document("Input", {**_CHANNEL, "remote_constraint": _list_of(_InputConstraint)})
_Output = _document("Output", _CHANNEL)
_Constraint = _document(
    "ParameterConstraint",
    {
        "type": Text(longest=64, **IGNORED),
        "editable": Flag(**IGNORED),
        "required": Flag(**IGNORED),
        "sensitive": Flag(**IGNORED),
        "valid_type": Text(longest=64, **IGNORED),
        "valid_range": fields.List(Text(longest=1024), validate=_MANY, **IGNORED),
    },
)
_Translation = _document(
    "Translation", {"language": Text(longest=64, **IGNORED), "description": Text(longest=4096, **IGNORED)}
)
_Parameter = _document(
    "Parameter",
    {
        "name": Text(longest=256, shortest=1, required=True),
        "value": Text(longest=4096, load_default=""),
        "description": Text(longest=4096, **IGNORED),
        "constraint": Section(_Constraint),
        "i18n_description": Section(_Translation),
    },
)
_Engine = _document(
    "Engine",
    {
        "engine_id": Text(longest=128, **IGNORED),
        "engine_name": Text(longest=128, **IGNORED),
        "engine_version": Text(longest=128, **IGNORED),
        "image_url": Text(longest=1024, **says("The image of the job's code, where the operator has named registries")),
        "install_sys_packages": Flag(**IGNORED),
    },
)
_PfsLog = _document("PfsLog", {"pfs_path": Text(longest=1024, **IGNORED)})
_LogDir = _document("LogDir", {"pfs": Section(_PfsLog)})
_JobSource = _document("JobSource", {"job": Section(_document("SourceJob", {"job_id": Text(longest=64, **IGNORED)}))})
_Summary = _document(
    "Summary",
    {
        "log_type": Choice(("tensorboard", "mindstudio-insight"), **IGNORED),
        "log_dir": Section(_LogDir),
        "data_sources": _list_of(_JobSource),
    },
)
_Reward = _document(
    "RewardAttribute",
    {
        "name": Text(longest=128, shortest=1, required=True),
        "mode": Choice(("max", "min"), load_default="max"),
        "regex": Text(longest=500, **says("Of a line of the log, with the number as its only group")),
    },
)
_SearchParameter = _document(
    "SearchParameter",
    {
        "name": Text(longest=200, shortest=1, required=True),
        "param_type": Choice(("continuous", "discrete"), required=True),
        "lower_bound": Text(longest=64, **says("A number")),
        "upper_bound": Text(longest=64, **says("A number")),
        "discrete_points_num": Text(longest=9, **says("Of a continuous one: so many values at equal distances")),
        "discrete_values": fields.List(Text(longest=4096), validate=validate.Length(max=1000)),
    },
)
_AlgorithmOption = _document(
    "SearchAlgorithmParameter",
    {
        "key": Text(longest=128, shortest=1, required=True),
        "value": Text(longest=1024, required=True),
        "type": Text(longest=64, **IGNORED),
    },
)
_SearchAlgorithm = _document(
    "SearchAlgorithm", {"name": Text(longest=128, shortest=1, required=True), "params": _list_of(_AlgorithmOption)}
)
_AutoSearch = _document(
    "AutoSearch",
    {
        "skip_search_params": Text(longest=4096, **says("Names separated by commas, whose values are kept")),
        "reward_attrs": _list_of(_Reward),
        "search_params": _list_of(_SearchParameter),
        "algo_configs": _list_of(_SearchAlgorithm, **says("One of GET /search-algorithms; without it all points")),
    },
)
_Policies = _document("Policies", {"auto_search": Section(_AutoSearch, **says("A sweep, whose trials are jobs"))})
_Algorithm = _document(
    "Algorithm",
    {
        "id": Text(
            longest=64, **says("A built-in method: sft, lora, qlora, dpo, rlhf, continued-pretrain, full-finetune")
        ),
        "name": Text(longest=128, **IGNORED),
        "subscription_id": Text(longest=64, **says("Refused: the algorithm gallery is not supported")),
        "item_version_id": Text(longest=64, **says("Refused: the algorithm gallery is not supported")),
        "code_dir": Text(longest=1024, **says("A directory that jobs may read, or obs://bucket/directory/")),
        "boot_file": Text(longest=1024, **says("The script in it")),
        "autosearch_config_path": Text(longest=1024, **says("Refused")),
        "autosearch_framework_path": Text(longest=1024, **says("Refused")),
        "command": Text(longest=32768, shortest=1, **says("A shell command instead of boot_file")),
        "parameters": _list_of(_Parameter, **says("Arguments --NAME=VALUE; hyperparameters of a built-in method")),
        "policies": Section(_Policies),
        "inputs": _list_of(_Input),
        "outputs": _list_of(_Output),
        "engine": Section(_Engine),
        "local_code_dir": Text(
            longest=1024, **says("Path of the code in the container; below /home, not with file://")
        ),
        "working_dir": Text(longest=1024, **says("Working directory: in the code, an input or an output")),
        "environments": _Variables(
            keys=_VARIABLE, rule="must be a name of letters, digits and _ that begins with no digit"
        ),
        "summary": Section(_Summary),
    },
)
_Resource = _document(
    "Resource",
    {
        "policy": Choice(("regular",), **says("The only one")),
        "flavor_name": Text(longest=128, **says("Read-only: flavor_id decides")),
        "flavor_detail": FreeObject(**says("Read-only: flavor_id decides")),
        "flavor_id": Text(longest=128, **says("A flavor of GET /training-job-flavors")),
        "node_count": Whole(1, 65536, load_default=1, **says("Number of nodes, each with the flavor's devices")),
        "pool_id": Text(longest=63, **says("A required node label")),
    },
)
_Affinity = _document(
    "RequiredAffinity",
    {
        "affinity_type": Choice(("cabinet", "hyperinstance"), required=True, **IGNORED),
        "affinity_group_size": Whole(1, 65536, **says("At most node_count; otherwise ignored")),
    },
)
_SchedulePolicy = _document(
    "SchedulePolicy",
    {
        "required_affinity": Section(_Affinity),
        "priority": Whole(1, 3, **says("3 is the highest", default=1)),
        "preemptible": Flag(**says("true: jobs of higher priority may preempt it")),
    },
)
_AutoStop = _document(
    "AutoStop", {"time_unit": Choice(("HOURS",), required=True), "duration": Whole(1, 8760, required=True)}
)
_Nfs = _document(
    "Nfs",
    {
        "nfs_server_path": Text(longest=1024, shortest=1, required=True, **says("SERVER:PATH")),
        "local_path": Text(longest=1024, shortest=1, required=True, **says("Mount path in the job")),
        "read_only": Flag(**says("Volumes are read-only; false has a warning")),
    },
)
_Volume = _document("Volume", {"nfs": Section(_Nfs), "pfs": FreeObject(**IGNORED), "obs": FreeObject(**IGNORED)})
_LogPlace = _document(
    "LogExportPath", {"obs_url": Text(longest=1024, **IGNORED), "host_path": Text(longest=1024, **IGNORED)}
)
_Notification = _document(
    "Notification",
    {"topic_urn": Text(longest=1024, **IGNORED), "events": fields.List(Text(longest=64), validate=_MANY, **IGNORED)},
)
_Ssh = _document(
    "Ssh",
    {
        "key_pair_names": fields.List(
            Text(longest=128), validate=_MANY, **says("Returned with the address for `ssh`, by `trainyard ssh-proxy`")
        ),
        "task_urls": _objects(**READ_ONLY),
    },
)
_Endpoints = _document(
    "Endpoints",
    {
        "ssh": Section(_Ssh),
        "jupyter_lab": FreeObject(**READ_ONLY),
        "tensorboard": FreeObject(**READ_ONLY),
        "mindstudio_insight": FreeObject(**says("Refused: nodes have no Ascend NPUs")),
    },
)
_Spec = _document(
    "JobSpec",
    {
        "resource": Section(_Resource),
        "volumes": _list_of(_Volume),
        "log_export_path": Section(_LogPlace),
        "auto_stop": Section(_AutoStop, **says("Maximum run time")),
        "schedule_policy": Section(_SchedulePolicy),
        "notification": Section(_Notification),
    },
)
_annotations = TextMap(keys=_ANNOTATION, rule="must be letters, digits and _./-")
_description = Text(longest=256)
_Metadata = _document(
    "JobMetadata",
    {
        "name": Matching(_NAME, "must have 1 to 64 letters, digits, _ and -", required=True),
        "workspace_id": Text(longest=64, **says("Stored and returned: there is one workspace", default="0")),
        "description": _description,
        "annotations": _annotations,
        "id": Text(longest=64, **READ_ONLY),
        "create_time": Whole(**READ_ONLY),
        "user_name": Text(longest=256, **READ_ONLY),
    },
)
CreateSchema = _document(
    "CreateTrainingJob",
    {
        "kind": Choice(("job",), required=True, **says("Only job")),
        "metadata": Section(_Metadata, required=True),
        "algorithm": Section(_Algorithm, required=True),
        "tasks": _objects(**says("Refused: heterogeneous tasks are not supported")),
        "spec": Section(_Spec),
        "endpoints": Section(_Endpoints),
        "status": FreeObject(**READ_ONLY),
        "train_type": Text(longest=64, **IGNORED),
    },
)
ChangeSchema = _document(
    "ChangeTrainingJob",
    {"description": _description, "metadata": Section(_document("ChangedMetadata", {"annotations": _annotations}))},
)
ActionSchema = _document("TrainingJobAction", {"action_type": Choice(("terminate",), required=True)})
_Named = _document("NamedJob", {"kind": Choice(("job",)), "metadata": FreeObject(required=True)})
BatchDeleteSchema = _document("BatchDelete", {"jobs": _list_of(_Named, required=True)})
_Filter = _document(
    "Filter",
    {
        "key": Choice(FILTERS, required=True),
        "operator": Choice(("between", "like", "in", "not"), required=True),
        "value": fields.List(Text(longest=128), required=True, validate=_MANY),
    },
)
SearchSchema = _document(
    "SearchTrainingJobs",
    {
        "offset": Whole(0, 10_000, load_default=0, **says("Number of the page, from 0")),
        "limit": Whole(1, 50, load_default=10),
        "sort_by": Choice(("create_time",), load_default="create_time"),
        "order": Choice(("asc", "desc"), load_default="desc"),
        "group_by": Text(longest=64, **IGNORED),
        "workspace_id": Text(longest=64, **IGNORED),
        "train_type": Text(longest=64, **IGNORED),
        "filters": _list_of(_Filter, load_default=list),
    },
)
_Tag = _document(
    "Tag", {"key": Text(longest=63, shortest=1, required=True), "value": Text(longest=255, load_default="")}
)
TagsSchema = _document("Tags", {"tags": fields.List(Section(_Tag), required=True, validate=validate.Length(1, 20))})
_ManyValues = _document(
    "TagFilter",
    {
        "key": Text(longest=63, shortest=1, required=True),
        "values": fields.List(Text(longest=255), load_default=list, validate=_MANY),
    },
)
_Match = _document(
    "Match", {"key": Choice(("resource_name",), required=True), "value": Text(longest=255, required=True)}
)
InstancesSchema = _document(
    "ResourceInstancesFilter",
    {
        "workspace_id": Text(longest=64, **IGNORED),
        "tags": _list_of(_ManyValues, load_default=list),
        "matches": _list_of(_Match, load_default=list),
        "without_any_tag": Flag(load_default=False),
    },
)
_Quota = _document(
    "Quota",
    {
        "resource": Choice(("gpus", "cpu_slots", "running_jobs", "waiting_jobs"), required=True),
        "quota": Whole(-1, 2**31 - 1, required=True, **says("-1: no limit")),
        "used": Whole(0, **says("Accepted but ignored")),
        "extra_info": Text(longest=255, **says("Accepted but ignored")),
    },
)
QuotasSchema = _document(
    "TrainingQuotas",
    {"user_id": Text(longest=64, **says("Ignored: quotas are per project")), "quotas": _list_of(_Quota, required=True)},
)
