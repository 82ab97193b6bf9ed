"""What becomes of each field of Run:ai's trainings and distributed trainings."""

from collections.abc import Mapping
from typing import Any

from app.compat.runai.requests import DistributedSchema, TrainingSchema
from app.schemas.spec.field_verdicts import (
    FieldRule,
    Table,
    Verdict,
    acted_on,
    field_paths,
    warned,
    warning,
    warnings_of,
)

MASTERS = ("command", "args", "environmentVariables", "compute")  # what masterSpec may say beside spec
_EXCLUDE = acted_on("true: as if it were not there")
_RETURNED = acted_on("kept and returned")
_NAME_OF_VOLUME = acted_on("kept and returned; warnings call the volume so")
_MOUNT_PATH = acted_on("in command, args, workingDir and values of variables it becomes where the node has the volume")
_READ_ONLY = acted_on("true is how every volume is; false is named in a warning")
_NO_CONTAINER = warned("jobs run on the node itself, in a sandbox, without containers and images")
_NOT_KEPT_TO = warned("nothing keeps a training to it")
_NO_CREDENTIALS = warned("nothing is cloned or fetched with credentials: the operator puts the files on the nodes")

_SPEC: Table = {
    "command": acted_on("the program, split into words as a shell would; command or args is needed"),
    "args": acted_on("what the program is called with, split likewise"),
    "image": _NO_CONTAINER,
    "imagePullPolicy": _NO_CONTAINER,
    "workingDir": acted_on("where the command starts, if jobs may read the directory; else a warning names it"),
    "createHomeDir": warned("each attempt has a HOME of its own in any case"),
    "nodeType": acted_on("a label that the nodes must have; one that no node has is 400"),
    "nodePools": acted_on("labels of which the nodes must have one, all are in the pool default; their order is not"),
    "tty": warned("no terminal is attached"),
    "stdin": warned("standard input is empty"),
    "environmentVariables.name": acted_on("a variable; names that the platform sets are named in a warning"),
    "environmentVariables.value": acted_on("its value; masked where it looks like a secret"),
    "environmentVariables.secret.name": acted_on("the project's secret whose text is the value"),
    "environmentVariables.secret.key": acted_on("which text of that secret"),
    "environmentVariables.exclude": _EXCLUDE,
    "environmentVariables.description": _RETURNED,
    "annotations.name": _RETURNED,
    "annotations.value": _RETURNED,
    "annotations.exclude": _RETURNED,
    "labels.name": acted_on("a label of the job"),
    "labels.value": acted_on("its value"),
    "labels.exclude": _EXCLUDE,
    "terminateAfterPreemption": acted_on("true: a preempted training ends; else it waits and is started again"),
    "autoDeletionTimeAfterCompletionSeconds": acted_on("so long after its end it is gone here, not in the native API"),
    "backoffLimit": acted_on("retries after failures"),
    "priorityClass": acted_on("the priority, and whether the training is preemptible; unknown classes are 400"),
    "preemptibility": acted_on("whether the training is preemptible"),
    "completions": acted_on("how often the command runs, each run with its JOB_COMPLETION_INDEX"),
    "parallelism": acted_on("how many of the completions run at a time, the next ones when all of them have ended"),
    "category": warned("every workload is in the category Train"),
    "relatedUrls.url": _RETURNED,
    "relatedUrls.type": _RETURNED,
    "relatedUrls.name": _RETURNED,
    "relatedUrls.exclude": _RETURNED,
    "terminationGracePeriodSeconds": warned("the operator sets it for all jobs (TRAINYARD_LEASE_KILL_GRACE_SECONDS)"),
    "restartPolicy": warned("a failure is retried in a new attempt, as often as backoffLimit says"),
}  # fmt: skip
_COMPUTE: Table = {
    "gpuDevicesRequest": acted_on("the number of devices; 0 or left out: a CPU slot; more than any node has is 400"),
    "gpuRequestType": acted_on("which of the next three says how much of one device it is"),
    "gpuPortionRequest": acted_on("portion: the share that is set aside; nothing keeps the command to it"),
    "gpuPortionLimit": _NOT_KEPT_TO,
    "gpuMemoryRequest": acted_on("memory: what is set aside; nothing keeps the command to it"),
    "gpuMemoryLimit": _NOT_KEPT_TO,
    "migProfile": acted_on("migProfile: a MIG instance of this profile; one that no node has is 400"),
    "cpuCoreRequest": acted_on("cores that are set aside, rounded up to whole ones, which a warning says"),
    "cpuCoreLimit": _NOT_KEPT_TO,
    "cpuMemoryRequest": acted_on("memory of the node that is set aside; more than any node has is 400"),
    "cpuMemoryLimit": _NOT_KEPT_TO,
    "largeShmRequest": warned("shared memory takes up to half of the node's memory in any case"),
}
_STORAGE: Table = {
    "pvc.name": _NAME_OF_VOLUME,
    "pvc.existingPvc": acted_on("true: pvc://CLAIM; else the claim would be empty, and a warning names the volume"),
    "pvc.claimName": acted_on("the claim; pvc://CLAIM is where the operator says"),
    "pvc.path": _MOUNT_PATH,
    "pvc.readOnly": _READ_ONLY,
    "pvc.ephemeral": warned("nothing is deleted with the training"),
    "pvc.dataSharing": warned("claims are shared as the operator set them up"),
    "pvc.exclude": _EXCLUDE,
    "git.name": _NAME_OF_VOLUME,
    "git.repository": acted_on("a directory git/HOST/OWNER/NAME below a storage root; nothing is cloned"),
    "git.branch": warned("the directory is read as it is: nothing is checked out"),
    "git.revision": warned("the directory is read as it is: nothing is checked out"),
    "git.path": _MOUNT_PATH,
    "git.passwordSecret": _NO_CREDENTIALS,
    "git.secretKeyOfUser": _NO_CREDENTIALS,
    "git.secretKeyOfPassword": _NO_CREDENTIALS,
    "git.exclude": _EXCLUDE,
    "hostPath.name": _NAME_OF_VOLUME,
    "hostPath.path": acted_on("a directory of the node that jobs may read; another is named in a warning"),
    "hostPath.readOnly": _READ_ONLY,
    "hostPath.mountPath": _MOUNT_PATH,
    "hostPath.mountPropagation": warned("the directory is read where the node has it: nothing is propagated"),
    "hostPath.exclude": _EXCLUDE,
    "nfs.name": _NAME_OF_VOLUME,
    "nfs.server": acted_on("nfs/SERVER/PATH below a storage root, where the operator has mounted it"),
    "nfs.path": acted_on("nfs/SERVER/PATH below a storage root, where the operator has mounted it"),
    "nfs.readOnly": _READ_ONLY,
    "nfs.mountPath": _MOUNT_PATH,
    "nfs.exclude": _EXCLUDE,
    "s3.name": _NAME_OF_VOLUME,
    "s3.bucket": acted_on("a directory s3/BUCKET below a storage root; no S3 service is asked"),
    "s3.path": _MOUNT_PATH,
    "s3.url": warned("a directory s3/BUCKET below a storage root is read: no S3 service is asked"),
    "s3.accessKeySecret": _NO_CREDENTIALS,
    "s3.secretKeyOfAccessKeyId": _NO_CREDENTIALS,
    "s3.secretKeyOfSecretKey": _NO_CREDENTIALS,
    "s3.exclude": _EXCLUDE,
}
# Objects and lists of which nothing comes, whatever is in them: a warning names each once.
_WHOLES: dict[str, str] = {
    "spec.probes": "nothing is probed: a training runs from its start on",
    "spec.podAffinity": "nodes are chosen by labels and free devices, not by what runs beside",
    "spec.nodeAffinityRequired": "labels of nodes have no values: name them in nodeType and nodePools",
    "spec.tolerations": "nodes have no taints",
    "spec.ports": "no port of a training is published",
    "spec.exposedUrls": "no port of a training is published",
    "spec.imagePullSecrets": "jobs run without containers: no image is pulled",
    "spec.security": "the sandbox decides: its user is the worker's, without capabilities of the host",
    "spec.environmentVariables.configMap": "there are no config maps: give the value",
    "spec.environmentVariables.podFieldRef": "there are no pods: TRAINYARD_JOB_ID, RANK and others tell which it is",
    "spec.environmentVariables.userCredential": "there are no users' credentials: name a secret of the project",
    "spec.compute.extendedResources": "nodes offer GPUs, CPU slots, cores and memory: the training runs without it",
    "spec.storage.dataVolume": "there are no data volumes: name a claim, a directory or a URI that jobs may read",
    "spec.storage.pvc.claimInfo": "no claim is made: name one that exists",
    "spec.storage.git.secretRef": _NO_CREDENTIALS.note,
    "spec.storage.configMapVolume": "there are no config maps: put the file below a storage root",
    "spec.storage.secretVolume": "no files of secrets are mounted: name the secret in environmentVariables",
    "spec.storage.emptyDirVolume": "nothing is mounted: write to the working directory or TMPDIR of the attempt",
}
_DISTRIBUTED: Table = {
    "spec.distributedFramework": acted_on("PyTorch; others are 400"),
    "spec.numWorkers": acted_on("the nodes beside the master's"),
    "spec.minReplicas": warned("the number of nodes is fixed: it is numWorkers and the master's"),
    "spec.maxReplicas": warned("the number of nodes is fixed: it is numWorkers and the master's"),
    "spec.cleanPodPolicy": warned("all ranks end with the training"),
    "spec.slotsPerWorker": warned("the command runs once on each node"),
    "spec.sshAuthMountPath": warned("ranks meet by MASTER_ADDR, without ssh"),
    "spec.mpiLauncherCreationPolicy": warned("there is no launcher: all ranks start together"),
    "masterSpecSameAsWorker": acted_on("true is the default; together with masterSpec it is 400"),
}
_REQUEST: Table = {
    "name": acted_on("the name of the workload"),
    "useGivenNameAsPrefix": acted_on("true: the name gets an ending of its own"),
    "projectId": acted_on("the project, by number or name; one that the key does not see is 404"),
    "clusterId": acted_on("kept and returned: there is one cluster"),
    "templateId": warned("there are no templates"),
}
_RULES: Table = {
    **_REQUEST,
    **_DISTRIBUTED,
    **{f"spec.{path}": rule for path, rule in _SPEC.items()},
    **{f"spec.compute.{path}": rule for path, rule in _COMPUTE.items()},
    **{f"spec.storage.{path}": rule for path, rule in _STORAGE.items()},
}
_OF_THE_MASTER = "the first rank has its own command and args; else spec is for all ranks"
# What is so in any case, and asks for nothing.
_AS_IT_IS: tuple[tuple[str, Any], ...] = (("mountPropagation", "None"), ("exclude", False))


