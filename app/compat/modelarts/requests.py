"""Schemas of ModelArts' requests; `fields.py` has the effect of each field."""

import re

from marshmallow import fields, validate

from app.compat.modelarts.request_parts import (
    IGNORED,
    MANY,
    READ_ONLY,
    VARIABLE,
    Input,
    LogPlace,
    Output,
    Parameter,
    Task,
    Variables,
    document,
    list_of,
    objects,
)
from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, SectionField, Text, TextMap, Whole, says

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANNOTATION = re.compile(r"[A-Za-z0-9_./-]{1,128}")
FILTERS = ("name", "create_time", "phase", "algorithm_name", "kind", "user_id", "runtime_type")


_Engine = document(
    "Engine",
    {
        "engine_id": Text(longest=128, **IGNORED),
        "engine_name": Text(longest=128, **IGNORED),
        "engine_version": Text(longest=128, **IGNORED),
        "image_url": Text(longest=1024, **says("The image of the job's code, where the operator has named registries")),
        "install_sys_packages": Flag(**IGNORED),
    },
)
_PfsLog = document("PfsLog", {"pfs_path": Text(longest=1024, **IGNORED)})
_LogDir = document("LogDir", {"pfs": SectionField(_PfsLog)})
_JobSource = document(
    "JobSource", {"job": SectionField(document("SourceJob", {"job_id": Text(longest=64, **IGNORED)}))}
)
_Summary = document(
    "Summary",
    {
        "log_type": Choice(("tensorboard", "mindstudio-insight"), **IGNORED),
        "log_dir": SectionField(_LogDir),
        "data_sources": list_of(_JobSource),
    },
)
_Reward = document(
    "RewardAttribute",
    {
        "name": Text(longest=128, shortest=1, required=True),
        "mode": Choice(("max", "min"), load_default="max"),
        "regex": Text(longest=500, **says("Of a line of the log, with the number as its only group")),
    },
)
_SearchParameter = document(
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
_AlgorithmOption = document(
    "SearchAlgorithmParameter",
    {
        "key": Text(longest=128, shortest=1, required=True),
        "value": Text(longest=1024, required=True),
        "type": Text(longest=64, **IGNORED),
    },
)
_SearchAlgorithm = document(
    "SearchAlgorithm", {"name": Text(longest=128, shortest=1, required=True), "params": list_of(_AlgorithmOption)}
)
_AutoSearch = document(
    "AutoSearch",
    {
        "skip_search_params": Text(longest=4096, **says("Names separated by commas, whose values are kept")),
        "reward_attrs": list_of(_Reward),
        "search_params": list_of(_SearchParameter),
        "algo_configs": list_of(_SearchAlgorithm, **says("One of GET /search-algorithms; without it all points")),
    },
)
_Policies = document("Policies", {"auto_search": SectionField(_AutoSearch, **says("A sweep, whose trials are jobs"))})
_Algorithm = document(
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
        "parameters": list_of(Parameter, **says("Arguments --NAME=VALUE; hyperparameters of a built-in method")),
        "policies": SectionField(_Policies),
        "inputs": list_of(Input),
        "outputs": list_of(Output),
        "engine": SectionField(_Engine),
        "local_code_dir": Text(
            longest=1024, **says("Path of the code in the container; below /home, not with file://")
        ),
        "working_dir": Text(longest=1024, **says("Working directory: in the code, an input or an output")),
        "environments": Variables(
            keys=VARIABLE, rule="must be a name of letters, digits and _ that begins with no digit"
        ),
        "summary": SectionField(_Summary),
    },
)


