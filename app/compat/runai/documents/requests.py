"""Schemas of Run:ai's requests: trainings, batches and tokens."""

from typing import Any

from marshmallow import fields, validate

from app.compat.images import PULL_POLICIES
from app.compat.runai.documents import pods
from app.compat.runai.documents.base import IGNORED, MANY, RETURNED, Count, Identifier, document, items, name, quantity
from app.compat.runai.documents.storage import Storage
from app.schemas.strict_fields import Choice, Flag, Number, SectionField, Text, Whole, says

_MIG = ("1g.5gb", "1g.10gb", "2g.10gb", "2g.20gb", "3g.20gb", "3g.40gb", "4g.20gb", "4g.40gb", "7g.40gb", "7g.80gb")
_EXCLUDE = Flag(load_default=False, **says("true: the item is ignored"))
_Reference = document("SecretReference", {"name": name(required=True), "key": name(required=True)})
_Variable = document(
    "EnvironmentVariable",
    {
        "name": Text(longest=128, shortest=1, required=True),
        "value": Text(longest=4096),
        "secret": SectionField(_Reference, **says("The value is the file NAME/KEY of the project's secrets")),
        "configMap": SectionField(_Reference),
        "podFieldRef": SectionField(document("PodFieldReference", {"path": Text(longest=253, shortest=1, **IGNORED)})),
        "userCredential": SectionField(_Reference),
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
        "gpuRequestType": Choice(("portion", "memory", "migProfile"), **says("Which of the next fields apply")),
        "gpuPortionRequest": Number(0, 1, **says("portion: share of a device")),
        "gpuPortionLimit": Number(0, 1, **IGNORED),
        "gpuMemoryRequest": quantity(**says("memory: the share of a device with this memory")),
        "gpuMemoryLimit": quantity(**IGNORED),
        "migProfile": Choice(_MIG, **says("migProfile: a MIG instance of this profile")),
        "cpuCoreRequest": Number(0, 4096, **says("Cores, rounded up to whole ones")),
        "cpuCoreLimit": Number(0, 4096, **says("Cores whose time may be used, where nodes can limit it")),
        "cpuMemoryRequest": quantity(**says("Reserved memory of the node")),
        "cpuMemoryLimit": quantity(**says("Memory that may be used, where nodes can limit it")),
        "largeShmRequest": Flag(**IGNORED),
        "extendedResources": items(
            "ExtendedResource", {"resource": name(required=True, **IGNORED), "quantity": Count(required=True)}
        ),
    },
)
_FURTHER = {
    "imagePullPolicy": Choice(tuple(PULL_POLICIES), **says("Default: Always for the tag latest, else IfNotPresent")),
    "createHomeDir": Flag(),
    "probes": SectionField(pods.Probes),
    "podAffinity": SectionField(pods.PodAffinity),
    "tty": Flag(**says("true: output is a terminal")),
    "stdin": Flag(**says("true: standard input stays open, and is empty")),
    "annotations": fields.List(SectionField(_Named), validate=MANY, **RETURNED),
    "tolerations": pods.tolerations(),
    "autoDeletionTimeAfterCompletionSeconds": Whole(0, **says("After this time it is listed only by the native API")),
    "category": Text(longest=128, **IGNORED),
    "imagePullSecrets": pods.image_pull_secrets(),
    "nodeAffinityRequired": SectionField(pods.NodeAffinityRequired),
    "ports": pods.ports(),
    "exposedUrls": pods.exposed_urls(),
    "relatedUrls": pods.related_urls(),
    "storage": SectionField(Storage),
    "security": SectionField(pods.Security),
    "terminationGracePeriodSeconds": Whole(0, **IGNORED),
    "restartPolicy": Choice(("Always", "Never", "OnFailure"), **IGNORED),
}
_SPEC: dict[str, Any] = {
    "command": Text(longest=32768, shortest=1, **says("The program, split like a shell command")),
    "args": Text(longest=32768, shortest=1, **says("Arguments, split likewise")),
    "image": Text(longest=512, shortest=1, **says("The image of the program, where registries are named")),
    "workingDir": Text(longest=1024, **says("Working directory, if jobs may read it; else it has a warning")),
    "nodeType": Text(longest=128, **says("A required node label")),
    "nodePools": fields.List(
        Text(longest=128, shortest=1),
        validate=MANY,
        **says("Node labels of which a node must have one; the pool default has all nodes"),
    ),
    "environmentVariables": fields.List(SectionField(_Variable), validate=MANY),
    "labels": fields.List(SectionField(_Named), validate=MANY, **says("Labels of the job")),
    "terminateAfterPreemption": Flag(**says("true: it ends; else it is queued again")),
    "backoffLimit": Whole(0, 100, **says("Retries after failures", default=6)),
    "priorityClass": Text(longest=63, **says("build, interactive-preemptible or train, or very-low to very-high")),
    "preemptibility": Choice(("preemptible", "non-preemptible")),
    "completions": Whole(1, 10_000, **says("Number of runs of the command")),
    "parallelism": Whole(1, 10_000, **says("Concurrent runs, each with devices of its own, up to 64", default=1)),
    "compute": SectionField(_Compute),
    **_FURTHER,
}
_TrainingSpec = document("TrainingSpec", _SPEC)
_DistributedSpec = document(
    "DistributedSpec",
    {
        **{name: field for name, field in _SPEC.items() if name not in ("completions", "parallelism")},
        "distributedFramework": Choice(
            ("PyTorch", "MPI", "TF", "XGBoost", "JAX"), **says("PyTorch or MPI", default="PyTorch")
        ),
        "numWorkers": Whole(1, 65535, **says("Pods besides the master", default=1)),
        "minReplicas": Whole(0, **IGNORED),
        "maxReplicas": Whole(0, **IGNORED),
        "cleanPodPolicy": Choice(
            ("None", "All", "Running"),
            **says("None: wait for the workers of a master that differs; else they are stopped when it has ended"),
        ),
        "slotsPerWorker": Whole(1, 1024, **says("MPI: ranks of each worker", default=1)),
        "sshAuthMountPath": Text(longest=1024, **IGNORED),
        "mpiLauncherCreationPolicy": Choice(("AtStartup", "WaitForWorkersReady"), **IGNORED),
    },
)
_REQUEST: dict[str, Any] = {
    "name": Text(longest=128, shortest=1, required=True),
    "useGivenNameAsPrefix": Flag(load_default=False, **says("true: a random suffix is appended to the name")),
    "projectId": Identifier(required=True, **says("The number of a project, or its name")),
    "clusterId": Text(longest=64, required=True, **says("Stored and returned: there is one cluster")),
    "templateId": Text(longest=64, **IGNORED),
}
TrainingSchema = document("TrainingCreationRequest", {**_REQUEST, "spec": SectionField(_TrainingSpec)})
DistributedSchema = document(
    "DistributedCreationRequest",
    {
        **_REQUEST,
        "spec": SectionField(_DistributedSpec, required=True),
        "masterSpecSameAsWorker": Flag(**says("true: the default")),
        "masterSpec": SectionField(
            _TrainingSpec, **says("What the master has of its own: command, args, variables and compute")
        ),
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