def _rule_of(path: str) -> FieldRule:
    """Raises KeyError for a field that is in no table."""
    rule = _rule_of_asked(path)
    return _EXCLUDE if path.endswith(".exclude") and rule.verdict is Verdict.WARNED else rule


def _rule_of_asked(path: str) -> FieldRule:
    of_spec = f"spec.{path.removeprefix('masterSpec.')}" if path.startswith("masterSpec.") else path
    if of_spec != path and path.split(".")[1] not in MASTERS:
        return warned(_OF_THE_MASTER)
    whole = _whole_of(of_spec)
    return warned(_WHOLES[whole]) if whole else _RULES[of_spec]


def _whole_of(path: str) -> str | None:
    return next((whole for whole in _WHOLES if f"{path}.".startswith(f"{whole}.")), None)


FIELDS: Table = {
    path: _rule_of(path) for schema in (TrainingSchema, DistributedSchema) for path in field_paths(schema())
}


def without_effect(training: Mapping[str, Any]) -> list[str]:
    """A line ``field: reason`` for each field that asks for something that nothing comes of, whatever its value."""
    return list(dict.fromkeys(_told(line) for line in warnings_of(_asked(training), FIELDS)))


def _told(line: str) -> str:
    path, _, reason = line.partition(": ")
    if path.startswith("masterSpec."):
        part = path.split(".")[1]
        if part not in MASTERS:
            return warning(f"masterSpec.{part}", reason)
        whole = _whole_of(f"spec.{path.removeprefix('masterSpec.')}")
        return warning(f"masterSpec.{whole.removeprefix('spec.')}", reason) if whole else line
    return warning(_whole_of(path) or path, reason)


def _asked(node: Any) -> Any:
    """Without what is excluded, and without what is so in any case."""
    if isinstance(node, Mapping):
        return {name: _asked(value) for name, value in node.items() if (name, value) not in _AS_IT_IS}
    if isinstance(node, list):
        return [_asked(each) for each in node if not (isinstance(each, Mapping) and each.get("exclude"))]
    return node