_Resource = document(
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
_Affinity = document(
    "RequiredAffinity",
    {
        "affinity_type": Choice(("cabinet", "hyperinstance"), required=True, **IGNORED),
        "affinity_group_size": Whole(1, 65536, **says("At most node_count; otherwise ignored")),
    },
)
_SchedulePolicy = document(
    "SchedulePolicy",
    {
        "required_affinity": SectionField(_Affinity),
        "priority": Whole(1, 3, **says("3 is the highest", default=1)),
        "preemptible": Flag(**says("true: jobs of higher priority may preempt it")),
    },
)
_AutoStop = document(
    "AutoStop", {"time_unit": Choice(("HOURS",), required=True), "duration": Whole(1, 8760, required=True)}
)
_Nfs = document(
    "Nfs",
    {
        "nfs_server_path": Text(longest=1024, shortest=1, required=True, **says("SERVER:PATH")),
        "local_path": Text(longest=1024, shortest=1, required=True, **says("Mount path in the job")),
        "read_only": Flag(**says("Volumes are read-only; false has a warning")),
    },
)


def _bucket(name: str, place: str) -> type[DocumentSchema]:
    return document(
        name,
        {
            place: Text(longest=1024, shortest=1, required=True, **says("Directory of a bucket: obs://BUCKET/PATH")),
            "local_path": Text(longest=1024, shortest=1, required=True, **says("Mount path in the job; read-only")),
        },
    )


_Volume = document(
    "Volume",
    {
        "nfs": SectionField(_Nfs),
        "pfs": SectionField(_bucket("Pfs", "pfs_path")),
        "obs": SectionField(_bucket("ObsVolume", "obs_path")),
    },
)
_Notification = document(
    "Notification",
    {"topic_urn": Text(longest=1024, **IGNORED), "events": fields.List(Text(longest=64), validate=MANY, **IGNORED)},
)
_Ssh = document(
    "Ssh",
    {
        "key_pair_names": fields.List(
            Text(longest=128), validate=MANY, **says("Returned with the address for `ssh`, by `trainyard ssh-proxy`")
        ),
        "task_urls": objects(**READ_ONLY),
    },
)
_Endpoints = document(
    "Endpoints",
    {
        "ssh": SectionField(_Ssh),
        "jupyter_lab": FreeObject(**READ_ONLY),
        "tensorboard": FreeObject(**READ_ONLY),
        "mindstudio_insight": FreeObject(**says("Refused: nodes have no Ascend NPUs")),
    },
)
_Spec = document(
    "JobSpec",
    {
        "resource": SectionField(_Resource),
        "volumes": list_of(_Volume),
        "log_export_path": SectionField(LogPlace),
        "auto_stop": SectionField(_AutoStop, **says("Maximum run time")),
        "schedule_policy": SectionField(_SchedulePolicy),
        "notification": SectionField(_Notification),
    },
)
_annotations = TextMap(keys=_ANNOTATION, rule="must be letters, digits and _./-")
_description = Text(longest=256)
_Metadata = document(
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
CreateSchema = document(
    "CreateTrainingJob",
    {
        "kind": Choice(("job",), required=True, **says("Only job")),
        "metadata": SectionField(_Metadata, required=True),
        "algorithm": SectionField(_Algorithm, required=True),
        "tasks": fields.List(
            SectionField(Task),
            validate=validate.Length(max=16),
            **says("The roles of a heterogeneous job, each with code, channels and instances of its own"),
        ),
        "spec": SectionField(_Spec),
        "endpoints": SectionField(_Endpoints),
        "status": FreeObject(**READ_ONLY),
        "train_type": Text(longest=64, **IGNORED),
    },
)
ChangeSchema = document(
    "ChangeTrainingJob",
    {"description": _description, "metadata": SectionField(document("ChangedMetadata", {"annotations": _annotations}))},
)
ActionSchema = document("TrainingJobAction", {"action_type": Choice(("terminate",), required=True)})
_Named = document("NamedJob", {"kind": Choice(("job",)), "metadata": FreeObject(required=True)})
BatchDeleteSchema = document("BatchDelete", {"jobs": list_of(_Named, required=True)})
_Filter = document(
    "Filter",
    {
        "key": Choice(FILTERS, required=True),
        "operator": Choice(("between", "like", "in", "not"), required=True),
        "value": fields.List(Text(longest=128), required=True, validate=MANY),
    },
)
SearchSchema = document(
    "SearchTrainingJobs",
    {
        "offset": Whole(0, 10_000, load_default=0, **says("Number of the page, from 0")),
        "limit": Whole(1, 50, load_default=10),
        "sort_by": Choice(("create_time",), load_default="create_time"),
        "order": Choice(("asc", "desc"), load_default="desc"),
        "group_by": Text(longest=64, **IGNORED),
        "workspace_id": Text(longest=64, **IGNORED),
        "train_type": Text(longest=64, **IGNORED),
        "filters": list_of(_Filter, load_default=list),
    },
)
_Tag = document(
    "Tag", {"key": Text(longest=63, shortest=1, required=True), "value": Text(longest=255, load_default="")}
)
TagsSchema = document("Tags", {"tags": fields.List(SectionField(_Tag), required=True, validate=validate.Length(1, 20))})
_ManyValues = document(
    "TagFilter",
    {
        "key": Text(longest=63, shortest=1, required=True),
        "values": fields.List(Text(longest=255), load_default=list, validate=MANY),
    },
)
_Match = document(
    "Match", {"key": Choice(("resource_name",), required=True), "value": Text(longest=255, required=True)}
)
InstancesSchema = document(
    "ResourceInstancesFilter",
    {
        "workspace_id": Text(longest=64, **IGNORED),
        "tags": list_of(_ManyValues, load_default=list),
        "matches": list_of(_Match, load_default=list),
        "without_any_tag": Flag(load_default=False),
    },
)
_Quota = document(
    "Quota",
    {
        "resource": Choice(("gpus", "cpu_slots", "running_jobs", "waiting_jobs"), required=True),
        "quota": Whole(-1, 2**31 - 1, required=True, **says("-1: no limit")),
        "used": Whole(0, **says("Accepted but ignored")),
        "extra_info": Text(longest=255, **says("Accepted but ignored")),
    },
)
QuotasSchema = document(
    "TrainingQuotas",
    {"user_id": Text(longest=64, **says("Ignored: quotas are per project")), "quotas": list_of(_Quota, required=True)},
)
