"""What Run:ai's clients send, by the names on the wire: trainings with all of their spec, and requests for tokens."""

from typing import Any

from marshmallow import fields, validate

from app.compat.runai import pod_requests as pods
from app.compat.runai.requests_base import KEPT, MANY, RETURNED, Count, Identifier, document, items, name, quantity
from app.compat.runai.storage_requests import Storage
from app.schemas.strict_fields import Choice, Flag, Number, Section, Text, Whole, says

_MIG = ("1g.5gb", "1g.10gb", "2g.10gb", "2g.20gb", "3g.20gb", "3g.40gb", "4g.20gb", "4g.40gb", "7g.40gb", "7g.80gb")
_EXCLUDE = Flag(load_default=False, **says("true: as if it were not there"))
_Reference = document("SecretReference", {"name": name(required=True), "key": name(required=True)})
_Variable = document(
    "EnvironmentVariable",
    {
        "name": Text(longest=128, shortest=1, required=True),
        "value": Text(longest=4096),
        "secret": Section(_Reference, **says("The value is the text of the file NAME/KEY among the project's secrets")),
        "configMap": Section(_Reference),
        "podFieldRef": Section(document("PodFieldReference", {"path": Text(longest=253, shortest=1, **KEPT)})),
        "userCredential": Section(_Reference),
        "exclude": _EXCLUDE,
        "description": Text(longest=1024, **RETURNED),
    },
)
_Named = document(
    "NamedValue",
    {
        "name": Text(longest=63, shortest=1, required=True),
        "value": Text(longest=255, load_default=""),
        "exclude": _EXCLUDE,
    },
)
_Compute = document(
    "Compute",
    {
        "gpuDevicesRequest": Whole(0, 4096, **says("Devices; 0: a CPU slot")),
        "gpuRequestType": Choice(("portion", "memory", "migProfile"), **says("Which of the next fields count")),
        "gpuPortionRequest": Number(0, 1, **says("portion: the share of one device")),
        "gpuPortionLimit": Number(0, 1, **KEPT),
        "gpuMemoryRequest": quantity(**says("memory: as much of one device as has this memory")),
        "gpuMemoryLimit": quantity(**KEPT),
        "migProfile": Choice(_MIG, **says("migProfile: such a slice of a GPU")),
        "cpuCoreRequest": Number(0, 4096, **says("Cores, rounded up to whole ones")),
        "cpuCoreLimit": Number(0, 4096, **KEPT),
        "cpuMemoryRequest": quantity(**says("Memory of the node that is set aside")),
        "cpuMemoryLimit": quantity(**KEPT),
        "largeShmRequest": Flag(**KEPT),
        "extendedResources": items(
            "ExtendedResource", {"resource": name(required=True, **KEPT), "quantity": Count(required=True)}
        ),
    },
)
_PASSED_ON = {
    "imagePullPolicy": Choice(("Always", "Never", "IfNotPresent"), **KEPT),
    "createHomeDir": Flag(**KEPT),
    "probes": Section(pods.Probes),
    "podAffinity": Section(pods.PodAffinity),
    "tty": Flag(**KEPT),
    "stdin": Flag(**KEPT),
    "annotations": fields.List(Section(_Named), validate=MANY, **RETURNED),
    "tolerations": pods.tolerations(),
    "autoDeletionTimeAfterCompletionSeconds": Whole(
        0, **says("So long after its end it is gone here; the native API has it still")
    ),
    "category": Text(longest=128, **KEPT),
    "imagePullSecrets": pods.image_pull_secrets(),
    "nodeAffinityRequired": Section(pods.NodeAffinityRequired),
    "ports": pods.ports(),
    "exposedUrls": pods.exposed_urls(),
    "relatedUrls": pods.related_urls(),
    "storage": Section(Storage),
    "security": Section(pods.Security),
    "terminationGracePeriodSeconds": Whole(0, **KEPT),
    "restartPolicy": Choice(("Always", "Never", "OnFailure"), **KEPT),
}
_SPEC: dict[str, Any] = {
    "command": Text(longest=32768, shortest=1, **says("The program, split into words as a shell would")),
    "args": Text(longest=32768, shortest=1, **says("What it is called with, split likewise")),
    "image": Text(longest=512, **KEPT),
    "workingDir": Text(longest=1024, **says("Where it starts, if jobs may read it; else a warning names it")),
    "nodeType": Text(longest=128, **says("A label that the nodes must have")),
    "nodePools": fields.List(
        Text(longest=128, shortest=1),
        validate=MANY,
        **says("Labels of which the nodes must have one; all are in the pool default"),
    ),
    "environmentVariables": fields.List(Section(_Variable), validate=MANY),
    "labels": fields.List(Section(_Named), validate=MANY, **says("Labels of the job")),
    "terminateAfterPreemption": Flag(**says("true: it ends; else it waits and goes on by itself")),
    "backoffLimit": Whole(0, 100, **says("Retries after failures", default=6)),
    "priorityClass": Text(longest=63, **says("build, interactive-preemptible or train, or very-low to very-high")),
    "preemptibility": Choice(("preemptible", "non-preemptible")),
    "completions": Whole(1, 10_000, **says("So often the command runs")),
    "parallelism": Whole(1, 10_000, **says("So many runs at a time", default=1)),
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
    "projectId": Identifier(required=True, **says("The number of a project, or its name")),
    "clusterId": Text(longest=64, required=True, **says("Kept and returned: there is one cluster")),
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
