"""What Run:ai's clients send, by the names on the wire: trainings with all of their spec, and requests for tokens."""

import re
from typing import Any

from marshmallow import ValidationError, fields, validate

from app.schemas.documents import DocumentSchema
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, Number, Section, Text, Whole, says

_QUANTITY = re.compile(r"\+?[0-9]{1,15}(?:\.[0-9]{1,9})?(?:[kKMGTP]i?|m)?")
_MIG = ("1g.5gb", "1g.10gb", "2g.10gb", "2g.20gb", "3g.20gb", "3g.40gb", "4g.20gb", "4g.40gb", "7g.40gb", "7g.80gb")
_KEPT = says("Kept and told, not acted on")
_MANY = validate.Length(max=100)


class Identifier(fields.Field[Any]):
    """A text; a number is taken for its digits."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"type": ["string", "integer"], "minLength": 1, "maxLength": 128}, **kwargs)

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int) or not 1 <= len(str(value)) <= 128:
            raise ValidationError("must be a text of 1 to 128 characters")
        return str(value)


def _document(name: str, described: dict[str, Any]) -> type[DocumentSchema]:
    schema: Any = DocumentSchema.from_dict(described, name=f"{name}Schema")
    return schema  # type: ignore[no-any-return]


def _quantity(**kwargs: Any) -> Matching:
    return Matching(_QUANTITY, "must be a quantity such as 10M, 1.5G or 512Mi", **kwargs)


def _objects(**kwargs: Any) -> fields.List[Any]:
    return fields.List(FreeObject(), validate=_MANY, **kwargs)


_SecretReference = _document(
    "SecretReference",
    {"name": Text(longest=253, shortest=1, required=True), "key": Text(longest=253, shortest=1, required=True)},
)
_Variable = _document(
    "EnvironmentVariable",
    {
        "name": Text(longest=128, shortest=1, required=True),
        "value": Text(longest=4096),
        "secret": Section(_SecretReference, **says("Kept and told, not acted on: there is no store of secrets")),
        "exclude": Flag(load_default=False, **says("true: as if it were not there")),
    },
)
_Named = _document(
    "NamedValue",
    {
        "name": Text(longest=63, shortest=1, required=True),
        "value": Text(longest=255, load_default=""),
        "exclude": Flag(load_default=False, **says("true: as if it were not there")),
    },
)
_Compute = _document(
    "Compute",
    {
        "gpuDevicesRequest": Whole(0, 4096, **says("Devices; 0: a CPU slot")),
        "gpuRequestType": Choice(("portion", "memory", "migProfile"), **says("Which of the next fields count")),
        "gpuPortionRequest": Number(0, 1, **says("portion: the share of one device")),
        "gpuPortionLimit": Number(0, 1, **_KEPT),
        "gpuMemoryRequest": _quantity(**says("memory: as much of one device as has this memory")),
        "gpuMemoryLimit": _quantity(**_KEPT),
        "migProfile": Choice(_MIG, **says("migProfile: such a slice of a GPU")),
        "cpuCoreRequest": Number(0, 4096, **says("Cores, rounded up")),
        "cpuCoreLimit": Number(0, 4096, **_KEPT),
        "cpuMemoryRequest": _quantity(**says("Memory of the node that is set aside")),
        "cpuMemoryLimit": _quantity(**_KEPT),
        "largeShmRequest": Flag(**_KEPT),
        "extendedResources": _objects(**_KEPT),
    },
)
KEPT = {
    "imagePullPolicy": Choice(("Always", "Never", "IfNotPresent"), **_KEPT),
    "createHomeDir": Flag(**_KEPT),
    "probes": FreeObject(**_KEPT),
    "podAffinity": FreeObject(**_KEPT),
    "tty": Flag(**_KEPT),
    "stdin": Flag(**_KEPT),
    "annotations": fields.List(Section(_Named), validate=_MANY, **_KEPT),
    "tolerations": _objects(**_KEPT),
    "autoDeletionTimeAfterCompletionSeconds": Whole(0, **_KEPT),
    "ports": _objects(**_KEPT),
    "exposedUrls": _objects(**_KEPT),
    "relatedUrls": _objects(**_KEPT),
    "storage": FreeObject(**_KEPT),
    "security": FreeObject(**_KEPT),
    "terminationGracePeriodSeconds": Whole(0, **_KEPT),
    "restartPolicy": Choice(("Always", "Never", "OnFailure"), **_KEPT),
}
_Spec = _document(
    "TrainingSpec",
    {
        "command": Text(longest=32768, shortest=1, **says("The program, split into words as a shell would")),
        "args": Text(longest=32768, shortest=1, **says("What it is called with, split likewise")),
        "image": Text(longest=512, **says("Kept and told: jobs run on the node itself, without containers")),
        "workingDir": Text(longest=1024, **says("Where it starts, if jobs may read the directory; else kept and told")),
        "nodeType": Text(longest=128, **says("A label that the nodes must have")),
        "nodePools": fields.List(
            Text(longest=128, shortest=1), validate=_MANY, **says("One: a label that the nodes must have")
        ),
        "environmentVariables": fields.List(Section(_Variable), validate=_MANY),
        "labels": fields.List(Section(_Named), validate=_MANY, **says("Labels of the job")),
        "terminateAfterPreemption": Flag(**says("true: it ends; else it waits and goes on by itself")),
        "backoffLimit": Whole(0, 100, **says("Retries after failures", default=6)),
        "priorityClass": Text(longest=63, **says("build, interactive-preemptible or train, or very-low to very-high")),
        "preemptibility": Choice(("preemptible", "non-preemptible")),
        "completions": Whole(1, 1, **says("Only 1: every job is one run")),
        "parallelism": Whole(1, 1, **says("Only 1")),
        "compute": Section(_Compute),
        **KEPT,
    },
)
TrainingSchema = _document(
    "TrainingCreationRequest",
    {
        "name": Text(longest=128, shortest=1, required=True),
        "useGivenNameAsPrefix": Flag(load_default=False, **says("true: the name gets an ending of its own")),
        "projectId": Identifier(required=True),
        "clusterId": Text(longest=64, required=True, **says("Kept and told: there is one cluster")),
        "templateId": Text(longest=64, **_KEPT),
        "spec": Section(_Spec),
    },
)
TokenSchema = _document(
    "TokenRequest",
    {
        "grantType": Choice(("app_token", "client_credentials"), required=True),
        "AppId": Text(longest=64, **says("app_token: the access key of `trainyard keys create`")),
        "AppSecret": Text(longest=64, **says("app_token: its secret key")),
        "clientId": Text(longest=64, **says("client_credentials: the access key")),
        "clientSecret": Text(longest=64, **says("client_credentials: the secret key")),
    },
)
