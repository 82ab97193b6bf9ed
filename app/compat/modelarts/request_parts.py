"""Parts of ModelArts' requests that several have: channels, parameters, tasks; `fields.py` has their effect."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, SectionField, Text, TextMap, Whole, says

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
IGNORED = says("Accepted but ignored")
READ_ONLY = says("Read-only: a new job gets its own")
MANY = validate.Length(max=100)


def document(name: str, described: Mapping[str, Any]) -> type[DocumentSchema]:
    schema: Any = DocumentSchema.from_dict(dict(described), name=f"{name}Schema")
    return schema  # type: ignore[no-any-return]


def objects(**kwargs: Any) -> fields.List[Any]:
    return fields.List(FreeObject(), validate=MANY, **kwargs)


def list_of(schema: type[DocumentSchema], **kwargs: Any) -> fields.List[Any]:
    return fields.List(SectionField(schema), validate=MANY, **kwargs)


class Variables(TextMap):
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


_Obs = document("Obs", {"obs_url": Text(longest=1024, shortest=1, required=True)})
_Remote = document("Remote", {"obs": SectionField(_Obs), "dataset": FreeObject(**says("Refused: not supported"))})
_CHANNEL = {
    "name": Matching(VARIABLE, "must be a name of letters, digits and _", required=True),
    "description": Text(longest=1024, **IGNORED),
    "local_dir": Text(longest=1024, **says("Path in the container; replaced by the path on the node")),
    "access_method": Choice(("parameter", "env"), **says("How the script gets the path: as an argument or a variable")),
    "remote": SectionField(_Remote, required=True),
}
_InputConstraint = document(
    "InputConstraint", {"data_type": Text(longest=256, **IGNORED), "attributes": Text(longest=4096, **IGNORED)}
)
Input = document("Input", {**_CHANNEL, "remote_constraint": list_of(_InputConstraint)})
Output = document("Output", _CHANNEL)
_Constraint = document(
    "ParameterConstraint",
    {
        "type": Text(longest=64, **IGNORED),
        "editable": Flag(**IGNORED),
        "required": Flag(**IGNORED),
        "sensitive": Flag(**IGNORED),
        "valid_type": Text(longest=64, **IGNORED),
        "valid_range": fields.List(Text(longest=1024), validate=MANY, **IGNORED),
    },
)
_Translation = document(
    "Translation", {"language": Text(longest=64, **IGNORED), "description": Text(longest=4096, **IGNORED)}
)
Parameter = document(
    "Parameter",
    {
        "name": Text(longest=256, shortest=1, required=True),
        "value": Text(longest=4096, load_default=""),
        "description": Text(longest=4096, **IGNORED),
        "constraint": SectionField(_Constraint),
        "i18n_description": SectionField(_Translation),
    },
)


class _OneOrSeveral(fields.List[Any]):
    """An array of channels, or a single one, as responses have it."""

    def __init__(self, schema: type[DocumentSchema]) -> None:
        super().__init__(SectionField(schema), validate=MANY, metadata={"type": ["object", "array"]})

    def _deserialize(self, value: object, *args: Any, **kwargs: Any) -> list[Any]:
        found: list[Any] = super()._deserialize([value] if isinstance(value, dict) else value, *args, **kwargs)
        return found


_TaskOutput = document(
    "TaskOutput", {**_CHANNEL, "mode": Text(longest=64, **IGNORED), "period": Text(longest=64, **IGNORED)}
)
_TaskEngine = document(
    "TaskEngine",
    {
        "engine_id": Text(longest=128, **IGNORED),
        "engine_name": Text(longest=128, **IGNORED),
        "engine_version": Text(longest=128, **IGNORED),
        "image_url": Text(longest=1024, **says("The image of the whole job: the same for every task")),
        "run_user": Text(longest=64, **says("The user ID of the processes: the same for every task")),
        "v1_compatible": Flag(**IGNORED),
    },
)
_TaskConfig = document(
    "TaskJobConfig",
    {
        "parameters": list_of(Parameter, **says("Arguments --NAME=VALUE, after those of algorithm")),
        "inputs": list_of(Input),
        "outputs": list_of(_TaskOutput),
    },
)
_TaskAlgorithm = document(
    "TaskAlgorithm",
    {
        "code_dir": Text(longest=1024, **says("In one directory with the code of the other tasks")),
        "boot_file": Text(longest=1024, **says("The script in it")),
        "inputs": _OneOrSeveral(Input),
        "outputs": _OneOrSeveral(_TaskOutput),
        "engine": SectionField(_TaskEngine),
        "local_code_dir": Text(longest=1024, **says("Path of the code in the container; below /home")),
        "working_dir": Text(longest=1024, **says("Working directory: in the code, an input or an output")),
        "environments": Variables(
            keys=VARIABLE, rule="must be a name of letters, digits and _ that begins with no digit"
        ),
        "job_config": SectionField(_TaskConfig),
    },
)
_TaskResource = document(
    "TaskResource",
    {
        "flavor_id": Text(longest=128, **says("A flavor of GET /training-job-flavors, for each instance")),
        "node_count": Whole(1, 64, load_default=1, **says("Number of instances of the role")),
        "pool_id": Text(longest=63, **says("A required node label")),
        "flavor_name": Text(longest=128, **says("Read-only: flavor_id decides")),
        "flavor_type": Text(longest=64, **says("Read-only: flavor_id decides")),
        "max_num": Whole(0, 2**31 - 1, **says("Read-only: flavor_id decides")),
        "billing": FreeObject(**says("Read-only: flavor_id decides")),
        "flavor_info": FreeObject(**says("Read-only: flavor_id decides")),
        "attributes": FreeObject(**says("Read-only: flavor_id decides")),
    },
)
LogPlace = document(
    "LogExportPath",
    {
        "obs_url": Text(longest=1024, **says("Directory that logs are copied to when an attempt ends")),
        "host_path": Text(longest=1024, **says("Instead of obs_url: a directory on the disks of the cluster")),
    },
)
Task = document(
    "Task",
    {
        "role": Matching(
            re.compile(r"[A-Za-z0-9-]{1,30}"), "must be 1 to 30 letters, digits and dashes", required=True
        ),
        "algorithm": SectionField(_TaskAlgorithm, load_default=dict),
        "task_resource": SectionField(_TaskResource, load_default=lambda: {"node_count": 1}),
        "log_export_path": SectionField(LogPlace),
    },
)
