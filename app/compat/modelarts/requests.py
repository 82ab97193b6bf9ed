"""What ModelArts' clients send, by the names on the wire; `fields.py` says what becomes of each of them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, Section, Text, TextMap, Whole, says

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ANNOTATION = re.compile(r"[A-Za-z0-9_./-]{1,128}")
KEPT = says("Kept and told, not acted on")
TOLD = says("As a job is told; decided anew for the new one")
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
    """An object of variables, or as answers tell them an array of such."""

    def __init__(self, *, keys: re.Pattern[str], rule: str) -> None:
        names = {"propertyNames": {"pattern": rf"^(?:{keys.pattern})$"}}
        each = {"type": "object", **names, "additionalProperties": {"type": "string", "maxLength": 4096}}
        super().__init__(
            keys=keys, rule=rule, metadata={"type": ["object", "array"], "items": each, "maxItems": 100}
        )  # fmt: skip

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, list):
            value = _together(value)
        return super()._deserialize(value, *args, **kwargs)  # type: ignore[no-untyped-call]


def _together(several: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in several:
        if not isinstance(each, dict):
            raise ValidationError("must be an object of variables, or an array of such")
        if twice := found.keys() & each.keys():
            raise ValidationError(f"{min(twice)[:128]} is named twice")
        found |= each
    return found


_Obs = _document("Obs", {"obs_url": Text(longest=1024, shortest=1, required=True)})
_Remote = _document("Remote", {"obs": Section(_Obs), "dataset": FreeObject(**says("Refused: there are no data sets"))})
_CHANNEL = {
    "name": Matching(_VARIABLE, "must be a name of letters, digits and _", required=True),
    "description": Text(longest=1024, **KEPT),
    "local_dir": Text(longest=1024, **says("Where the script looks for it; its words are told where the node has it")),
    "access_method": Choice(("parameter", "env"), **says("How else it learns that: by an argument, or by a variable")),
    "remote": Section(_Remote, required=True),
}
_InputConstraint = _document(
    "InputConstraint", {"data_type": Text(longest=256, **KEPT), "attributes": Text(longest=4096, **KEPT)}
)
_Input = _document("Input", {**_CHANNEL, "remote_constraint": _list_of(_InputConstraint)})
_Output = _document("Output", _CHANNEL)
_Constraint = _document(
    "ParameterConstraint",
    {
        "type": Text(longest=64, **KEPT),
        "editable": Flag(**KEPT),
        "required": Flag(**KEPT),
        "sensitive": Flag(**KEPT),
        "valid_type": Text(longest=64, **KEPT),
        "valid_range": fields.List(Text(longest=1024), validate=_MANY, **KEPT),
    },
)
_Translation = _document(
    "Translation", {"language": Text(longest=64, **KEPT), "description": Text(longest=4096, **KEPT)}
)
_Parameter = _document(
    "Parameter",
    {
        "name": Text(longest=256, shortest=1, required=True),
        "value": Text(longest=4096, load_default=""),
        "description": Text(longest=4096, **KEPT),
        "constraint": Section(_Constraint),
        "i18n_description": Section(_Translation),
    },
)
_Engine = _document(
    "Engine",
    {
        "engine_id": Text(longest=128, **KEPT),
        "engine_name": Text(longest=128, **KEPT),
        "engine_version": Text(longest=128, **KEPT),
        "image_url": Text(longest=1024, **says("Kept and told: jobs run on the node itself, without containers")),
        "install_sys_packages": Flag(**KEPT),
    },
)
_PfsLog = _document("PfsLog", {"pfs_path": Text(longest=1024, **KEPT)})
_LogDir = _document("LogDir", {"pfs": Section(_PfsLog)})
_JobSource = _document("JobSource", {"job": Section(_document("SourceJob", {"job_id": Text(longest=64, **KEPT)}))})
_Summary = _document(
    "Summary",
    {
        "log_type": Choice(("tensorboard", "mindstudio-insight"), **KEPT),
        "log_dir": Section(_LogDir),
        "data_sources": _list_of(_JobSource),
    },
)
_Algorithm = _document(
    "Algorithm",
    {
        "id": Text(
            longest=64, **says("A built-in method: sft, lora, qlora, dpo, rlhf, continued-pretrain, full-finetune")
        ),
        "name": Text(longest=128, **KEPT),
        "subscription_id": Text(longest=64, **says("Refused: there is no gallery")),
        "item_version_id": Text(longest=64, **says("Refused: there is no gallery")),
        "code_dir": Text(longest=1024, **says("A directory that jobs may read, or obs://bucket/directory/")),
        "boot_file": Text(longest=1024, **says("The script in it")),
        "autosearch_config_path": Text(longest=1024, **says("Refused")),
        "autosearch_framework_path": Text(longest=1024, **says("Refused")),
        "command": Text(longest=32768, shortest=1, **says("A command for a shell, instead of a script")),
        "parameters": _list_of(_Parameter, **says("Arguments --NAME=VALUE; of a built-in method its hyperparameters")),
        "policies": FreeObject(**says("Refused: searching for hyperparameters is not supported")),
        "inputs": _list_of(_Input),
        "outputs": _list_of(_Output),
        "engine": Section(_Engine),
        "local_code_dir": Text(
            longest=1024, **says("What the script calls the directory of its code; below /home, and not with file://")
        ),
        "working_dir": Text(longest=1024, **says("Where the script starts: in the code, an input or an output")),
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
        "flavor_name": Text(longest=128, **says("As it is told; flavor_id decides")),
        "flavor_detail": FreeObject(**says("As it is told; flavor_id decides")),
        "flavor_id": Text(longest=128, **says("One of those that GET /training-job-flavors lists")),
        "node_count": Whole(1, 65536, load_default=1, **says("Nodes that each give the flavor's devices")),
        "pool_id": Text(longest=63, **says("A label that the nodes must have")),
    },
)
_Affinity = _document(
    "RequiredAffinity",
    {
        "affinity_type": Choice(("cabinet", "hyperinstance"), required=True, **KEPT),
        "affinity_group_size": Whole(
            1, 65536, **says("At most as many as there are nodes; kept and told, not acted on")
        ),
    },
)
_SchedulePolicy = _document(
    "SchedulePolicy",
    {
        "required_affinity": Section(_Affinity),
        "priority": Whole(1, 3, **says("3 is the highest", default=1)),
        "preemptible": Flag(**says("true: others of a higher priority may take its devices")),
    },
)
_AutoStop = _document(
    "AutoStop", {"time_unit": Choice(("HOURS",), required=True), "duration": Whole(1, 8760, required=True)}
)
_Nfs = _document(
    "Nfs",
    {
        "nfs_server_path": Text(longest=1024, shortest=1, required=True, **KEPT),
        "local_path": Text(longest=1024, shortest=1, required=True, **KEPT),
        "read_only": Flag(**KEPT),
    },
)
_Volume = _document("Volume", {"nfs": Section(_Nfs), "pfs": FreeObject(**KEPT), "obs": FreeObject(**KEPT)})
_LogPlace = _document("LogExportPath", {"obs_url": Text(longest=1024, **KEPT), "host_path": Text(longest=1024, **KEPT)})
_Notification = _document(
    "Notification",
    {"topic_urn": Text(longest=1024, **KEPT), "events": fields.List(Text(longest=64), validate=_MANY, **KEPT)},
)
_Ssh = _document("Ssh", {"key_pair_names": fields.List(Text(longest=128), validate=_MANY, **KEPT)})
_Spec = _document(
    "JobSpec",
    {
        "resource": Section(_Resource),
        "volumes": _list_of(_Volume),
        "log_export_path": Section(_LogPlace),
        "auto_stop": Section(_AutoStop, **says("The longest that it may run")),
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
        "workspace_id": Text(longest=64, **says("Kept and told: there is one workspace", default="0")),
        "description": _description,
        "annotations": _annotations,
        "id": Text(longest=64, **TOLD),
        "create_time": Whole(**TOLD),
        "user_name": Text(longest=256, **TOLD),
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
        "endpoints": Section(_document("Endpoints", {"ssh": Section(_Ssh), "tensorboard": FreeObject(**TOLD)})),
        "status": FreeObject(**TOLD),
        "train_type": Text(longest=64, **KEPT),
    },
)
ChangeSchema = _document(
    "ChangeTrainingJob",
    {
        "description": _description,
        "metadata": Section(_document("ChangedMetadata", {"annotations": _annotations})),
    },
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
        "offset": Whole(0, 10_000, load_default=0, **says("Which page; the first is 0")),
        "limit": Whole(1, 50, load_default=10),
        "sort_by": Choice(("create_time",), load_default="create_time"),
        "order": Choice(("asc", "desc"), load_default="desc"),
        "group_by": Text(longest=64, **KEPT),
        "workspace_id": Text(longest=64, **KEPT),
        "train_type": Text(longest=64, **KEPT),
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
        "workspace_id": Text(longest=64, **KEPT),
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
        "used": Whole(0, **says("Without effect")),
        "extra_info": Text(longest=255, **says("Without effect")),
    },
)
QuotasSchema = _document(
    "TrainingQuotas",
    {
        "user_id": Text(longest=64, **says("Without effect: quotas are of projects")),
        "quotas": _list_of(_Quota, required=True),
    },
)
