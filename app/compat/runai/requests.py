"""What Run:ai's clients send, by the names on the wire: trainings with all of their spec, and requests for tokens."""

from typing import Any

from marshmallow import ValidationError, fields, validate

from app.compat import quantities
from app.compat.runai.requests_base import KEPT, document
from app.compat.runai.storage_requests import Storage
from app.schemas.strict_fields import Choice, Flag, FreeObject, Matching, Number, Section, Text, Whole, says

_MIG = ("1g.5gb", "1g.10gb", "2g.10gb", "2g.20gb", "3g.20gb", "3g.40gb", "4g.20gb", "4g.40gb", "7g.40gb", "7g.80gb")
_MANY = validate.Length(max=100)


class Identifier(fields.Field[Any]):
    """A text; a number is taken for its digits."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"type": ["string", "integer"], "minLength": 1, "maxLength": 128}, **kwargs)

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int) or not 1 <= len(str(value)) <= 128:
            raise ValidationError("must be a text of 1 to 128 characters")
        return str(value)


def _quantity(**kwargs: Any) -> Matching:
    return Matching(quantities.FORM, quantities.RULE, **kwargs)


def _objects(**kwargs: Any) -> fields.List[Any]:
    return fields.List(FreeObject(), validate=_MANY, **kwargs)


_SecretReference = document(
    "SecretReference",
    {"name": Text(longest=253, shortest=1, required=True), "key": Text(longest=253, shortest=1, required=True)},
)
_Variable = document(
    "EnvironmentVariable",
    {
        "name": Text(longest=128, shortest=1, required=True),
        "value": Text(longest=4096),
        "secret": Section(_SecretReference, **says("Kept and told, not acted on: there is no store of secrets")),
        "configMap": FreeObject(**KEPT),
        "podFieldRef": FreeObject(**KEPT),
        "userCredential": FreeObject(**KEPT),
        "exclude": Flag(load_default=False, **says("true: as if it were not there")),
    },
)
_Named = document(
    "NamedValue",
    {
        "name": Text(longest=63, shortest=1, required=True),
        "value": Text(longest=255, load_default=""),
        "exclude": Flag(load_default=False, **says("true: as if it were not there")),
    },
)
_Compute = document(
    "Compute",
    {
        "gpuDevicesRequest": Whole(0, 4096, **says("Devices; 0: a CPU slot")),
        "gpuRequestType": Choice(("portion", "memory", "migProfile"), **says("Which of the next fields count")),
        "gpuPortionRequest": Number(0, 1, **says("portion: the share of one device")),
        "gpuPortionLimit": Number(0, 1, **KEPT),
        "gpuMemoryRequest": _quantity(**says("memory: as much of one device as has this memory")),
        "gpuMemoryLimit": _quantity(**KEPT),
        "migProfile": Choice(_MIG, **says("migProfile: such a slice of a GPU")),
        "cpuCoreRequest": Number(0, 4096, **says("Cores, rounded up")),
        "cpuCoreLimit": Number(0, 4096, **KEPT),
        "cpuMemoryRequest": _quantity(**says("Memory of the node that is set aside")),
        "cpuMemoryLimit": _quantity(**KEPT),
        "largeShmRequest": Flag(**KEPT),
        "extendedResources": _objects(**KEPT),
    },
)
_PASSED_ON = {
    "imagePullPolicy": Choice(("Always", "Never", "IfNotPresent"), **KEPT),
    "createHomeDir": Flag(**KEPT),
    "probes": FreeObject(**KEPT),
    "podAffinity": FreeObject(**KEPT),
    "tty": Flag(**KEPT),
    "stdin": Flag(**KEPT),
    "annotations": fields.List(Section(_Named), validate=_MANY, **says("Told again")),
    "tolerations": _objects(**says("Told again: nodes here have no taints")),
    "autoDeletionTimeAfterCompletionSeconds": Whole(
        0, **says("So long after its end it is gone here; the native API has it still")
    ),
    "category": Text(longest=128, **KEPT),
    "imagePullSecrets": _objects(**KEPT),
    "nodeAffinityRequired": FreeObject(**KEPT),
    "ports": _objects(**KEPT),
    "exposedUrls": _objects(**KEPT),
    "relatedUrls": _objects(**KEPT),
    "storage": Section(Storage),
    "security": FreeObject(**KEPT),
    "terminationGracePeriodSeconds": Whole(0, **KEPT),
    "restartPolicy": Choice(("Always", "Never", "OnFailure"), **KEPT),
}
_SPEC: dict[str, Any] = {
    "command": Text(longest=32768, shortest=1, **says("The program, split into words as a shell would")),
    "args": Text(longest=32768, shortest=1, **says("What it is called with, split likewise")),
    "image": Text(longest=512, **says("Kept and told: jobs run on the node itself, without containers")),
    "workingDir": Text(longest=1024, **says("Where it starts, if jobs may read the directory; else kept and told")),
    "nodeType": Text(longest=128, **says("A label that the nodes must have")),
    "nodePools": fields.List(
        Text(longest=128, shortest=1),
        validate=_MANY,
        **says("Labels of which the nodes must have one; all are in the pool default"),
    ),
    "environmentVariables": fields.List(Section(_Variable), validate=_MANY),
    "labels": fields.List(Section(_Named), validate=_MANY, **says("Labels of the job")),
    "terminateAfterPreemption": Flag(**says("true: it ends; else it waits and goes on by itself")),
    "backoffLimit": Whole(0, 100, **says("Retries after failures", default=6)),
    "priorityClass": Text(longest=63, **says("build, interactive-preemptible or train, or very-low to very-high")),
    "preemptibility": Choice(("preemptible", "non-preemptible")),
    "completions": Whole(1, 10_000, **says("So often the command runs, one run after the other")),
    "parallelism": Whole(1, 10_000, **says("At most so many runs at a time; it is one")),
    "compute": Section(_Compute),
    **_PASSED_ON,
}
_TrainingSpec = document("TrainingSpec", _SPEC)
_DistributedSpec = document(
    "DistributedSpec",
    {
        **{name: field for name, field in _SPEC.items() if name not in ("completions", "parallelism")},
        "distributedFramework": Choice(
            ("PyTorch", "MPI", "TF", "XGBoost", "JAX"), **says("Only PyTorch", default="PyTorch")
        ),
        "numWorkers": Whole(1, 65535, **says("Nodes beside the master's", default=1)),
        "minReplicas": Whole(0, **KEPT),
        "maxReplicas": Whole(0, **KEPT),
        "cleanPodPolicy": Choice(("None", "All", "Running"), **KEPT),
        "slotsPerWorker": Whole(1, **KEPT),
        "sshAuthMountPath": Text(longest=1024, **KEPT),
        "mpiLauncherCreationPolicy": Choice(("AtStartup", "WaitForWorkersReady"), **KEPT),
    },
)
_REQUEST: dict[str, Any] = {
    "name": Text(longest=128, shortest=1, required=True),
    "useGivenNameAsPrefix": Flag(load_default=False, **says("true: the name gets an ending of its own")),
    "projectId": Identifier(required=True),
    "clusterId": Text(longest=64, required=True, **says("Kept and told: there is one cluster")),
    "templateId": Text(longest=64, **KEPT),
}
TrainingSchema = document("TrainingCreationRequest", {**_REQUEST, "spec": Section(_TrainingSpec)})
DistributedSchema = document(
    "DistributedCreationRequest",
    {
        **_REQUEST,
        "spec": Section(_DistributedSpec, required=True),
        "masterSpecSameAsWorker": Flag(**says("true: the default")),
        "masterSpec": Section(_TrainingSpec, **says("Another command for the first rank; all else is as in spec")),
    },
)
BatchSchema = document(
    "WorkloadBatch",
    {
        "ids": fields.List(Identifier(), required=True, validate=validate.Length(min=1, max=500)),
        "action": Choice(("delete", "suspend", "resume"), required=True),
    },
)
TokenSchema = document(
    "TokenRequest",
    {
        "grantType": Choice(("app_token", "client_credentials"), required=True),
        "AppId": Text(longest=64, **says("app_token: the access key of `trainyard keys create`")),
        "AppSecret": Text(longest=64, **says("app_token: its secret key")),
        "clientId": Text(longest=64, **says("client_credentials: the access key")),
        "clientSecret": Text(longest=64, **says("client_credentials: the secret key")),
    },
)
